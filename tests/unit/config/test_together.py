"""Which connector files may run in one process."""

import json

import pytest

from cdc_core.config import check_together, load
from cdc_core.config.catalogue import find
from cdc_core.config.together import PROCESS_PROPERTIES
from cdc_core.errors import ConfigError


@pytest.fixture
def files(tmp_path):
    """Write connector files, by name, of the properties that differ from the usual ones."""

    def write(**by_name):
        made = {}
        for name, properties in by_name.items():
            content = {
                "database.hostname": "h",
                "database.user": "u",
                "database.dbname": name,
                "slot.name": name,
                "topic.prefix": name,
                "wal2lake.lake.path": "/lake",
                **properties,
            }
            path = tmp_path / f"{name}.properties"
            path.write_text("# one comment\n" + "".join(f"{key}={value}\n" for key, value in content.items()))
            made[path] = load(path)
        return made

    return write


def refused(made):
    with pytest.raises(ConfigError) as found:
        check_together(made)
    return found.value.message.splitlines()[1:]


def test_connectors_of_one_server_and_one_lake_run_together(files):
    check_together(files(a={}, b={}, c={"database.hostname": "other", "slot.name": "a"}))


def test_a_slot_has_one_reader(files):
    a, b = made = files(a={"slot.name": "s"}, b={"slot.name": "s", "database.port": "5432"})
    assert refused(made) == [f"- {a} and {b} have the same slot.name, s, on h:5432."]


def test_a_name_is_of_one_connector(files):
    a, b = made = files(a={"topic.prefix": "shop"}, b={"topic.prefix": "shop"})
    (line,) = refused(made)
    assert line.startswith(f"- {a} and {b} have the same topic.prefix, shop, ") and "wal2lake.lake.path, /lake" in line
    # Also in another lake: metrics and lines of the log would be those of both.
    (line,) = refused(files(a={"topic.prefix": "shop"}, b={"topic.prefix": "shop", "wal2lake.lake.path": "/other"}))
    assert "lake.path" not in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("wal2lake.metrics.port", "9404"),
            ("wal2lake.metrics.host", "0.0.0.0"),
            ("wal2lake.metrics.required", "true"),
        ),
        *(("wal2lake.log.format", "json"), ("wal2lake.merge.part.max.bytes", "1000")),
        ("wal2lake.telemetry.otlp.endpoint", "http://h:4318"),
        ("wal2lake.telemetry.otlp.interval.seconds", "5"),
        ("wal2lake.spark.spark.driver.memory", "1g"),
    ],
)
def test_a_property_of_the_process_has_one_value(files, name, value):
    check_together(files(a={name: value}, b={name: value}))
    a, b = made = files(a={name: value}, b={})
    assert refused(made) == [f"- {name} is {value} in {a}, line 8, and not set in {b}: a process has one value of it."]


def test_every_property_of_the_process_is_tested_and_known():
    (case,) = test_a_property_of_the_process_has_one_value.pytestmark
    assert {name for name, _ in case.args[1]} - {"wal2lake.spark.spark.driver.memory"} == set(PROCESS_PROPERTIES)
    assert all(find(name) is not None for name in PROCESS_PROPERTIES)


def test_the_default_is_equal_to_its_value(files):
    check_together(files(a={"wal2lake.metrics.port": "0", "wal2lake.log.format": "text"}, b={}))


def test_a_secret_is_compared_and_not_printed(files):
    name = "wal2lake.spark.spark.hadoop.fs.s3a.secret.key"
    (line,) = refused(files(a={name: "first"}, b={name: "second"}))
    assert "first" not in line and "second" not in line and line.count("********") == 2 and line.count(", line 8") == 2


def test_all_pairs_are_named_and_a_line_of_json_is_found(files, tmp_path):
    made = files(a={"slot.name": "s"}, b={"slot.name": "s"})
    path = tmp_path / "c.json"
    content = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "slot.name": "s"}
    content |= {"topic.prefix": "c", "wal2lake.metrics.port": 9404}
    path.write_text(json.dumps({"name": "c", "config": content}, indent=2))
    lines = refused({**made, path: load(path)})
    assert len(lines) == 5 and sum("slot.name" in line for line in lines) == 3
    assert f"9404 in {path}, line 9:" in lines[-1]


def test_set_applies_to_all_files(files):
    made = files(a={"wal2lake.metrics.port": "9404"}, b={})
    check_together({path: load(path, [("wal2lake.metrics.port", "9405")]) for path in made})

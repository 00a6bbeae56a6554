"""Every property with its value, its status and the reason; secrets masked."""

from cdc_core.config.catalogue import PACKAGES
from cdc_core.config.connector import from_entries
from cdc_core.config.explanation import explain
from cdc_core.option import MASK, properties_of

ENTRIES = {
    "name": "shop",
    "database.hostname": "h",
    "database.user": "${env:PG_USER}",
    "database.password": "Clear1",
    "database.sslpassword": "${file:/secret}",
    "database.dbname": "d",
    "database.server.name": "t",
    "column.mask.hash.SHA-256.with.salt.Clear2": "a.b.c",
    "wal2lake.spark.spark.hadoop.fs.s3a.secret.key": "Clear3",
    "producer.override.sasl.jaas.config": "Clear4",
    "signal.kafka.topic": "source",
    "statistics.metrics.enabled": "true",
    "truncate.handling.mode": "include",
    "topic.delimiter": "",
}


def rows(monkeypatch, **options):
    monkeypatch.setenv("PG_USER", "Clear5")
    config = from_entries(ENTRIES.items())
    found = explain(config, **options)
    assert len({row.name for row in found}) == len(found)
    return {row.name: row for row in found}


def test_every_property_has_a_row(monkeypatch):
    found = rows(monkeypatch)
    for _, options in PACKAGES.values():
        for declared in properties_of(options).values():
            assert declared.pattern or declared.name in found
    for name in ENTRIES:
        shown = name.replace("Clear2", MASK).replace("database.server.name", "topic.prefix")
        assert shown in found


def test_nothing_clear_is_shown(monkeypatch):
    assert "Clear" not in repr(rows(monkeypatch))


def test_values_defaults_and_reasons(monkeypatch):
    found = rows(monkeypatch)
    assert (found["database.hostname"].value, found["database.hostname"].default) == ("h", False)
    assert found["database.user"].value == "${env:PG_USER}"
    assert found["database.password"].value == MASK
    assert found["database.sslpassword"].value == "${file:/secret}"
    assert (found["slot.name"].value, found["slot.name"].default) == ("debezium", True)
    assert found["topic.prefix"].reason == "set by its older name database.server.name"
    assert (found["name"].status, found["statistics.metrics.enabled"].status) == ("ignored", "not supported yet")
    assert found["truncate.handling.mode"].reason == "skipped.operations decides"
    assert found["decimal.handling.mode"].text


def test_only_what_the_file_gives_can_be_asked_for(monkeypatch):
    found = rows(monkeypatch, everything=False)
    assert len(found) == len(ENTRIES)
    assert not any(row.default for row in found.values() if row.name != "topic.delimiter")

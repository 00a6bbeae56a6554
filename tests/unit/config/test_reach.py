"""Every property has an effect on what a connector writes, or the connector file's warnings say that it has none."""

import pytest

from cdc_core.config.catalogue import PACKAGES
from cdc_core.config.connector import from_entries
from cdc_core.config.reach import Reach, reaches
from cdc_core.option import PropertyStatus, properties_of
from tests.unit.config.test_connector import LEAST

DECLARED = {
    declared.name: declared
    for _, options in PACKAGES.values()
    for declared in properties_of(options).values()
    if declared.status is PropertyStatus.SUPPORTED
}
LAKE = {**LEAST, "wal2lake.lake.path": "/lake"}
KAFKA = {**LEAST, "wal2lake.sinks": "kafka", "bootstrap.servers": "h:1"}
# Values where the kind does not tell one that is valid and not the default, and what else has to be set.
VALUES = {
    "message.key.columns": "public.t:a",
    "topic.naming.strategy": "SchemaUnicodeTopicNamingStrategy",
    "predicates.NAME.*": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    "wal2lake.quality.rule.NAME": "public.t: after.a > 0",
    "wal2lake.maintenance.schedule": "0 3 * * *",
    "wal2lake.reconcile.schedule": "0 3 * * *",
    "wal2lake.dagster.freshness": ".*=1h",
    "wal2lake.dagster.checks": "merged=warn",
    "wal2lake.quality.failure.limit": "0.5",
    "offset.mismatch.strategy": "trust_slot",
    "wal2lake.catalogs": "glue",
}


def another_value(declared):
    """A text that is valid for the property, and not its default."""
    if declared.name in VALUES:
        return VALUES[declared.name]
    if declared.kind == "boolean":
        return str(not declared.default).lower()
    if declared.kind in ("integer", "number"):
        return str(declared.default + 1)
    others = [value for value in declared.allowed if value != declared.default]
    return others[0] if others else "something"


def warned(base, declared):
    name = (
        declared.name.replace("days.N", "days.5")
        .replace("seconds.N", "seconds.5")
        .replace("NAME.*", "mine.type")
        .replace("NAME", "mine")
        .replace(".*", ".linger.ms")
    )
    return name, from_entries({**base, name: another_value(declared)}.items()).warnings


@pytest.mark.parametrize("name", [name for name, (reach, _) in reaches().items() if reach is Reach.EVENTS])
def test_what_only_events_have_is_named_of_a_lake_with_the_reason(name):
    given, warnings = warned(LAKE, DECLARED[name])
    said = f"No effect on the lake, because {reaches()[name][1]}: {given}."
    assert said in warnings
    assert not any(line.startswith("No effect on") for line in warned(LEAST, DECLARED[name])[1])
    both = {**LAKE, "wal2lake.sinks": "lake,kafka", "bootstrap.servers": "h:1"}
    if "converter" not in name and name not in ("transforms", "predicates", "topic.creation.*"):
        assert not any(line.startswith("No effect on") for line in warned(both, DECLARED[name])[1])


@pytest.mark.parametrize("name", [name for name, (reach, _) in reaches().items() if reach is Reach.LAKE])
def test_what_only_a_lake_has_is_named_of_kafka(name):
    given, warnings = warned(KAFKA, DECLARED[name])
    assert f"No effect without a lake, because wal2lake.sinks is kafka: {given}." in warnings
    assert not any("without a lake" in line for line in warned(LAKE, DECLARED[name])[1])


def test_a_default_that_is_given_and_properties_of_both_are_not_named():
    same = {"decimal.handling.mode": "precise", "tombstones.on.delete": "true", "heartbeat.interval.ms": "1000"}
    assert from_entries({**LAKE, **same}.items()).warnings == ()


def test_properties_of_one_reason_are_one_line():
    given = {"decimal.handling.mode": "string", "time.precision.mode": "connect", "message.key.columns": "a.b:c"}
    types, key = from_entries({**LAKE, **given}.items()).warnings
    assert types.endswith("decimal.handling.mode, time.precision.mode.") and key.endswith(": message.key.columns.")


def test_channels_that_are_not_enabled():
    idle = {"signal.kafka.topic": "t", "signal.file": "f", "signal.consumer.a.b": "1"}
    assert from_entries({**LEAST, **idle}.items()).warnings == (
        "No effect, because signal.enabled.channels does not list kafka: signal.kafka.topic, signal.consumer.a.b.",
        "No effect, because signal.enabled.channels does not list file: signal.file.",
    )
    assert from_entries({**LEAST, **idle, "signal.enabled.channels": "kafka,file"}.items()).warnings == ()

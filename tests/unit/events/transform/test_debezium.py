"""Debezium's transforms on small batches; whole runs are compared with recordings in tests/golden."""

from __future__ import annotations

import pytest

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import MISFIT, SCHEMALESS, constant
from cdc_core.events.transform.hashes import hashes, java_hash
from cdc_core.events.transform.java_text import DECIMAL
from cdc_core.schema.connect import ConnectSchema
from tests.unit.events.transform.records import (
    EVENT,
    ONE,
    ROW,
    TWO,
    batch,
    chain,
    data,
    event,
    headers,
    keys,
    names,
    one,
    tombstones,
    values,
)

PARTITION = "io.debezium.transforms.partitions.PartitionRouting"
UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
CHANGED = "io.debezium.transforms.ExtractChangedRecordState"
EVENTS = [event("c", after=ONE), event("u", ONE, TWO), event("d", before=TWO), event("t")]


def test_unwrap_by_mode() -> None:
    expected = {
        "drop": [ONE, TWO],
        "tombstone": [ONE, TWO, None],
        "delete-to-tombstone": [ONE, TWO, None],
        "rewrite": [
            {**ONE, "kind": "plain", "__deleted": "false"},
            {**TWO, "kind": "plain", "__deleted": "false"},
            {**TWO, "kind": "plain", "__deleted": "true"},
        ],
    }
    for mode, rows in expected.items():
        assert values(one(UNWRAP, delete__tombstone__handling__mode=mode).apply(batch(EVENTS))) == rows
        assert one(UNWRAP, delete__tombstone__handling__mode=mode).apply(tombstones()) == []
    kept = one(UNWRAP, delete__tombstone__handling__mode="rewrite-with-tombstone")
    assert values(kept.apply(tombstones(2))) == [None, None]


def test_a_tombstones_schema_by_mode() -> None:
    deleted = one(UNWRAP).apply(batch([event("d", before=ONE)]))[0]
    assert deleted.value.schema == ROW
    deleted = one(UNWRAP, delete__tombstone__handling__mode="delete-to-tombstone").apply(batch([event("d", ONE)]))[0]
    assert deleted.value.schema is None


def test_an_unwrapped_row_is_required_and_keeps_nulls() -> None:
    made = one(UNWRAP).apply(batch([event("c", after=ONE)]))[0]
    assert made.value.schema == ROW.replace(optional=False)
    plain = one(UNWRAP, delete__tombstone__handling__mode="rewrite", replace__null__with__default="false")
    assert values(plain.apply(batch([event("c", after=ONE)]))) == [{**ONE, "__deleted": "false"}]


def test_events_that_lack_a_field_fail() -> None:
    """A transform before may have renamed it: what is an event is decided by the schema's name."""
    fields = tuple(("now" if name == "after" else name, field) for name, field in EVENT.fields)
    renamed = batch([{**event("c"), "now": ONE}], EVENT.replace(fields=fields))
    for transform in (one(UNWRAP), one(CHANGED, header__changed__name="c")):
        with pytest.raises(RecordError, match="after"):
            transform.apply(renamed)


def test_added_fields_and_headers() -> None:
    settings = {
        "add__fields": "op,source.db:base,nowhere",
        "add__headers": "op,table,ts_ms",
        "add__headers__prefix": "",
    }
    found = one(UNWRAP, **settings).apply(batch(EVENTS[:1]))
    assert values(found) == [{**ONE, "__op": "c", "__base": "d"}]
    assert headers(found) == [{"op": "c", "table": "t", "ts_ms": 5}]
    kept = one(UNWRAP, add__headers="op,table", delete__tombstone__handling__mode="rewrite-with-tombstone")
    assert headers(kept.apply(tombstones())) == [{"__op": "d"}]


def test_a_field_is_not_added_twice() -> None:
    with pytest.raises(RecordError, match="the field name twice"):
        one(UNWRAP, add__fields="op:name", add__fields__prefix="").apply(batch(EVENTS[:1]))


def test_route_by_field() -> None:
    rows = [event("c", after={**ONE, "name": name}) for name in ("x", " ", None)]
    assert names(one(UNWRAP, route__by__field="name").apply(batch(rows))) == ["x", "p.s.t", "p.s.t"]
    with pytest.raises(RecordError, match="not of type string"):
        one(UNWRAP, route__by__field="id").apply(batch(rows))


def test_changed_fields_and_fields_dropped_by_header() -> None:
    settings = {
        "c.type": CHANGED,
        "c.header.changed.name": "Changed",
        "c.header.unchanged.name": "Unchanged",
        "u.type": UNWRAP,
        "u.drop.fields.header.name": "Unchanged",
    }
    found = chain("c,u", **settings).apply(batch(EVENTS))
    assert headers(found)[:2] == [
        {"Changed": [], "Unchanged": []},
        {"Changed": ["name"], "Unchanged": ["id", "kind"]},
    ]
    # Only optional fields, for the schema is to stay compatible.
    assert values(found)[:2] == [ONE, {"id": 1, "name": "b"}]
    settings["u.drop.fields.keep.schema.compatible"] = "false"
    assert values(chain("c,u", **settings).apply(batch(EVENTS)))[1] == {"name": "b"}


def test_other_records_pass() -> None:
    other = ConnectSchema("struct", name="p.Heartbeat", fields=(("ts_ms", ConnectSchema("int64")),))
    beat = batch([{"ts_ms": 1}], other)
    for kind in (UNWRAP, CHANGED):
        assert values(one(kind, header__changed__name="c").apply(beat)) == [{"ts_ms": 1}]
    assert values(one("io.debezium.transforms.outbox.EventRouter").apply(beat)) == [{"ts_ms": 1}]


REROUTE = "io.debezium.transforms.ByLogicalTableRouter"


def test_reroute_changes_topic_key_and_names() -> None:
    settings = {"topic__regex": r"(.*)\.t(.*)", "topic__replacement": "$1.all"}
    found = one(REROUTE, **settings).apply(batch(EVENTS[:1]))[0]
    assert names([found]) == ["p.s.all"] and keys([found]) == [{"id": 1, "__dbz__physicalTableIdentifier": "p.s.t"}]
    assert found.value.schema is not None and found.key.schema is not None
    assert (found.value.schema.name, found.key.schema.name) == ("p.s.all.Envelope", "p.s.all.Key")
    assert dict(found.value.schema.fields)["after"].name == "p.s.all.Value"
    plain = one(REROUTE, **settings, key__enforce__uniqueness="false").apply(batch(EVENTS[:1]))
    assert keys(plain) == [{"id": 1}]
    named = one(
        REROUTE, **settings, key__field__name="origin", key__field__regex=r"p\.(.*)", key__field__replacement="$1"
    )
    assert keys(named.apply(tombstones())) == [{"id": 1, "origin": "s.t"}]
    with pytest.raises(RecordError, match="is empty"):
        one(REROUTE, **settings, key__field__name="").apply(tombstones())
    assert names(one(REROUTE, topic__regex="P.*", topic__replacement="x").apply(batch(EVENTS[:1]))) == ["p.s.t"]


def test_partitions_by_javas_hashes() -> None:
    settings = {"partition__payload__fields": "change.name", "partition__topic__num": "7"}
    found, truncates = one(PARTITION, **settings).apply(batch(EVENTS))
    # "a".hashCode() is 97, "b".hashCode() is 98; a truncate has neither.
    assert found.partition is not None and found.partition.to_pylist() == [97 % 7, 98 % 7, 98 % 7]
    assert truncates.partition is None and len(truncates) == 1
    # As in Debezium, a delete has no after of which a field could be read.
    with pytest.raises(RecordError, match="no after"):
        one(PARTITION, **{**settings, "partition__payload__fields": "after.name"}).apply(batch(EVENTS))


@pytest.mark.parametrize(
    ("schema", "value", "hashed"),
    [
        (ConnectSchema("bytes", name=DECIMAL, parameters=(("scale", "2"),)), (12345).to_bytes(2, "big"), 382_697),
        (ConnectSchema("bytes", name=DECIMAL), (-(2**40)).to_bytes(6, "big", signed=True), 31 * -(31 * 256)),
        (ConnectSchema("array", items=ConnectSchema("int32", optional=True)), [1, None, 3], ((31 + 1) * 31) * 31 + 3),
        (ConnectSchema("int64"), -1, 0),
    ],
)
def test_javas_hashes(schema: ConnectSchema, value: object, hashed: int) -> None:
    assert hashes(constant(value, schema, 1), java_hash).to_pylist() == [hashed]


OUTBOX = "io.debezium.transforms.outbox.EventRouter"
BOX = ConnectSchema(
    "struct",
    optional=True,
    name="p.s.outbox.Value",
    fields=(
        ("id", ConnectSchema("string")),
        ("aggregatetype", ConnectSchema("string")),
        ("aggregateid", ConnectSchema("string")),
        ("payload", TEXT := ConnectSchema("string", optional=True)),
        ("version", ConnectSchema("int32", optional=True)),
        ("at", ConnectSchema("int64", optional=True, name="io.debezium.time.MicroTimestamp", version=1)),
    ),
)


def outbox(*payloads: str | None) -> list[dict[str, object]]:
    row = {"id": "i", "aggregatetype": "Order", "aggregateid": "7", "version": 3, "at": 1_500_999}
    return [event("c", after={**row, "payload": payload}) for payload in payloads]


def boxed(rows: list[dict[str, object]]):  # type: ignore[no-untyped-def]
    fields = tuple((name, BOX if name in ("before", "after") else field) for name, field in EVENT.fields)
    return batch(rows, EVENT.replace(fields=fields), topic="p.s.outbox")


def test_outbox_routes_and_times() -> None:
    found = one(OUTBOX, table__field__event__timestamp="at", route__topic__replacement="to.${routedByValue}")
    made = found.apply(boxed(outbox("x", None)))
    assert values(made) == ["x", None] and keys(made) == ["7", "7"] and names(made) == ["to.Order"] * 2
    assert headers(made) == [{"id": "i"}] * 2
    assert made[0].timestamp is not None and made[0].timestamp.to_pylist() == [1500, 1500]


def test_outbox_additional_columns() -> None:
    settings = {"table__fields__additional__placement": "version:envelope:v,aggregateid:header:who,version:partition"}
    made = one(OUTBOX, **settings).apply(boxed(outbox("x")))
    assert values(made) == [{"payload": "x", "v": 3}] and headers(made) == [{"id": "i", "who": "7"}]
    assert made[0].partition is not None and made[0].partition.to_pylist() == [3]
    assert made[0].value.schema is not None and made[0].value.schema.name == "p.s.outbox.Order.Value"
    versioned = one(OUTBOX, **settings, table__field__event__schema__version="version").apply(boxed(outbox("x")))
    assert versioned[0].value.schema is not None and versioned[0].value.schema.version == 3
    missing = {"table__fields__additional__placement": "nowhere:header"}
    with pytest.raises(RecordError, match="nowhere"):
        one(OUTBOX, **missing).apply(boxed(outbox("x")))
    ignored = one(OUTBOX, **missing, table__field__additional__missing="ignore")
    assert values(ignored.apply(boxed(outbox("x")))) == ["x"]


def test_outbox_empty_payloads_are_tombstones_if_asked() -> None:
    made = one(OUTBOX, route__tombstone__on__empty__payload="true").apply(boxed(outbox("x", "  ", None)))
    assert values(made) == ["x", None, None]
    assert [one_.value.schema is None for one_ in made] == [False, True]


def test_outbox_expands_json() -> None:
    text = '{"id": 1, "big": 12345678901, "items": [{"n": 1}, {"n": 2, "s": "x"}], "none": null, "f": 1.5, "e": []}'
    made = one(OUTBOX, table__expand__json__payload="true").apply(boxed(outbox(text, "plain", None)))
    expanded = {"id": 1, "big": 12345678901, "items": [{"n": 1, "s": None}, {"n": 2, "s": "x"}], "f": 1.5}
    assert values(made) == [expanded, "plain", None]
    schema = made[0].value.schema
    assert schema is not None and schema.name == "payload"
    kinds = {name: field.type for name, field in schema.fields}
    assert kinds == {"id": "int32", "big": "int64", "items": "array", "f": "double"}
    items = dict(schema.fields)["items"].items
    assert items is not None and items.name == "payload.items"
    nulls = one(OUTBOX, table__expand__json__payload="true", table__json__payload__null__behavior="optional_bytes")
    assert values(nulls.apply(boxed(outbox('{"a": null}')))) == [{"a": None}]
    # What Connect has no schema for, or another than the value's, stays text, and the converter decides.
    for text, name in (("[]", SCHEMALESS), ('{"n": 12345678901234567890}', MISFIT)):
        [kept] = one(OUTBOX, table__expand__json__payload="true").apply(boxed(outbox(text)))
        assert values([kept]) == [text]
        assert kept.value.schema is not None and kept.value.schema.name == name


def test_outbox_other_operations() -> None:
    row = outbox("x")[0]["after"]
    others = [event("u", row, row), event("d", row)]
    assert one(OUTBOX).apply(boxed(others)) == []
    assert one(OUTBOX).apply(tombstones()) == []
    with pytest.raises(RecordError, match="update"):
        one(OUTBOX, table__op__invalid__behavior="fatal").apply(boxed(others))
    with pytest.raises(RecordError, match="truncate"):
        one(OUTBOX).apply(boxed([event("t")]))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"type": "io.debezium.transforms.Filter"}, "does not run scripts"),
        ({"type": "io.debezium.transforms.ContentBasedRouter"}, "does not run scripts"),
        ({"type": "com.acme.Smt"}, "com.acme.Smt, which wal2lake does not have"),
        ({"type": "org.apache.kafka.connect.transforms.Cast"}, r"Add \$Key or \$Value"),
        ({}, "transforms.x.type is missing"),
        ({"type": UNWRAP, "delete.tombstone.handling.mode": "none"}, "expected one of drop, tombstone"),
        ({"type": UNWRAP, "predicate": "p"}, "which predicates does not list"),
        ({"type": REROUTE, "topic.regex": "(", "topic.replacement": "x"}, "not a regular expression"),
        ({"type": REROUTE, "topic.regex": "x", "topic.replacement": "$1"}, "no group 1"),
        ({"type": REROUTE, "topic.regex": "x"}, "topic.replacement is missing"),
    ],
)
def test_properties_that_are_not_valid(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        chain("x", **{f"x.{name}": text for name, text in settings.items()})


def test_unknown_properties_are_named() -> None:
    assert one(UNWRAP, drop__tombs="false").unread == ("transforms.x.drop.tombs",)


def test_older_names_are_replaced_with_one_warning_each() -> None:
    rewritten = one(UNWRAP, delete__handling__mode="rewrite", drop__tombstones="false", operation__header="true")
    assert rewritten.unread == ()
    assert rewritten.older == (
        "transforms.x.delete.handling.mode and transforms.x.drop.tombstones: replaced by "
        "transforms.x.delete.tombstone.handling.mode=rewrite-with-tombstone.",
        "transforms.x.operation.header: replaced by transforms.x.add.headers=op.",
    )
    (deleted,) = values(rewritten.apply(batch([event("d", before=ONE)])))
    assert deleted["__deleted"] == "true"
    assert values(rewritten.apply(tombstones())) == [None]
    for drops, kept in (("false", [None]), ("true", [])):
        dropped = one("io.debezium.transforms.UnwrapFromEnvelope", drop__tombstones=drops)
        assert values(dropped.apply(batch([event("d", before=ONE)]))) == kept
        assert dropped.older[0].endswith("is the older name of io.debezium.transforms.ExtractNewRecordState.")
    both = one(UNWRAP, delete__handling__mode="rewrite", delete__tombstone__handling__mode="drop")
    assert values(both.apply(batch([event("d", before=ONE)]))) == []
    assert "no effect, because transforms.x.delete.tombstone.handling.mode, which replaced it" in both.older[0]
    outbox = one(
        "io.debezium.transforms.outbox.EventRouter",
        table__field__payload__id="x",
        debezium__op__invalid__behavior="fatal",
    )
    assert outbox.unread == ()
    assert [said.split(": replaced by transforms.x.")[1] for said in outbox.older] == [
        "table.op.invalid.behavior=fatal.",
        "table.field.event.key=x.",
    ]
    without = one("ReplaceField$Value", blacklist="id")
    assert without.older == ("transforms.x.blacklist: replaced by transforms.x.exclude=id.",)
    with pytest.raises(ConfigError, match="expected one of drop, rewrite, none"):
        one(UNWRAP, delete__handling__mode="rewrit")


def test_predicates_choose_records() -> None:
    kafka = "org.apache.kafka.connect.transforms."
    settings = {
        "x.type": f"{kafka}Filter",
        "x.predicate": "p",
        "predicates.p.type": f"{kafka}predicates.RecordIsTombstone",
    }
    assert chain("x", "p", **settings).apply(tombstones()) == []
    assert values(chain("x", "p", **settings, **{"x.negate": "true"}).apply(tombstones())) == [None]
    topic = {**settings, "predicates.p.type": f"{kafka}predicates.TopicNameMatches", "predicates.p.pattern": "p.s"}
    assert values(chain("x", "p", **topic).apply(batch(EVENTS[:1]))) == [EVENTS[0]]
    header = {**settings, "predicates.p.type": f"{kafka}predicates.HasHeaderKey", "predicates.p.name": "h"}
    plain = batch(EVENTS[:1])
    assert len(chain("x", "p", **header).apply(plain)) == 1
    assert chain("x", "p", **header).apply(plain.with_header("h", data(TEXT, ["v"]))) == []

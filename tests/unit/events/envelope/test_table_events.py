"""What each row change becomes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_core.decode.pgoutput.stream_state import Truncate
from cdc_core.errors import ConversionError
from cdc_core.events.envelope.record import lines
from cdc_core.schema.options import KeyRule, NameAdjustmentMode
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.types.options import FailureHandlingMode
from tests.unit.events.envelope.tiny import (
    CUSTOMERS,
    NOW,
    PLACEHOLDER,
    UNSENT,
    TinyPlan,
    batch,
    column,
    context,
    events,
    made,
    shape,
)

ANNE = {"id": "1", "name": "Anne", "note": "x"}
MOVED = {"id": "2", "name": "Anne", "note": "x"}
ANNE_OUT = {"id": 1, "name": "Anne", "note": "x"}
MOVED_OUT = {"id": 2, "name": "Anne", "note": "x"}
KEY = {"id": "1"}


def test_an_insert_is_a_create_with_its_source() -> None:
    (record,) = made(events(), [("I", None, ANNE)])
    assert record["topic"] == "fulfillment.inventory.customers"
    assert shape(record) == ("c", {"id": 1}, None, ANNE_OUT)
    payload = record["value"]["payload"]
    assert (payload["ts_ms"], payload["ts_ns"]) == (1_600_000_000_123, NOW)
    assert payload["source"] | {"version": ""} == {
        "version": "",
        "connector": "postgresql",
        "name": "fulfillment",
        "ts_ms": 1_500_000_000_999,
        "snapshot": "false",
        "db": "shop",
        "sequence": '["4000","5000"]',
        "ts_us": 1_500_000_000_999_999,
        "ts_ns": 1_500_000_000_999_999_000,
        "schema": "inventory",
        "table": "customers",
        "txId": 77,
        "lsn": 5000,
        "xmin": None,
        "origin": None,
        "origin_lsn": None,
    }


def test_the_schemas_name_the_table() -> None:
    (record,) = made(events(), [("I", None, ANNE)])
    key, value = record["key"]["schema"], record["value"]["schema"]
    assert key == {
        "type": "struct",
        "fields": [{"type": "int32", "optional": False, "default": 0, "field": "id"}],
        "optional": False,
        "name": "fulfillment.inventory.customers.Key",
    }
    assert (value["name"], value["version"]) == ("fulfillment.inventory.customers.Envelope", 2)
    assert [field["field"] for field in value["fields"]] == [
        *("before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns")
    ]
    assert value["fields"][1]["fields"][2] == {"type": "string", "optional": True, "field": "note"}


def test_an_update_without_an_old_tuple_has_no_before() -> None:
    (record,) = made(events(), [("U", None, ANNE)])
    assert shape(record) == ("u", {"id": 1}, None, ANNE_OUT)


def test_a_full_update_shows_both() -> None:
    (record,) = made(events(), [("UO", ANNE, {**ANNE, "note": None})])
    assert shape(record) == ("u", {"id": 1}, ANNE_OUT, {**ANNE_OUT, "note": None})


def test_a_delete_by_key_invents_what_not_null_columns_need_and_is_followed_by_a_tombstone() -> None:
    delete, tombstone = made(events(), [("DK", KEY, None)])
    assert shape(delete) == ("d", {"id": 1}, {"id": 1, "name": "", "note": None}, None)
    assert shape(tombstone) == (None, {"id": 1}, None, None)
    assert tombstone["headers"] == delete["headers"]
    assert tombstone["topic"] == delete["topic"]


def test_tombstones_may_be_switched_off() -> None:
    assert [shape(r)[0] for r in made(events(ctx=context(tombstones_on_delete=False)), [("DK", KEY, None)])] == ["d"]


def test_a_key_change_is_delete_tombstone_create_with_each_others_key() -> None:
    records = made(events(), [("UK", KEY, MOVED)])
    assert [shape(record) for record in records] == [
        ("d", {"id": 1}, {"id": 1, "name": "", "note": None}, None),
        (None, {"id": 1}, None, None),
        ("c", {"id": 2}, None, MOVED_OUT),
    ]
    first = [record["headers"][0] for record in records]
    assert [(h["key"], h["value"]["payload"]) for h in first] == [
        ("__debezium.newkey", {"id": 2}),
        ("__debezium.newkey", {"id": 2}),
        ("__debezium.oldkey", {"id": 1}),
    ]
    assert first[0]["value"]["schema"] == records[0]["key"]["schema"]
    assert len({json.dumps(r["value"]["payload"]["source"]) for r in (records[0], records[2])}) == 1


def test_mixed_changes_keep_their_order() -> None:
    changes = [("I", None, ANNE), ("UK", KEY, MOVED), ("DK", {"id": "2"}, None), ("U", None, ANNE), ("I", None, ANNE)]
    assert [shape(record)[0] for record in made(events(), changes)] == ["c", "d", None, "c", "d", None, "u", "c"]


def test_context_headers_stand_on_every_record() -> None:
    (record,) = made(events(), [("I", None, ANNE)])
    named = {
        header["key"].removeprefix("__debezium.context."): header["value"]["payload"] for header in record["headers"]
    }
    assert named.pop("runId")
    assert named == {"connectorLogicalName": "fulfillment", "taskId": "0", "connectorName": "postgresql"}
    off = events(ctx=context(extended_headers_enabled=False))
    assert made(off, [("I", None, ANNE)])[0]["headers"] == []
    moved = made(off, [("UK", KEY, MOVED)])
    assert [[h["key"] for h in record["headers"]] for record in moved] == [
        ["__debezium.newkey"],
        ["__debezium.newkey"],
        ["__debezium.oldkey"],
    ]


@pytest.mark.parametrize(
    ("skipped", "left"),
    [("c", ["d", None, "u", "d", None]), ("u", ["c", "d", None, "c", "d", None]), ("d", ["c", "c", "u"]), ("cud", [])],
)
def test_skipped_operations_drop_the_halves_of_a_key_change_too(skipped: str, left: list[str | None]) -> None:
    changes = [("I", None, ANNE), ("UK", KEY, MOVED), ("U", None, ANNE), ("DK", KEY, None)]
    assert [shape(record)[0] for record in made(events(ctx=context(skipped=skipped)), changes)] == left


def test_updates_that_change_nothing_captured_may_be_left_out() -> None:
    quiet = context(skip_messages_without_change=True)
    changes = [("UO", ANNE, ANNE), ("UO", ANNE, {**ANNE, "note": "y"}), ("U", None, ANNE)]
    assert [shape(record)[3]["note"] for record in made(events(ctx=quiet), changes)] == ["y", "x"]
    hidden = events(ctx=quiet, plans=[TinyPlan("note", included=False)])
    assert len(made(hidden, changes)) == 1


def test_an_unchanged_value_is_that_of_the_old_tuple_or_the_placeholder() -> None:
    changes = [("U", None, {**ANNE, "note": UNSENT}), ("UO", {**ANNE, "note": "long"}, {**ANNE, "note": UNSENT})]
    assert [shape(record)[3]["note"] for record in made(events(), changes)] == [PLACEHOLDER, "long"]


def test_an_unchanged_value_whose_type_has_no_placeholder_is_null() -> None:
    table = TableSchema(TableId("s", "t"), 1, (column("id", "int4", optional=False), column("n", "int4")), ("id",))
    (record,) = made(events(table), [("U", None, {"id": "1", "n": UNSENT})], table)
    assert shape(record)[3] == {"id": 1, "n": None}


def test_a_null_under_a_default_shows_the_default() -> None:
    table = TableSchema(
        TableId("s", "t"),
        1,
        (
            column("id", "int4", optional=False),
            column("n", "int4", default_expression="42"),
            column("m", optional=False, default_expression="'abc'::text"),
        ),
        ("id",),
    )
    insert, delete, _ = made(events(table), [("I", None, {"id": "1", "m": "q"}), ("DK", {"id": "1"}, None)], table)
    assert shape(insert)[3] == {"id": 1, "n": 42, "m": "q"}
    assert shape(delete)[2] == {"id": 1, "n": 42, "m": "abc"}
    fields = insert["value"]["schema"]["fields"][1]["fields"]
    assert [field.get("default") for field in fields] == [None, 42, "abc"]


BAD = [("I", None, {**ANNE, "id": "1"}), ("I", None, {"id": "zwölf", "name": "b", "note": None})]


def test_an_unreadable_value_is_left_unset() -> None:
    table = TableSchema(TableId("s", "t"), 1, (column("id", "int4", optional=False), column("n", "int4")), ("id",))
    (record,) = made(events(table), [("I", None, {"id": "1", "n": "x"})], table)
    assert shape(record)[3] == {"id": 1, "n": None}


def test_an_unreadable_value_stops_the_stream_if_configured_without_its_text() -> None:
    strict = events(ctx=context(event_converting_failure_handling_mode=FailureHandlingMode.FAIL))
    with pytest.raises(
        ConversionError, match=r"Column id of inventory\.customers holds 1 value\(s\) at LSN 0/"
    ) as caught:
        made(strict, BAD)
    assert "zwölf" not in str(caught.value)


def test_a_warning_names_column_and_count_only(caplog: pytest.LogCaptureFixture) -> None:
    made(events(), BAD)
    assert caplog.records
    for record in caplog.records:  # of the key, and of the row
        assert record.message.startswith("Column id of inventory.customers holds 1 value(s) at LSN 0/")
        assert record.message.endswith("The field is not set.")
    assert "zwölf" not in caplog.text


def hidden(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(text), "***", "null!")


def test_a_mapper_sees_stand_ins_and_placeholders_but_never_the_key() -> None:
    keyed = context({"message_key_columns": (KeyRule(r"(.*)\.customers", ("name", "id")),)})
    masked = events(ctx=keyed, plans=[TinyPlan("name", mapper=lambda t: pc.binary_join_element_wise("<", t, ">", ""))])
    insert, delete, _ = made(masked, [("I", None, ANNE), ("DK", KEY, None)])
    assert shape(insert)[1] == {"name": "Anne", "id": 1}
    assert shape(insert)[3]["name"] == "<Anne>"
    assert shape(delete)[1] == {"name": "", "id": 1}
    assert shape(delete)[2]["name"] == "<>"
    toasted = events(plans=[TinyPlan("note", mapper=hidden)])
    assert shape(made(toasted, [("U", None, {**ANNE, "note": UNSENT})])[0])[3]["note"] == "***"
    assert shape(made(toasted, [("I", None, {**ANNE, "note": None})])[0])[3]["note"] == "null!"


def test_plans_leave_columns_out_and_add_parameters() -> None:
    plans = [
        TinyPlan("name", included=False),
        TinyPlan("note", parameters=(("masked", "true"),)),
        TinyPlan("id", False),
    ]
    (record,) = made(events(plans=plans), [("I", None, ANNE)])
    assert shape(record) == ("c", {"id": 1}, None, {"note": "x"})
    assert record["value"]["schema"]["fields"][1]["fields"] == [
        {"type": "string", "optional": True, "parameters": {"masked": "true"}, "field": "note"}
    ]


def test_a_column_without_an_event_face_is_left_out() -> None:
    table = TableSchema(TableId("s", "t"), 1, (column("id", "int4", optional=False), column("o", "odd")), ("id",))
    (record,) = made(events(table), [("I", None, {"id": "1", "o": "?"})], table)
    assert shape(record)[3] == {"id": 1}


def test_comments_never_go_into_the_schema_for_debezium_reads_none() -> None:
    table = TableSchema(TableId("s", "t"), 1, (column("id", "int4", optional=False, comment="the number"),), ("id",))
    commented = events(table, context({"include_schema_comments": True}))
    (record,) = made(commented, [("I", None, {"id": "1"})], table)
    assert "doc" not in record["key"]["schema"]["fields"][0]


def test_field_names_are_adjusted() -> None:
    table = TableSchema(TableId("s", "t-1"), 1, (column("Key Col", "int4", optional=False),), ("Key Col",))
    avro = {
        "field_name_adjustment_mode": NameAdjustmentMode.AVRO,
        "schema_name_adjustment_mode": NameAdjustmentMode.AVRO,
    }
    (record,) = made(events(table, context(avro)), [("I", None, {"Key Col": "1"})], table)
    assert shape(record)[1] == {"Key_Col": 1}
    assert record["topic"] == "fulfillment.s.t-1"
    assert record["key"]["schema"]["name"] == "fulfillment.s.t_1.Key"


def keyed(columns: tuple[str, ...] = (), unique: tuple[str, ...] = ()) -> TableSchema:
    return TableSchema(
        TableId("s", "t"), 1, (column("a", "int4"), column("b", optional=False), column("c")), columns, unique
    )


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (keyed(("b", "a")), {"b": "x", "a": 1}),
        (keyed((), ("c", "b")), {"c": None, "b": "x"}),
        (keyed(("gone", "b")), {"b": "x"}),
        (keyed(), None),
    ],
)
def test_the_key_is_primary_then_unique_then_none(table: TableSchema, key: Any) -> None:
    (record,) = made(events(table), [("I", None, {"a": "1", "b": "x"})], table)
    assert shape(record)[1] == key
    assert (record["key"] is None) == (key is None)


def test_rules_for_keys_are_applied_in_order() -> None:
    rules = (KeyRule(r"S\.T", ("c", "a")), KeyRule("(.*).t", ("a", "b")), KeyRule("s.other", ("b",)))
    table = keyed(("b",))
    (record,) = made(events(table, context({"message_key_columns": rules})), [("I", None, {"a": "1", "b": "x"})], table)
    assert list(shape(record)[1]) == ["c", "a", "b"]


def test_a_row_without_a_key_has_neither_key_nor_key_change() -> None:
    table = keyed()
    records = made(events(table), [("UO", {"a": "1", "b": "x"}, {"a": "2", "b": "x"}), ("DO", {"a": "1"}, None)], table)
    assert [(shape(r)[0], r["key"]) for r in records] == [("u", None), ("d", None), (None, None)]


def test_a_truncate_has_neither_key_nor_rows() -> None:
    truncate = Truncate(5, 600, 900, 0, 500, 77, 1_500_000_000_000_000, "far", 3, (CUSTOMERS,), 0)
    (line,) = lines(events().truncates(truncate, 0, None, NOW))
    record = json.loads(line)
    assert (record["key"], shape(record)) == (None, ("t", None, None, None))
    assert record["value"]["payload"]["source"]["origin"] == "far"
    assert record["value"]["payload"]["source"]["origin_lsn"] == 3
    assert events(ctx=context(skipped="t")).truncates(truncate, 0, None, NOW).num_rows == 0


def test_no_changes_make_no_records() -> None:
    raw, tuples = batch(CUSTOMERS, [])
    assert events().changes(raw, tuples, NOW).num_rows == 0

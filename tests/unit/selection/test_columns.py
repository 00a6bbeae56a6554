"""Which columns are kept, and which one rule changes each."""

import pickle

import pyarrow as pa
import pytest

from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column
from cdc_core.selection.columns import lake_key_conflicts, plan_columns
from cdc_core.selection.mappers import Hash, Mask, TruncateBytes, TruncateMapper
from cdc_core.selection.options import SelectionOptions
from tests.unit.selection.tables import BYTEA, CITEXT, CUSTOMERS, DDTEXT, INT4, MOOD, TEXT, VARCHAR, table_of

MASKED = (("masked", "true"),)


def plans(table=CUSTOMERS, **options):
    return {plan.name: plan for plan in plan_columns(table, SelectionOptions(**options))}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, {"id", "first_name", "email", "mood", "photo"}),
        ({"column_include_list": ("inventory.customers.(id|EMAIL)",)}, {"id", "email"}),
        ({"column_exclude_list": ("inventory.customers.photo", ".*mood")}, {"id", "first_name", "email"}),
        ({"column_exclude_list": ("customers.photo", "photo")}, {"id", "first_name", "email", "mood", "photo"}),
    ],
)
def test_columns_are_kept_by_schema_table_and_name(options, kept):
    assert {plan.name for plan in plans(**options).values() if plan.included} == kept
    assert list(plans(**options)) == [column.name for column in CUSTOMERS.columns]


def test_a_mask_changes_characters_and_marks_whatever_it_names():
    found = plans(column_mask_with_n_chars=(("5", ("inventory.customers.*",)),))
    assert found["email"].mapper == found["mood"].mapper == Mask(5)
    assert found["id"].mapper is None
    assert all(plan.parameters == MASKED for plan in found.values())
    assert (found["email"].hides, found["id"].hides) == (True, False)
    assert "int4" in found["id"].note
    assert not found["email"].note


def test_a_hash_is_cut_to_the_columns_length():
    table = table_of(Column("v", VARCHAR, 14), Column("t", TEXT), Column("d", DDTEXT), Column("c", CITEXT))
    entry = ("SHA-256", "s", ("inventory.*",))
    assert {n: p.mapper for n, p in plans(table, column_mask_hash=(entry,)).items()} == {
        "v": Hash("SHA-256", "s", True, 10),
        "t": Hash("SHA-256", "s", True, 2**31 - 1),
        "d": Hash("SHA-256", "s", True, 20),
        "c": None,
    }
    assert plans(table, column_mask_hash_v2=(entry,))["v"].mapper == Hash("SHA-256", "s", False, 10)


def test_truncation_leaves_alone_what_is_short_enough():
    table = table_of(
        Column("short", VARCHAR, 9),
        Column("long", VARCHAR, 10),
        Column("t", TEXT),
        Column("b", BYTEA),
        Column("i", INT4),
    )
    found = plans(table, column_truncate_to_n_chars=(("5", ("inventory.*",)),))
    assert (found["short"].mapper, found["short"].parameters) == (None, ())
    assert found["long"].mapper == found["t"].mapper == TruncateMapper(5)
    assert found["b"].mapper == TruncateBytes(5)
    assert found["long"].parameters == (("truncateLength", "5"),)
    # Ten digits are more than five characters: marked, and left as it is.
    assert (found["i"].mapper, found["i"].parameters) == (None, (("truncateLength", "5"),))
    assert found["i"].note
    assert not found["t"].hides


def test_the_first_rule_in_debeziums_order_is_the_only_one():
    name = ("inventory.customers.email",)
    rules = [
        ("column_truncate_to_n_chars", (("3", name),), (("truncateLength", "3"),)),
        ("column_mask_with_n_chars", (("4", name),), MASKED),
        ("column_propagate_source_type", name, None),
        ("datatype_propagate_source_type", ("inventory.customers.text",), None),
        ("column_mask_hash", (("MD5", "s", name),), MASKED),
        ("column_mask_hash_v2", (("SHA-1", "s", name),), MASKED),
    ]
    mappers = [
        TruncateMapper(3),
        Mask(4),
        None,
        None,
        Hash("MD5", "s", True, 2**31 - 1),
        Hash("SHA-1", "s", False, 2**31 - 1),
    ]
    for first, (_, _, parameters) in enumerate(rules):
        plan = plans(**{field: value for field, value, _ in rules[first:]})["email"]
        assert plan.mapper == mappers[first]
        if parameters is None:
            assert plan.parameters[0] == ("__debezium.source.column.type", "TEXT")
        else:
            assert plan.parameters == parameters


def test_entries_of_one_family_go_by_the_files_order():
    found = plans(column_mask_with_n_chars=(("7", (".*email",)), ("2", (".*",))))
    assert (found["email"].mapper, found["mood"].mapper) == (Mask(7), Mask(2))


NUMERIC_5_2 = (5 << 16 | 2) + 4
ARRAY = PgType(1015, "_varchar", kind=TypeKind.ARRAY, inner=VARCHAR)
DNUM = PgType(16600, "dnum", "inventory", TypeKind.DOMAIN, PgType(1700, "numeric"), (7 << 16 | 2) + 4)
DD = PgType(16601, "dd", "inventory", TypeKind.DOMAIN, DNUM, -1)


@pytest.mark.parametrize(
    ("type_", "modifier", "expected"),
    [
        (INT4, -1, ("INT4", "10", "0")),
        (PgType(16, "bool"), -1, ("BOOL", "1", "0")),
        (PgType(1560, "bit"), 5, ("BIT", "5", "0")),
        (PgType(1562, "varbit"), -1, ("VARBIT", "2147483647", "0")),
        (PgType(21, "int2"), -1, ("INT2", "5", "0")),
        (PgType(20, "int8"), -1, ("INT8", "19", "0")),
        (PgType(26, "oid"), -1, ("OID", "10", "0")),
        (PgType(700, "float4"), -1, ("FLOAT4", "8", "8")),
        (PgType(701, "float8"), -1, ("FLOAT8", "17", "17")),
        (PgType(1042, "bpchar"), 9, ("BPCHAR", "5", "0")),
        (VARCHAR, 14, ("VARCHAR", "10", "0")),
        (TEXT, -1, ("TEXT", "2147483647", "0")),
        (PgType(1114, "timestamp"), -1, ("TIMESTAMP", "29", "6")),
        (PgType(1114, "timestamp"), 0, ("TIMESTAMP", "22", "0")),
        (PgType(1114, "timestamp"), 3, ("TIMESTAMP", "26", "3")),
        (PgType(1700, "numeric"), -1, ("NUMERIC", "131089", "0")),
        (PgType(1700, "numeric"), NUMERIC_5_2, ("NUMERIC", "5", "2")),
        (PgType(790, "money"), -1, ("MONEY", "2147483647", "0")),
        (DNUM, -1, ("DNUM", "7", "2")),
        (DD, -1, ("DD", "7", "2")),
        (DDTEXT, -1, ("DDTEXT", "20", "0")),
        (MOOD, -1, ("MOOD", "2147483647", "0")),
        (ARRAY, 12, ("_VARCHAR", "8", "0")),
    ],
)
def test_the_source_type_is_as_recorded(type_, modifier, expected):
    plan = plans(table_of(Column("c", type_, modifier)), column_propagate_source_type=("inventory.*",))["c"]
    keys = [f"__debezium.source.column.{part}" for part in ("type", "length", "scale", "name")]
    assert plan.parameters == tuple(zip(keys, (*expected, "c"), strict=True))
    assert (plan.mapper, plan.hides) == (None, False)


def test_a_type_is_picked_by_its_name():
    found = plans(datatype_propagate_source_type=(r".+\.VARCHAR",))
    assert [name for name, plan in found.items() if plan.parameters] == ["first_name"]


def test_serials_are_marked_as_by_debezium_and_comments_never():
    table = table_of(Column("id", INT4, is_serial=True, comment="the key"))
    options = SelectionOptions(column_propagate_source_type=(".*",))
    (stream,) = plan_columns(table, options)
    (snapshot,) = plan_columns(table, options, snapshot=True)
    assert stream.parameters[0][1] == "INT4"
    assert snapshot.parameters[0][1] == "SERIAL"
    assert not any("the key" in parameter for parameter in (*stream.parameters, *snapshot.parameters))


def test_a_lake_key_must_keep_its_rows_apart():
    table = table_of(Column("a", TEXT), Column("b", TEXT), Column("c", INT4), key=("a", "b", "c"))
    options = SelectionOptions(
        column_mask_with_n_chars=(("3", (".*a",)),),
        column_mask_hash_v2=(("SHA-256", "s", (".*b",)),),
        column_exclude_list=(".*c",),
    )
    assert lake_key_conflicts(table, plan_columns(table, options)) == ("a", "c")
    assert lake_key_conflicts(table, plan_columns(table, SelectionOptions())) == ()


def test_plans_travel_to_the_workers():
    options = SelectionOptions(column_mask_hash=(("MD5", "s", (".*email",)),))
    found = pickle.loads(pickle.dumps(plan_columns(CUSTOMERS, options)))
    assert found == plan_columns(CUSTOMERS, options)
    assert found[2].mapper(pa.array(["x", None])).null_count == 1

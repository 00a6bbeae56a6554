from dataclasses import replace

import pyarrow as pa

from cdc_core.quality.options import UserRule
from cdc_core.quality.rules import Origin, Severity, literal, quote, rules_for
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema

INT8 = PgType(20, "int8")
VARCHAR = PgType(1043, "varchar")
NUMERIC = PgType(1700, "numeric")
MOOD = PgType(90001, "mood", "public", TypeKind.ENUM, labels=("sad", "it's ok", "back\\slash"))
CODE = PgType(90002, "code", "public", TypeKind.DOMAIN, inner=VARCHAR, inner_modifier=7)

TABLE = TableSchema(
    TableId("public", "people"),
    16400,
    (
        Column("id", INT8, optional=False),
        Column("name", VARCHAR, modifier=14, optional=False),
        Column("code", CODE),
        Column("mood", MOOD),
        Column("wealth", NUMERIC),
        Column("hidden", INT8, optional=False),
    ),
    primary_key=("id",),
)
NATURAL = {
    "id": pa.int64(),
    "name": pa.string(),
    "code": pa.string(),
    "mood": pa.string(),
    "wealth": pa.decimal128(38, 18),
}


def by_name(**more):
    return {rule.name: rule for rule in rules_for(TABLE, NATURAL, **more)}


def test_a_delete_needs_the_key_that_the_replica_identity_sends():
    """Under REPLICA IDENTITY USING INDEX a delete has no primary key."""
    table = replace(TABLE, identity=ReplicaIdentity.INDEX, identity_key=("code",))
    names = {rule.name for rule in rules_for(table, NATURAL)}
    assert {"key_not_null:code", "not_null:id"} <= names
    assert "key_not_null:id" not in names


def test_the_catalogue_gives_each_column_its_rules():
    assert list(by_name()) == [
        "op_known",
        "position_valid",
        "lsn_order",
        "image_present",
        "key_not_null:id",
        "not_null:name",
        "max_length:name",
        "max_length:code",
        "enum_member:mood",
        "natural_range:wealth",
    ]


def test_a_length_comes_from_the_column_or_from_its_domain():
    rules = by_name()
    assert rules["max_length:name"].predicate == 'length(after."name") <= 10'
    assert rules["max_length:code"].predicate == 'length(after."code") <= 3'


def test_a_value_out_of_its_natural_range_only_warns():
    assert by_name()["natural_range:wealth"].severity is Severity.WARN
    assert by_name()["enum_member:mood"].severity is Severity.ERROR


def test_masked_columns_are_checked_for_presence_only():
    names = by_name(mapped={"name", "mood"})
    assert "not_null:name" in names
    assert "max_length:name" not in names
    assert "enum_member:mood" not in names


def test_a_user_rule_belongs_to_its_table_alone():
    given = (("rich", UserRule("public.people", "after.wealth > 0")), ("else", UserRule("public.other", "true")))
    rules = [rule for rule in rules_for(TABLE, NATURAL, given) if rule.origin is Origin.USER]
    assert [(rule.name, rule.predicate) for rule in rules] == [("user:rich", "after.wealth > 0")]


def test_a_table_without_key_has_no_key_rule():
    keyless = TableSchema(TableId("public", "log"), 1, (Column("line", VARCHAR),))
    assert not [rule for rule in rules_for(keyless, {"line": pa.string()}) if rule.name.startswith("key")]


def test_names_and_texts_are_escaped():
    assert quote('a"b') == '"a""b"'
    assert literal("it's \\ here") == "'it''s \\ here'"

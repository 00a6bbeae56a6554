"""Rules evaluated by Spark over real change rows: who passes, who is quarantined and why."""

import json
import os
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from cdc_core.errors import TableError
from cdc_core.quality.options import UserRule
from cdc_core.quality.spark import VIOLATIONS, with_violations
from cdc_core.quality.spark_evaluate import check
from cdc_core.quality.spark_rules import rules_for
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column, TableId, TableSchema

pytestmark = pytest.mark.spark

TABLE = TableSchema(
    TableId("public", "people"),
    16400,
    (
        Column("id", PgType(20, "int8"), optional=False),
        Column("na me", PgType(1043, "varchar"), modifier=9, optional=False),
        Column("mood", PgType(90001, "mood", "public", TypeKind.ENUM, labels=("sad", "it's", "b\\s"))),
        Column("wealth", PgType(1700, "numeric")),
    ),
    primary_key=("id",),
)
NATURAL = {"id": pa.int64(), "na me": pa.string(), "mood": pa.string(), "wealth": pa.decimal128(38, 18)}
IMAGE = "struct<id:bigint,`na me`:string,mood:string,wealth:decimal(38,18),__rescued:map<string,string>>"
SCHEMA = (
    "__op string, __commit_lsn bigint, __tx_index bigint, __lsn bigint, __xid bigint, __commit_ts timestamp,"
    f" __unchanged array<string>, before {IMAGE}, after {IMAGE}"
)
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def spark():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from cdc_core.spark.session import get_session

    return get_session({"spark.master": "local[2]", "spark.driver.memory": "1g"})


def image(id=1, name="ann", mood="sad", wealth=None, rescued=None):
    return (id, name, mood, wealth, rescued)


def row(index, op="c", *, before=None, after=None, unchanged=(), lsn=900):
    return (op, 1000, index, lsn, 7, AT, list(unchanged), before, after)


def frame(spark, rows):
    return spark.createDataFrame(rows, SCHEMA)


GOOD = [
    row(0, after=image()),
    row(1, after=image(mood="it's")),
    row(2, after=image(mood="b\\s", name="äöüßé")),
    row(3, "u", after=image(name=None), unchanged=["na me"]),
    row(4, "d", before=image(name=None, mood=None)),
    row(5, "t"),
    row(6, after=image(wealth=None, rescued={"wealth": "NaN"})),
    row(7, after=image(name=None, rescued={"na me": "x"})),
    row(-1, "r", after=image()),
]
BAD = {
    "op_known": row(20, "x", after=image()),
    "position_valid": row(-2, after=image()),
    "lsn_order": row(21, after=image(), lsn=1001),
    "image_present": row(22, after=None),
    "key_not_null:id": row(23, "d", before=image(id=None)),
    "not_null:na me": row(24, after=image(name=None)),
    "max_length:na me": row(25, after=image(name="abcdef")),
    "enum_member:mood": row(26, after=image(mood="glad")),
    "user:no_zoe": row(27, after=image(name="zoe")),
}
RULES = rules_for(TABLE, NATURAL, (("no_zoe", UserRule("public.people", "after.`na me` <> 'zoe'")),))


def test_good_rows_pass_and_nothing_is_split(spark):
    changes = frame(spark, GOOD)
    checked = check(changes, TABLE.id, RULES)
    assert checked.good is changes
    assert checked.bad is None
    assert checked.report.success
    assert {rule.name: rule.failed for rule in checked.report.rules if rule.failed} == {"natural_range:wealth": 1}
    assert (checked.report.rows, checked.report.duplicates) == (len(GOOD), 0)


@pytest.mark.parametrize("reason", BAD)
def test_each_failure_is_found_and_named(spark, reason):
    found = with_violations(frame(spark, [BAD[reason]]), RULES).select(VIOLATIONS).collect()[0][0]
    assert found == [reason]


def test_failing_rows_are_quarantined_with_reasons_and_the_rest_goes_on(spark):
    both = {"max_length:na me", "enum_member:mood"}
    rows = [*GOOD, *BAD.values(), row(28, after=image(name="toolong", mood="glad"))]
    checked = check(frame(spark, rows), TABLE.id, RULES)
    assert checked.good.count() == len(GOOD)
    assert checked.good.schema == frame(spark, []).schema
    assert checked.bad is not None
    bad = {bad["__tx_index"]: bad for bad in checked.bad.collect()}
    assert {reason for entry in bad.values() for reason in entry["reasons"]} == set(BAD)
    assert set(bad[28]["reasons"]) == both
    images = json.loads(bad[28]["row"])
    assert images["after"] == {"id": 1, "na me": "toolong", "mood": "glad", "wealth": None, "__rescued": None}
    assert images["before"] is None
    assert images["__unchanged"] == []
    assert not checked.report.success
    assert not checked.report.suite_success
    assert checked.report.quarantined == len(BAD) + 1


def test_a_failing_catalogue_rule_asks_the_catalogue_again(spark):
    import dataclasses

    newer = dataclasses.replace(
        TABLE,
        columns=tuple(
            dataclasses.replace(column, type=dataclasses.replace(column.type, labels=("sad", "glad")))
            if column.name == "mood"
            else column
            for column in TABLE.columns
        ),
    )
    checked = check(frame(spark, [BAD["enum_member:mood"]]), TABLE.id, RULES, refresh=lambda: rules_for(newer, NATURAL))
    assert checked.report.success


def test_a_repeated_position_stops_the_table(spark):
    with pytest.raises(TableError, match=r"public\.people holds 1 row\(s\) whose position"):
        check(frame(spark, [row(0, after=image()), row(0, after=image(id=2))]), TABLE.id, RULES)


def test_more_failures_than_the_limit_stop_the_table(spark):
    rows = [row(0, after=image()), BAD["enum_member:mood"]]
    assert check(frame(spark, rows), TABLE.id, RULES, failure_limit=0.5).report.quarantined == 1
    with pytest.raises(TableError, match=r"1 of 2 .*enum_member:mood 1.*\(0\.4\)"):
        check(frame(spark, rows), TABLE.id, RULES, failure_limit=0.4)


def test_an_empty_batch_passes(spark):
    assert check(frame(spark, []), TABLE.id, RULES).report.success


def test_rules_of_columns_that_the_batch_lacks_are_left_out(spark):
    older = frame(spark, [row(0, after=image())])
    older = older.withColumn("after", older["after"].dropFields("mood"))
    assert check(older, TABLE.id, RULES).report.success


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        ("after.nothing > 1", "cannot be understood"),
        ("after.id >", "cannot be understood"),
        ("cast(after.`na me` as int) > 1", "failed while it was evaluated"),
    ],
)
def test_a_user_rule_that_spark_cannot_evaluate_is_named_without_values(spark, predicate, message):
    rules = rules_for(TABLE, NATURAL, (("mine", UserRule("public.people", predicate)),))
    with pytest.raises(TableError, match=message) as caught:
        check(frame(spark, [row(0, after=image(name="secret"))]), TABLE.id, rules)
    assert "mine" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_refused_row_is_written_to_the_quarantine_table_once(spark, tmp_path):
    from cdc_core.sink.delta.quarantine import write_quarantine

    path = str(tmp_path / "quarantine")
    first = check(frame(spark, [BAD["max_length:na me"]]), TABLE.id, RULES).bad
    both = check(frame(spark, [BAD["max_length:na me"], BAD["enum_member:mood"]]), TABLE.id, RULES).bad
    assert write_quarantine(first, path, TABLE.id) == 1
    assert write_quarantine(both, path, TABLE.id) == 1
    assert write_quarantine(both, path, TABLE.id) == 0
    held = spark.read.format("delta").load(path).collect()
    assert sorted((row["__tx_index"], row["reasons"]) for row in held) == [
        (25, ["max_length:na me"]),
        (26, ["enum_member:mood"]),
    ]
    assert all(row["__quarantined_at"] is not None for row in held)

"""A lake table is judged as it is: its live rows, by the expectations that judge slices."""

import json

import pyarrow as pa
import pytest

from cdc_core.errors import LakeError, NotJudgedError
from cdc_core.lake.checks.lake_table import judge_lake_table
from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.quality import whole_table
from cdc_core.quality.options import QualityOptions, UserRule
from cdc_core.quality.rule_files import read_rule_files
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.one_table import FixedPlan, OneTable
from tests.support.spark import change, row_type

KEYED = TableSchema(
    TableId("shop", "item"),
    1,
    (Column("id", PgType(23, "int4"), optional=False), Column("n", PgType(23, "int4"), optional=False)),
    primary_key=("id",),
)
ROW = row_type(id=pa.int32(), n=pa.int32())
SUITE = [
    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "n", "min_value": 49}},
    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "n", "max_value": 49}, "severity": "warning"},
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}},
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "n"}, "severity": "warning"},
    {
        "type": "unexpected_rows_expectation",
        "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE n = 7"},
        "severity": "warning",
    },
]


@pytest.fixture
def table(tmp_path):
    """A lake table with deleted, marked and changed rows: id and n are 1 to 99, but n of 98 is null and of 99 is 7."""
    made = OneTable(tmp_path, KEYED, ROW)
    made.mark_rows()
    made.snapshot(1, [{"id": n, "n": n} for n in range(100)])
    made.append(
        [
            change("d", 8, 0, before={"id": 0, "n": None}),
            change("u", 9, 0, None, {"id": 98, "n": None}),
            change("u", 10, 0, None, {"id": 99, "n": 7}),
        ],
        10,
    )
    made.merge(10, 1)
    return made


def judged(one, folder, suite=(), rules=()):
    path = folder / "rules/gx/expectations/shop/item.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"expectations": list(suite)}))
    options = QualityOptions(quality_rules=tuple((name, UserRule("shop.item", text)) for name, text in rules))
    files = read_rule_files(str(folder / "rules"))
    checks = TableChecks(options, FixedPlan(ROW), lambda table: table, files)
    return judge_lake_table(checks, KEYED, DeltaTable.open(one.lake))


def test_each_expectation_judges_the_live_rows(table, tmp_path):
    report = judged(table, tmp_path, SUITE, [("small", "after.n < 90")])
    found = {rule.name.removeprefix("user:"): (rule.success, rule.checked, rule.failed) for rule in report.rules}
    assert report.rows == 99 and not report.success
    assert found == {
        "key_not_null:id": (True, 99, 0),
        "not_null:n": (False, 99, 1),
        "small": (False, 99, 8),
        "mean_to_be_between:n": (False, 99, 0),
        "mean_to_be_between:n:2": (True, 99, 0),
        "be_unique:id": (True, 99, 0),
        "be_unique:n": (False, 99, 2),
        "unexpected_rows_expectation": (False, 99, 2),
    }


def test_only_what_the_rules_read_is_read_and_passing_rows_pass(table, tmp_path):
    report = judged(table, tmp_path, rules=[("low", "after.id < 100")])
    assert [rule.name for rule in report.rules if not rule.success] == ["not_null:n"]
    assert next(rule for rule in report.rules if rule.name == "user:low").checked == 99


def test_what_cannot_be_judged_is_an_error_and_not_a_pass(table, tmp_path, monkeypatch):
    with pytest.raises(NotJudgedError, match=r"bad of shop\.item"):
        judged(table, tmp_path, rules=[("bad", "cast(after.n || 'x' as int) > 0")])
    monkeypatch.setattr(whole_table, "ROWS_IN_MEMORY", 50)
    with pytest.raises(NotJudgedError, match=r"be_unique:id of shop\.item would judge 99 rows in memory"):
        judged(table, tmp_path, SUITE[2:3])


def test_a_missing_file_is_reported_and_no_failed_rule(table, tmp_path):
    lake = DeltaTable.open(table.lake)
    for file in lake.files:
        lake.folder.delete([file.path])
    with pytest.raises((LakeError, OSError)):
        judged(table, tmp_path, rules=[("low", "after.id < 100")])

"""The quality step of a table as the tasks of a round use it."""

import dataclasses
import pickle

import pytest

from cdc_core.lake.checks.table_checks import TableChecks, report_of
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.quality.options import QualityOptions, UserRule
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.unit.quality.people import GOOD, TABLE, frame, image, row


def gladder(table):
    """The source's description after its enum got another label."""
    columns = tuple(
        dataclasses.replace(column, type=dataclasses.replace(column.type, labels=(*column.type.labels, "glad")))
        if column.name == "mood"
        else column
        for column in table.columns
    )
    return dataclasses.replace(table, columns=columns)


def same(table):
    return table


def checks(refresh=same, selection=None, **options):
    plan = TypingPlan(TypeOptions(), SelectionOptions(**(selection or {})))
    made = TableChecks(QualityOptions(**options), plan, refresh)
    return pickle.loads(pickle.dumps(made))


def test_a_slice_is_split_and_reported():
    changes = frame([*GOOD, row(30, after=image(mood="other"))])
    found = checks().judged(TABLE, changes)
    assert found.good.num_rows == len(GOOD)
    assert found.bad.column("reasons").to_pylist() == [["enum_member:mood"]]
    report = report_of(found)
    assert (report.table, report.rows, report.quarantined, report.success) == (TABLE.id, len(GOOD) + 1, 1, False)
    line = next(rule for rule in report.rules if rule.name == "enum_member:mood")
    assert (line.column, line.severity, line.checked, line.failed) == ("mood", "error", len(GOOD) - 2, 1)
    assert (line.success, line.kind) == (False, "expect_column_values_to_be_in_set")
    assert line.description == "column mood holds one of its enum's 5 labels"
    assert pickle.loads(pickle.dumps(report)) == report


def test_checks_that_are_off_let_everything_pass():
    changes = frame([row(30, after=image(mood="other"))])
    assert checks(quality_enabled=False).judged(TABLE, changes) is None


def test_users_rules_come_from_the_options_and_are_followed():
    changes = frame([row(0, after=image(id=3))])
    for number, refused in ((2, 0), (3, 1), (2, 0)):
        rule = ("mine", UserRule("public.people", f"after.id <> {number}"))
        assert checks(quality_rules=(rule,)).judged(TABLE, changes).summary.quarantined == refused


def test_a_refreshed_table_lets_its_new_label_pass():
    changes = frame([row(0, after=image(mood="glad"))])
    assert checks().judged(TABLE, changes).summary.quarantined == 1
    assert checks(gladder).judged(TABLE, changes).summary.quarantined == 0
    assert checks().judged(gladder(TABLE), changes).summary.quarantined == 0


def test_masked_columns_are_checked_for_presence_only():
    changes = frame([row(0, after=image(name="much too long")), row(1, after=image(name=None))])
    bad = checks().judged(TABLE, changes).bad
    assert bad.column("reasons").to_pylist() == [["max_length:na me"], ["not_null:na me"]]
    masked = {"column_mask_with_n_chars": (("13", ("public.people.na me",)),)}
    bad = checks(selection=masked).judged(TABLE, changes).bad
    assert bad.column("reasons").to_pylist() == [["not_null:na me"]]


@pytest.mark.parametrize(
    ("predicate", "found"),
    [("after.nn > 0", "nn"), ("after.id >", "syntax error"), ("after.id + 1", "not BOOLEAN"), ("after.id > 0", "")],
)
def test_a_rule_that_cannot_be_evaluated_is_found_without_a_row(predicate, found):
    said = checks(quality_rules=(("mine", UserRule("public.people", predicate)),)).rule_problems([TABLE])
    assert bool(said) is bool(found)
    assert all("Quality rule mine of public.people" in one and found in one for one in said), said

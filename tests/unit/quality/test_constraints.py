"""Since when a column's constraints count."""

import dataclasses

from cdc_core.engine.checks import TableChecks
from cdc_core.engine.constraints import ConstraintsSeen, constraint_marks
from cdc_core.quality.options import QualityOptions
from cdc_core.schema.fingerprint import ColumnMark, Fingerprint
from cdc_core.selection.options import SelectionOptions
from cdc_core.sink.typing_plan import TypingPlan
from cdc_core.types.options import TypeOptions
from tests.unit.quality.people import TABLE, frame, image, row


def marked(**rows):
    """The table with the marks of its columns' catalogue rows."""
    columns = tuple(dataclasses.replace(c, attnum=n) for n, c in enumerate(TABLE.columns, 1))
    marks = tuple(ColumnMark(c.attnum, rows.get(c.name.replace(" ", "_"), "1"), 0, False) for c in columns)
    print_ = Fingerprint("s", 1, 1, "people", 4, "d", False, marks, ())
    return dataclasses.replace(TABLE, columns=columns, fingerprint=print_)


def test_a_column_counts_from_when_it_was_first_seen_so():
    ends = iter([100, 200, 300])
    seen = ConstraintsSeen(lambda: next(ends))
    first = marked()
    assert set(seen.since(first).values()) == {100}
    assert seen.since(first) is seen.since(first)
    assert seen.since(marked()) == seen.since(first)
    assert seen.since(marked(na_me="2")) == {"id": 100, "na me": 200, "mood": 100, "wealth": 100}
    assert seen.since(marked(na_me="1"))["na me"] == 300


def judged(refreshed, since, lsn=1000):
    plan = TypingPlan(TypeOptions(), SelectionOptions())
    checks = TableChecks(QualityOptions(), plan, lambda table: refreshed)
    rows = [row(0, after=image(name="much too long"), commit_lsn=lsn), row(1, after=image(name=None), commit_lsn=lsn)]
    return checks.judged(marked(), frame(rows), since)


def test_a_change_from_before_the_constraint_passes():
    assert judged(marked(), {"na me": 999}).refused.to_pylist() == [True, True]
    passed = judged(marked(), {"na me": 1000})
    assert passed.refused is None
    assert passed.summary.failed["not_null:na me"] == 0


def test_a_constraint_that_was_set_anew_meanwhile_counts_for_nothing_in_hand():
    assert judged(marked(na_me="2"), {"na me": 10}).refused is None
    assert constraint_marks(marked(na_me="2")) != constraint_marks(marked())

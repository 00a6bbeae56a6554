"""The plan of a table's snapshot: its SELECTs by how its rows can be divided, and what an earlier attempt leaves."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_core.lake.stores.range_log import FinishedRange
from cdc_core.lake.stores.snapshot_log import TakenSnapshot
from cdc_core.lsn import Lsn
from cdc_core.postgres.catalog.leaves import Leaf
from cdc_core.postgres.catalog.tables import TableSize
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.copy.description import TableDescription
from cdc_core.snapshot.copy.plan import ALONE, Chunk
from cdc_core.snapshot.copy.resume import EarlierAttempts, Resumption
from cdc_core.snapshot.copy.statements import TableStatements
from cdc_core.snapshot.copy.table_plan import RangeLimits, TablePlan, plan_tables

NAME = TableId("public", "items")
TABLE = TableSchema(NAME, 1, ())
TAKEN = TakenSnapshot(7, Lsn(70), "10:12:")
LIMITS = RangeLimits(rows=1_000_000, parallel_jobs=1)


def described(**given: Any) -> TableDescription:
    facts = {"size": TableSize(400, 4_000_000), **given}
    names = {"own_statement", "row_filter", "leaves"} & facts.keys()
    statements = TableStatements(TABLE, ("id", "body"), **{name: facts.pop(name) for name in names})
    target: Any = None
    return TableDescription(statements, target, **facts)


def planned(description: TableDescription, earlier: EarlierAttempts | None = None) -> TablePlan:
    attempts = {} if earlier is None else {NAME: earlier}
    (plan,) = plan_tables([description], {NAME: TAKEN}, {NAME: 2}, attempts, LIMITS, lambda *_: None)
    assert (plan.taken, plan.schema_version) == (TAKEN, 2)
    return plan


def finished(first: int, end: int | None) -> FinishedRange:
    return FinishedRange(5, 50, "3:3:", "digest", first, end, ())


def test_pages_are_divided_evenly_and_recorded_only_if_the_table_may_be_resumed():
    plan = planned(described())
    assert [one.chunk for one in plan.ranges] == [None] * 4 and plan.rows_per_range == 1_000_000
    recorded = planned(described(), EarlierAttempts(marks="digest"))
    pages = [Chunk(NAME, 0, 100), Chunk(NAME, 100, 200), Chunk(NAME, 200, 300), Chunk(NAME, 300, None)]
    assert [one.chunk for one in recorded.ranges] == pages
    assert [one.select for one in recorded.ranges] == [one.select for one in plan.ranges]


def test_a_single_range_is_not_recorded_and_weighs_as_its_rows():
    plan = planned(described(size=TableSize(2, 20)), EarlierAttempts(marks="digest"))
    assert [one.chunk for one in plan.ranges] == [None] and plan.rows_per_range == 20


def test_an_earlier_attempt_leaves_its_gaps_and_the_rows_written_since():
    kept = Resumption("3:3:", 50, (finished(0, 100), finished(200, 300)))
    earlier = EarlierAttempts(kept.ranges, "digest", kept)
    plan = planned(described(), earlier)
    fresh, older = ([one for one in plan.ranges if one.is_fresh is is_fresh] for is_fresh in (True, False))
    assert [one.chunk for one in older] == [Chunk(NAME, 100, 200), Chunk(NAME, 300, None)]
    assert all("age(xmin) >" in one.select for one in older)
    assert [one.chunk for one in fresh] == [None] and "age(xmin) <=" in fresh[0].select
    assert list(plan.ranges) == [*fresh, *older]


def test_an_attempt_is_later_than_those_it_continues():
    assert EarlierAttempts().continued(TAKEN) == TAKEN
    late = FinishedRange(9, 50, "3:3:", "digest", 0, None, ())
    assert EarlierAttempts((late,)).continued(TAKEN) == TakenSnapshot(10, Lsn(70), "10:12:")
    kept = Resumption("3:3:", 50, (late,))
    assert EarlierAttempts((late,), "digest", kept).continued(TAKEN) == TakenSnapshot(
        10, Lsn(70), "10:12:", None, "3:3:"
    )


@pytest.mark.parametrize("given", [{"own_statement": "select * from view"}, {"size": TableSize(400, 4_000_000, False)}])
def test_what_cannot_be_divided_is_one_range(given):
    plan = planned(described(**given), EarlierAttempts(marks="digest"))
    assert [one.chunk for one in plan.ranges] == [None] and plan.rows_per_range == 4_000_000


def leaf(number: int, rows: int | None) -> Leaf:
    return Leaf(TableId("public", f"items_{number}"), number, "1", True, 100, rows)


def test_leaves_are_read_by_their_names_unless_one_range_is_enough():
    size = TableSize(0, 50)
    plan = planned(described(size=size, leaves=(leaf(1, 900_000), leaf(2, 800_000))))
    assert plan.reads_leaves and "items_1" in plan.ranges[0].select and "items_2" in plan.ranges[-1].select
    assert plan.description.estimate == 1_700_000
    assert plan.rows_per_range == max(1_700_000 // len(plan.ranges), ALONE)
    together = planned(described(size=size, leaves=(leaf(1, 10), leaf(2, None))))
    assert not together.reads_leaves and len(together.ranges) == 1 and "items_1" not in together.ranges[0].select
    assert together.description.estimate == 50 and together.rows_per_range == 10 + 100 * 50

"""Ranges of tables that several jobs read at a time: a table's start is told before any of its ranges is read."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_core.schema.table import TableId
from cdc_core.snapshot.copy import reading
from cdc_core.snapshot.copy.reading import read_ranges

JOBS, RANGES = 4, 40


class Read:
    """A table of ranges of a million rows each, so that each is a job."""

    def __init__(self, name: str) -> None:
        self.table = TableId("public", name)
        self.plan = SimpleNamespace(rows_per_range=1_000_000)
        self.started: float | None = None

    def orders(self) -> list[Any]:
        return [SimpleNamespace(table=SimpleNamespace(id=self.table), number=number) for number in range(RANGES)]


def test_no_range_is_read_before_the_start_of_its_table_was_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, TableId]] = []

    def read_batch(spark: Any, batches: Any, work: Any, doing: str) -> list[Any]:
        ((batch,),) = batches
        events.extend(("read", order.table.id) for order in batch)
        return [[SimpleNamespace(table=order.table.id) for order in batch]]

    def told(read: Any) -> None:
        time.sleep(0.05)  # long enough for the other jobs to come here, too
        events.append(("start", read.table))

    monkeypatch.setattr(reading, "run_tasks", read_batch)
    reads: Any = [Read("a"), Read("b")]
    found = [result for batch in read_ranges(None, reads, None, JOBS, told) for result in batch]  # type: ignore[arg-type]
    assert len(found) == 2 * RANGES
    for read in reads:
        of_table = [kind for kind, table in events if table == read.table]
        assert of_table == ["start", *["read"] * RANGES]

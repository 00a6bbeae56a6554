"""Opens comparisons of lake tables with their source, each of one table under one snapshot of the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from cdc_core.lake import DifferentRows, Records, SourceRead, TableComparison
from cdc_core.postgres import TableSize
from cdc_core.reconcile.pace import ReadPace
from cdc_core.reconcile.read_plan import StatementPlan
from cdc_core.reconcile.reports import TableResult
from cdc_core.reconcile.slot_changes import SlotChanges
from cdc_core.reconcile.view import SourceView
from cdc_core.schema import TableSchema
from cdc_core.spark import StartSession


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """The result of one table, and what a repair needs of it; None if it was not compared."""

    result: TableResult
    judged: DifferentRows | None = None


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Opens comparisons. The fields are common to all of them.

    ``limit``: how many keys of each kind are named. ``spark`` starts a session whose tasks read lake tables of at least
    ``spark_bytes``.
    """

    records: Records
    slot: SlotChanges
    plan: StatementPlan
    pace: ReadPace
    limit: int
    spark: StartSession
    spark_bytes: int

    @contextmanager
    def open(self, table: TableSchema, view: SourceView, size: TableSize | None = None) -> Iterator[TableComparison]:
        """Open the comparison with the present version of the lake table. ``size``: see ``StatementPlan.of``.

        Raises NotComparableError with the reason why the table is left out, or another CdcError.
        """
        target = self.records.target(table)
        statements = self.plan.of(target, size)
        waiting = partial(self.slot.upto, view.shown.lsn)
        with view.reader() as reader:
            copy = partial(reader.copy, table=table.id)
            read = SourceRead(statements, copy, view.shown, view.taken_us, self.pace.spend)
            yield TableComparison(self.records, target, read, waiting, self.limit, self.spark, self.spark_bytes)

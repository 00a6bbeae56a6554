"""A table at the start of its snapshot: its columns to read, and the lake table that the rows replace.

A description is made after the snapshot was opened and before any range is read. It is not changed afterwards; whether
it still describes the table is verified before the rows are committed (``unaltered``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.lake import LakePaths, ReadTarget, TypingPlan
from cdc_core.postgres import Source, TableSize
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.copy.plan import expected_rows
from cdc_core.snapshot.copy.settings import SnapshotSettings
from cdc_core.snapshot.copy.statements import TableStatements, has_tid_ranges, leaves_of
from cdc_core.snapshot.copy.table_results import TableResults

_OPENINGS = 8


@dataclass(frozen=True, slots=True, eq=False)
class TableDescription:
    """One table: its rows are read by ``statements`` into ``target``.

    ``size`` is the server's; its ``has_ctid``: ranges of pages can be read.
    """

    statements: TableStatements
    target: ReadTarget
    size: TableSize

    @property
    def table(self) -> TableSchema:
        """The table."""
        return self.statements.table

    @property
    def estimate(self) -> int | None:
        """The planner's estimate of the rows; None if the table was never analysed."""
        counts = [leaf.rows for leaf in self.statements.leaves if leaf.rows is not None]
        # Only a manual ANALYZE counts the rows of a partitioned table; autovacuum counts those of its leaves.
        leaves = len(self.statements.leaves)
        return sum(counts) if leaves and len(counts) == leaves else self.size.rows

    @property
    def expected_rows(self) -> int:
        """The estimated number of rows, from the pages if the table was never analysed."""
        if self.statements.leaves:
            return sum(expected_rows(leaf.pages, leaf.rows) for leaf in self.statements.leaves)
        return expected_rows(self.size.pages, self.size.rows)


class Describer:
    """Describes the tables of one connector's snapshots."""

    def __init__(self, source: Source, paths: LakePaths, plan: TypingPlan, settings: SnapshotSettings) -> None:
        self._source = source
        self._paths = paths
        self._plan = plan
        self._settings = settings

    def describe(self, tables: Sequence[TableSchema], results: TableResults) -> list[TableDescription]:
        """Return the tables' descriptions, in their order; lake tables that do not exist are created.

        A table whose error ``results`` records has none.
        """
        sizes = self._sizes(tables)
        with ConnectorThreadPool(_OPENINGS) as pool:
            made = pool.map(lambda t: results.attempt(t.id, lambda: self._described(t, sizes[t.id])), tables)
            return [description for description in made if description is not None]

    def _sizes(self, tables: Sequence[TableSchema]) -> dict[TableId, TableSize]:
        known_sizes = self._source.catalog.sizes(tables)
        sizes = {table.id: known_sizes.get(table.id, TableSize(0, None)) for table in tables}
        if not has_tid_ranges(self._source):
            return {name: dataclasses.replace(size, has_ctid=False) for name, size in sizes.items()}
        return sizes

    def _described(self, table: TableSchema, size: TableSize) -> TableDescription:
        settings, typer = self._settings, self._plan.typer(table)
        mode = settings.modes.of(table.id)
        target = ReadTarget.open(self._paths, settings.scope, typer, mode, settings.history_minutes)
        own = settings.options.statement_of(table.id)
        row_filter = self._source.catalog.row_filter(table) if own is None else ""
        leaves = leaves_of(self._source, table, row_filter) if own is None else ()
        statements = TableStatements(table, typer.read_columns, own, row_filter, leaves)
        return TableDescription(statements, target, size)

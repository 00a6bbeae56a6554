"""A table at the start of its snapshot: its columns to read, and the lake table that the rows replace.

A description is made after the snapshot was opened and before any range is read. It is not changed afterwards; whether
it still describes the table is verified before the rows are committed (``unaltered``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.lake import DeleteMode, LakePaths, TypingPlan, check_key, prepare
from cdc_core.lake.delete_columns import COLUMNS
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import lake_position
from cdc_core.postgres import Leaf, Source, TableSize, own_rows_sql, select_from, select_sql
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.copy.plan import Chunk, expected_rows
from cdc_core.snapshot.copy.settings import SnapshotSettings
from cdc_core.snapshot.copy.table_results import TableResults

_OPENINGS = 8
# The first server version with TID range scans: an older one reads the entire table for each range.
_TID_RANGES = 140_000


@dataclass(frozen=True, slots=True, eq=False)
class TableDescription:
    """One table: its ``columns`` are read into ``lake``, whose columns are those of ``schema``.

    ``in_force`` is the token of the lake's snapshot, None if it has none. ``keeps_gone_rows``: the lake keeps rows that
    the source no longer has, by its delete mode. ``size`` is the server's; its ``has_ctid``: ranges of pages can be
    read. ``own_statement`` is a SELECT defined by the user that returns the rows; ``row_filter`` is the publication's,
    "" for none: rows that it excludes have no events either, and would never be updated. ``leaves`` are the partitions
    that may be read by their own names instead of the table's; empty if it is read by its own.
    """

    table: TableSchema
    columns: tuple[str, ...]
    lake: DeltaTable
    schema: pa.Schema
    in_force: int | None
    keeps_gone_rows: bool
    size: TableSize
    own_statement: str | None = None
    row_filter: str = ""
    leaves: tuple[Leaf, ...] = ()

    @property
    def estimate(self) -> int | None:
        """The planner's estimate of the rows; None if the table was never analysed."""
        counts = [leaf.rows for leaf in self.leaves if leaf.rows is not None]
        # Only a manual ANALYZE counts the rows of a partitioned table; autovacuum counts those of its leaves.
        return sum(counts) if self.leaves and len(counts) == len(self.leaves) else self.size.rows

    @property
    def expected_rows(self) -> int:
        """The estimated number of rows, from the pages if the table was never analysed."""
        if self.leaves:
            return sum(expected_rows(leaf.pages, leaf.rows) for leaf in self.leaves)
        return expected_rows(self.size.pages, self.size.rows)

    def query(self, *conditions: str) -> str:
        """Return the SELECT of the rows for which all conditions hold; empty conditions are ignored."""
        if self.own_statement is not None:
            return select_from(self.own_statement, self.columns)
        row_filter = f"({self.row_filter})" if self.row_filter else ""
        return own_rows_sql(self.table, self.columns, " AND ".join(filter(None, [*conditions, row_filter])))

    def query_leaves(self, chunks: Sequence[Chunk]) -> str:
        """Return the SELECT of the rows of the leaves' pages, equal to a SELECT from the table.

        An attached leaf may have its columns in another order, so they are named. The row filter is written for the
        table, and may contain its name.
        """
        row_filter = f"({self.row_filter})" if self.row_filter else ""
        return " UNION ALL ".join(
            select_sql(
                chunk.table,
                self.columns,
                " AND ".join(filter(None, [chunk.predicate(), row_filter])),
                only=True,
                alias=self.table.id.table,
            )
            for chunk in chunks
        )


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
        with ThreadPoolExecutor(_OPENINGS) as pool:
            made = pool.map(lambda t: results.attempt(t.id, lambda: self._described(t, sizes[t.id])), tables)
            return [description for description in made if description is not None]

    def _sizes(self, tables: Sequence[TableSchema]) -> dict[TableId, TableSize]:
        known_sizes = self._source.catalog.sizes(tables)
        sizes = {table.id: known_sizes.get(table.id, TableSize(0, None)) for table in tables}
        if self._source.server_version < _TID_RANGES:
            return {name: dataclasses.replace(size, has_ctid=False) for name, size in sizes.items()}
        return sizes

    def _described(self, table: TableSchema, size: TableSize) -> TableDescription:
        mode = self._settings.modes.of(table.id)
        check_key(table, mode)
        typer = self._plan.typer(table)
        schema = pa.schema([*typer.read_schema, *COLUMNS[mode]])
        lake = prepare(self._paths.lake(table.id), schema, table.id, self._settings.history_minutes)
        own = self._settings.options.statement_of(table.id)
        row_filter = self._source.catalog.row_filter(table) if own is None else ""
        return TableDescription(
            table,
            typer.read_columns,
            lake,
            schema,
            lake_position(lake, self._settings.scope, table.id).token,
            mode is not DeleteMode.HARD,
            size,
            own,
            row_filter,
            self._leaves(table, row_filter) if own is None else (),
        )

    def _leaves(self, table: TableSchema, row_filter: str) -> tuple[Leaf, ...]:
        leaves = self._source.catalog.leaves(table, is_filtered=bool(row_filter))
        if self._source.server_version < _TID_RANGES:
            return tuple(dataclasses.replace(leaf, has_ctid=False) for leaf in leaves)
        return leaves

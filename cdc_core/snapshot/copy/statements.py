"""The SELECTs of a table's rows: by pages, by pages of its partitions, or by a statement of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_core.postgres import Leaf, Source, own_rows_sql, select_from, select_sql
from cdc_core.schema import TableSchema
from cdc_core.snapshot.copy.plan import Chunk

# The first server version with TID range scans: an older one reads the entire table for each range.
_TID_RANGES = 140_000


@dataclass(frozen=True, slots=True, eq=False)
class TableStatements:
    """SELECTs of ``columns`` of a table.

    ``own_statement`` is a SELECT defined by the user that returns the rows; ``row_filter`` is the publication's, "" for
    none: rows that it excludes have no events either, and would never be updated. ``leaves`` are the partitions that
    may be read by their own names instead of the table's; empty if it is read by its own.
    """

    table: TableSchema
    columns: tuple[str, ...]
    own_statement: str | None = None
    row_filter: str = ""
    leaves: tuple[Leaf, ...] = ()

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


def has_tid_ranges(source: Source) -> bool:
    """Whether the server reads only the pages of a range."""
    return source.server_version >= _TID_RANGES


def leaves_of(source: Source, table: TableSchema, row_filter: str) -> tuple[Leaf, ...]:
    """Return the partitions that may be read by their own names; ``row_filter``: the publication's, "" for none."""
    leaves = source.catalog.leaves(table, is_filtered=bool(row_filter))
    return leaves if has_tid_ranges(source) else tuple(replace(leaf, has_ctid=False) for leaf in leaves)

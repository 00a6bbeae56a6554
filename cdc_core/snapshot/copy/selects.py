"""How the rows of a table are read for a comparison: all of them in ranges of pages, or some by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_core.postgres import Source, TableSize, keys_sql
from cdc_core.schema import Key, TableSchema
from cdc_core.snapshot.copy.plan import expected_rows, plan_chunks, plan_leaves
from cdc_core.snapshot.copy.statements import TableStatements, has_tid_ranges, leaves_of
from cdc_core.snapshot.incremental.chunk import key_columns

# At least so many rows are expected in so many pages.
_LEAST_ROWS, _OF_PAGES = 250_000, 16_384
_KEYS = 500


@dataclass(frozen=True, slots=True)
class TableSelects:
    """The SELECTs of ``columns`` of a table: all of its rows in ``ranges``, or those with given keys.

    ``condition`` is the publication's row filter, "" for none. ``can_hash``: each range is a bounded number of pages,
    so few that the server can return the hashes of its rows as one value.
    """

    table: TableSchema
    columns: tuple[str, ...]
    ranges: tuple[str, ...]
    condition: str = ""
    can_hash: bool = False

    @classmethod
    def of(
        cls,
        source: Source,
        table: TableSchema,
        columns: tuple[str, ...],
        size: TableSize | None,
        most_rows: int,
    ) -> TableSelects:
        """Return the SELECTs with ranges of about ``most_rows`` rows.

        ``size`` is the server's; None: ranges need not be of equal size. Raises SourceError or TransientError.
        """
        row_filter = source.catalog.row_filter(table)
        leaves = leaves_of(source, table, row_filter) if has_tid_ranges(source) else ()
        statements = TableStatements(table, columns, None, row_filter, leaves)
        sized = size or TableSize(0, None)
        ranges, has_pages = _ranges(statements, sized, most_rows, has_tids=has_tid_ranges(source))
        return cls(table, columns, ranges, row_filter, has_pages)

    def of_keys(self, keys: Sequence[Key]) -> list[str]:
        """Return the statements for the rows with the keys."""
        only = self.table.fingerprint is not None and not self.table.is_partitioned
        key = key_columns(self.table)
        condition = f"({self.condition})" if self.condition else ""
        return [
            keys_sql(self.table.id, self.columns, key, keys[at : at + _KEYS], condition=condition, only=only)
            for at in range(0, len(keys), _KEYS)
        ]


def _ranges(statements: TableStatements, size: TableSize, most: int, *, has_tids: bool) -> tuple[tuple[str, ...], bool]:
    """Return the statements that read all rows, and whether each reads a bounded number of pages."""
    leaves = statements.leaves
    if leaves:
        ranges = plan_leaves([replace(leaf, rows=_at_least(leaf.rows, leaf.pages)) for leaf in leaves], most)
        has_pages = all(leaf.has_ctid for leaf in leaves)
        many = tuple(statements.query_leaves(chunks) for chunks in ranges)
        return many if len(ranges) > 1 else (statements.query(),), has_pages
    if not size.has_ctid or not has_tids:
        return (statements.query(),), False
    chunks = plan_chunks(statements.table.id, size.pages, _at_least(size.rows, size.pages), most)
    return tuple(statements.query(chunk.predicate()) for chunk in chunks), True


def _at_least(rows: int | None, pages: int) -> int:
    """Return the expected number of rows; of an estimate from when there were fewer pages, some of the present ones."""
    return max(expected_rows(pages, rows), pages * _LEAST_ROWS // _OF_PAGES)

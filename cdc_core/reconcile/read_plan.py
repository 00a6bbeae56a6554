"""How the source's rows of a table are read for a comparison: all of them in ranges of pages, or some by their keys.

The statements are those of a snapshot of the table (``snapshot/copy``), in smaller ranges: a range that has a row which
differs is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_core.lake import Compared, RowTyper, Target
from cdc_core.postgres import Source, TableSize, keys_sql
from cdc_core.schema import Key, PgType, TableSchema, TypeKind, row_key
from cdc_core.snapshot import TableDescription, expected_rows, key_columns, plan_chunks, plan_leaves

SAMPLE_ROWS = 10_000
"""The rows of a range of which a sample is taken."""

_ROWS_PER_RANGE = 250_000
_PAGES_PER_RANGE = 16_384
_TID_RANGES = 140_000
_KEYS = 500
_WITH_TEXT = {
    *("bool", "int2", "int4", "int8", "oid", "numeric", "float4", "float8", "text", "varchar", "bpchar", "name"),
    *("citext", "uuid", "date", "timestamp", "timestamptz", "bytea", "inet", "cidr", "macaddr", "macaddr8", "ltree"),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The statements that read ``columns`` of a table: all of its rows in ``ranges``, or those with given keys.

    ``condition`` is the publication's row filter, "" for none. ``can_hash``: the rows of a range are so few that the
    server can return their hashes as one value.
    """

    table: TableSchema
    columns: tuple[str, ...]
    ranges: tuple[str, ...]
    condition: str = ""
    can_hash: bool = False

    def of_keys(self, keys: Sequence[Key]) -> list[str]:
        """Return the statements for the rows with the keys."""
        only = self.table.fingerprint is not None and not self.table.fingerprint.is_partitioned
        key = key_columns(self.table)
        condition = f"({self.condition})" if self.condition else ""
        return [
            keys_sql(self.table.id, self.columns, key, keys[at : at + _KEYS], condition=condition, only=only)
            for at in range(0, len(keys), _KEYS)
        ]


class StatementPlan:
    """Plans how tables are read. ``rows_per_second`` is the bound of the comparison, 0 for none.

    ``is_sample``: only some ranges of a table are read.
    """

    def __init__(self, source: Source, rows_per_second: int, *, is_sample: bool) -> None:
        most = SAMPLE_ROWS if is_sample else _ROWS_PER_RANGE
        self._source = source
        self._most_rows = min(most, max(SAMPLE_ROWS, rows_per_second)) if rows_per_second else most

    def of(self, target: Target, size: TableSize | None = None) -> Reading:
        """Return how a table is read. ``size`` is the server's; None: some rows are read by their keys, so ranges need
        not be of equal size. Raises SourceError or TransientError.
        """
        table, catalog = target.table, self._source.catalog
        row_filter = catalog.row_filter(table)
        leaves = catalog.leaves(table, is_filtered=bool(row_filter))
        if self._source.server_version < _TID_RANGES:
            leaves = ()
        described = TableDescription(
            table,
            target.typer.read_columns,
            target.lake,
            target.compared.schema,
            target.version.place.token,
            False,
            size or TableSize(0, None),
            None,
            row_filter,
            leaves,
        )
        ranges, has_pages = self._ranges(described)
        return Reading(table, target.typer.read_columns, tuple(ranges), row_filter, has_pages)

    def _ranges(self, described: TableDescription) -> tuple[list[str], bool]:
        """Return the statements that read all rows, and whether each reads a bounded number of pages."""
        leaves, size, most = described.leaves, described.size, self._most_rows
        if leaves:
            ranges = plan_leaves([replace(leaf, rows=_at_least(leaf.rows, leaf.pages)) for leaf in leaves], most)
            has_pages = all(leaf.has_ctid for leaf in leaves)
            many = [described.query_leaves(chunks) for chunks in ranges]
            return many if len(ranges) > 1 else [described.query()], has_pages
        if not size.has_ctid or self._source.server_version < _TID_RANGES:
            return [described.query()], False
        chunks = plan_chunks(described.table.id, size.pages, _at_least(size.rows, size.pages), most)
        return [described.query(chunk.predicate()) for chunk in chunks], True


def has_texts(typer: RowTyper, compared: Compared) -> bool:
    """Whether the source's rows can be found by the texts of their keys: not if those are masked, or have no text."""
    if compared.key is None:
        return False
    masked = {plan.name for plan in typer.plans if plan.mapper is not None}
    names = row_key(typer.table)
    return not masked & set(names) and all(_has_text(typer.table.column(name).type) for name in names)


def _has_text(kind: PgType) -> bool:
    """Whether ``key_texts`` of the type's values are texts that PostgreSQL reads as them."""
    if kind.kind in (TypeKind.DOMAIN, TypeKind.ARRAY):
        return kind.inner is not None and _has_text(kind.inner)
    return kind.kind is TypeKind.ENUM or kind.name in _WITH_TEXT


def _at_least(rows: int | None, pages: int) -> int:
    """Return the expected number of rows; of an estimate from when there were fewer pages, some of the present ones."""
    return max(expected_rows(pages, rows), pages * _ROWS_PER_RANGE // _PAGES_PER_RANGE)

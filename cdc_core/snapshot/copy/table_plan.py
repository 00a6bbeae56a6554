"""The plan of each table's snapshot: which ranges are read by which SELECT, decided before any of them is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cdc_core.lake import TakenSnapshot
from cdc_core.postgres import KeyBounds
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.copy.description import TableDescription
from cdc_core.snapshot.copy.key_ranges import key_column, key_conditions
from cdc_core.snapshot.copy.plan import ALONE, Chunk, plan_chunks, plan_gap, plan_leaves, rows_per_range
from cdc_core.snapshot.copy.resume import EarlierAttempts, Resumption, written_before, written_since

# Ranges of rows written since the first attempt are larger by this factor, because few of their rows match.
_FRESH_FACTOR = 4

KeyBoundsOf = Callable[[TableSchema, str], KeyBounds | None]


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """The rows that ``select`` returns. ``chunk``: its pages, if it is to be recorded after it was read, else None.

    ``is_fresh``: the range has rows written since the first attempt, whose keys are to be removed from its files.
    """

    select: str
    chunk: Chunk | None = None
    is_fresh: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TablePlan:
    """How a table is read, in ``ranges``, as the snapshot ``taken`` of the schema version ``schema_version``.

    ``earlier`` are the attempts that this one continues. ``reads_leaves``: its partitions are read by their own names.
    """

    description: TableDescription
    taken: TakenSnapshot
    schema_version: int
    ranges: tuple[PlannedRange, ...]
    earlier: EarlierAttempts
    reads_leaves: bool = False

    @property
    def table(self) -> TableSchema:
        """The table."""
        return self.description.table

    @property
    def rows_per_range(self) -> int:
        """The estimated rows of each range: its weight when ranges are divided into tasks."""
        count, rows = len(self.ranges), self.description.expected_rows
        return rows if count == 1 else max(rows // count, ALONE)


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """Ranges of at most ``rows`` rows, ``parallel_jobs`` at a time."""

    rows: int
    parallel_jobs: int


def plan_tables(
    described: Sequence[TableDescription],
    taken: Mapping[TableId, TakenSnapshot],
    schema_versions: Mapping[TableId, int],
    earlier: Mapping[TableId, EarlierAttempts],
    limits: RangeLimits,
    key_bounds: KeyBoundsOf,
) -> list[TablePlan]:
    """Return one plan per table. ``key_bounds`` queries the bounds of a key (for tables without ranges of pages)."""
    most = rows_per_range([description.expected_rows for description in described], limits.rows, limits.parallel_jobs)
    plans = []
    for description in described:
        name = description.table.id
        attempts = earlier.get(name, EarlierAttempts())
        ranges = _ranges_of_leaves(description, most)
        plans.append(
            TablePlan(
                description,
                taken[name],
                schema_versions[name],
                tuple(ranges or _ranges(description, attempts, most, key_bounds)),
                attempts,
                reads_leaves=bool(ranges),
            )
        )
    return plans


def _ranges_of_leaves(description: TableDescription, most: int) -> list[PlannedRange]:
    """Return the ranges of the leaves' pages; none if the table has no leaves, or is read whole by its own name."""
    ranges = plan_leaves(description.statements.leaves, most)
    return [] if len(ranges) <= 1 else [PlannedRange(description.statements.query_leaves(chunks)) for chunks in ranges]


def _ranges(
    description: TableDescription, earlier: EarlierAttempts, most: int, key_bounds: KeyBoundsOf
) -> list[PlannedRange]:
    """Return ranges of pages, or of keys if page ranges cannot be read; a single one for a user's statement."""
    if description.statements.own_statement is not None or description.statements.leaves:
        return [PlannedRange(description.statements.query())]
    if not description.size.has_ctid:
        return [
            PlannedRange(description.statements.query(condition))
            for condition in _key_conditions(description, most, key_bounds)
        ]
    whole = plan_chunks(description.table.id, description.size.pages, description.size.rows, most)
    if earlier.kept is not None:
        return _missing_ranges(description, earlier.kept, most, len(whole))
    is_recorded = earlier.marks is not None and len(whole) > 1
    return [
        PlannedRange(description.statements.query(chunk.predicate()), chunk if is_recorded else None) for chunk in whole
    ]


def _missing_ranges(description: TableDescription, earlier: Resumption, most: int, count: int) -> list[PlannedRange]:
    """Return the ranges that continue earlier attempts: rows written since in all pages, older ones in the gaps."""
    since, pages, query = earlier.since, description.size.pages, description.statements.query
    fresh = plan_chunks(description.table.id, pages, description.size.rows, _FRESH_FACTOR * most)
    gaps = (plan_gap(description.table.id, gap, pages, -(-pages // count)) for gap in earlier.gaps())
    return [
        *(PlannedRange(query(chunk.predicate(), written_since(since)), is_fresh=True) for chunk in fresh),
        *(PlannedRange(query(c.predicate(), written_before(since)), c) for chunks in gaps for c in chunks),
    ]


def _key_conditions(description: TableDescription, most: int, key_bounds: KeyBoundsOf) -> list[str]:
    """Return the key ranges of a table whose page ranges cannot be read; a single one if its key is unsuitable."""
    rows = description.expected_rows
    column = key_column(description.table) if rows > most else None
    bounds = key_bounds(description.table, column) if column is not None else None
    return [""] if column is None or bounds is None else key_conditions(column, bounds, rows, most)

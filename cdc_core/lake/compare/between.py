"""The changes between the source's snapshot and a lake table's version (``judge``): from the changelog and the slot.

While a run streams, the changelogs hold every change up to the slot's confirmed position; a comparison that has found
rows that differ waits until that has passed the snapshot's LSN. While none streams, what the changelogs lack is read
from the slot, which is not moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.decode import SortedSegment, decode_rows
from cdc_core.errors import NotComparableError
from cdc_core.lake.compare.judge import Between
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.names import RESCUED
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import ChangelogPosition, LakePosition, changelog_position
from cdc_core.lake.reduce.key_changes import as_inserts, key_changes, without_refused
from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.lake.rows.survey import hidden, in_order
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.change_columns import SCHEMA_VERSION, schema_versions_of, viewed
from cdc_core.lake.stores.changelog import read_changes, read_positions
from cdc_core.lake.stores.quarantine import refused_among, waiting_rows
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId, TableSchema, same_columns, same_layout
from cdc_core.visibility import Visibility


@dataclass(frozen=True, slots=True)
class ShownBySource:
    """The source's snapshot: the text ``visible`` of its pg_snapshot, the end of WAL ``lsn`` after it was taken.

    ``floor`` is an LSN up to which it shows every commit, 0 if this is unknown.
    """

    visible: str
    lsn: Lsn
    floor: int

    @classmethod
    def of(cls, visible: str, lsn: Lsn, bound: tuple[Lsn, int]) -> ShownBySource:
        """Return what a snapshot shows; ``bound`` was taken before it (``ChunkConnection.bound``)."""
        end, before = bound
        return cls(visible, lsn, int(end) if Visibility.parse(visible).shows_all_before(before) else 0)


@dataclass(frozen=True, slots=True)
class LakeVersion:
    """The lake table's version: its position, and the pg_snapshot ``visible`` that its content began with, if known.

    ``read_at`` is that snapshot's LSN, 0 if it is not known.
    """

    place: LakePosition
    schema_version: int
    visible: str | None = None
    read_at: int = 0


@dataclass(slots=True)
class ChangesInSlot:
    """Changes that are in the slot only. ``changes`` are change rows by table, ``altered``: of which columns differ."""

    changes: dict[TableId, list[pa.Table]] = field(default_factory=dict)
    altered: set[TableId] = field(default_factory=set)

    def add(self, segment: SortedSegment, plan: TypingPlan, tables: Mapping[TableId, TableSchema]) -> None:
        """Add the changes of a segment to the compared ``tables``, which are described as they are now."""
        for run in segment.runs:
            table = tables.get(run.table.id)
            if table is None:
                continue
            if same_layout(run.table, table) and same_columns(run.table, table):
                rows = plan.typer(run.table).changes(run.raw, decode_rows(run.raw, run.relation))
                self.changes.setdefault(table.id, []).append(pa.Table.from_batches([rows]))
            else:
                self.altered.add(table.id)
        for cut in segment.truncates:
            for table in cut.tables:
                if table.id in tables:
                    rows = plan.typer(table).truncates(cut.row())
                    self.changes.setdefault(table.id, []).append(pa.Table.from_batches([rows]))


def between(
    typer: RowTyper,
    changelog: DeltaTable | None,
    paths: LakePaths,
    scope: str,
    shown: ShownBySource,
    lake: LakeVersion,
    waiting: ChangesInSlot,
) -> Between:
    """Return the changes between a snapshot of the source and a version of a lake table.

    ``typer`` is of the table as both have it now; ``changelog`` is read at its newest version. Raises
    NotComparableError if some changes were written with other columns.
    """
    table = typer.table.id
    if table in waiting.altered:
        raise NotComparableError("it was altered, and changes since then are not merged yet")
    if changelog is None:
        changelog = DeltaTable.open(paths.changelog(table))
    else:
        changelog.refresh()
    position = changelog_position(changelog, scope, table)
    parts = [_in_columns(_notstored_changes(rows, position), typer) for rows in waiting.changes.get(table, ())]
    refused = typer.change_schema.empty_table()
    quarantine = DeltaTable.open(paths.quarantine(table))
    if changelog is not None:
        rows, low = EpochRows.of(changelog, scope), min(shown.floor, lake.place.merged)
        may_have = partial(_may_lie_between, rows=rows, shown=shown, lake=lake)
        stored = read_changes(rows, low, 2**62, lambda changes: _needed(changes, shown, lake), may_have)
        parts = [stored_changes(stored, typer, lake.schema_version), *parts]
        if quarantine is not None:
            refused = stored_changes(
                read_positions(rows, waiting_rows(quarantine, lake.place)), typer, lake.schema_version
            )
    every = in_order(pa.concat_tables([typer.change_schema.empty_table(), *parts]).combine_chunks())
    if quarantine is not None:
        lost = refused_among(every, quarantine, lake.place.merge_token) & _is_in_lake(every, lake)
        key, schema = typer.table.row_key, pa.schema(list(typer.row_type))
        every = without_refused(every, lost, key, schema)
        refused = as_inserts(refused, key_changes(refused, key, schema))
    in_lake, seen = _is_in_lake(every, lake), ~hidden(every, shown.visible)
    ahead, behind = in_lake & ~seen, ~in_lake & seen
    return Between(every.filter(pa.array(ahead)), every.filter(pa.array(behind)), refused)


def stored_changes(rows: pa.Table, typer: RowTyper, schema_version: int) -> pa.Table:
    """Return rows of a changelog in the typer's columns. Raises NotComparableError for rows of another version."""
    if not rows.num_rows:
        # A column that was added or renamed since the last change is not in the changelog.
        return typer.change_schema.empty_table()
    if set(np.unique(schema_versions_of(rows)).tolist()) - {schema_version}:
        raise NotComparableError("it was altered, and changes from before that are not in both the lake and the source")
    if SCHEMA_VERSION in rows.schema.names:
        rows = viewed(rows, schema_version, [column.name for column in typer.row_type if column.name != RESCUED])
    return _in_columns(rows, typer)


def _in_columns(rows: pa.Table, typer: RowTyper) -> pa.Table:
    return conform(rows, typer.change_schema)


def _may_lie_between(file: DataFile, rows: EpochRows, shown: ShownBySource, lake: LakeVersion) -> bool:
    """Whether a changelog's file has a change that only one side shows, by two of its columns.

    Beside a transaction that stays open there is no ``ShownBySource.floor``, and the whole changelog would be read.
    """
    end = file.maximum.get("__commit_lsn")
    if end is None or end > lake.place.merged:
        return True
    return bool(_needed(rows.read(file, ["__xid", "__commit_lsn"]), shown, lake).num_rows)


def _needed(rows: pa.Table, shown: ShownBySource, lake: LakeVersion) -> pa.Table:
    mine = _is_in_lake(rows, lake) == hidden(rows, shown.visible)
    return rows if mine.all() else rows.filter(pa.array(mine))


def _is_in_lake(rows: pa.Table, lake: LakeVersion) -> Bools:
    """Whether a lake table's content includes changes, if no rule refused them. Shape: table[N] -> bool[N]"""
    included = rows.column("__commit_lsn").to_numpy() <= lake.place.merged
    if lake.visible is not None:
        included = included | ~hidden(rows, lake.visible)
    return np.asarray(included)


def _notstored_changes(rows: pa.Table, position: ChangelogPosition | None) -> pa.Table:
    if position is None:
        return rows
    known = position.covers(rows.column("__commit_lsn").to_numpy(), rows.column("__tx_index").to_numpy())
    return rows.filter(pa.array(~known))

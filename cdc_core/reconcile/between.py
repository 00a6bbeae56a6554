"""The changes between the source's snapshot and a lake table's version (``judge``): from the changelog and the slot.

While a run streams, the changelogs hold every change up to the slot's confirmed position; a comparison that has found
rows that differ waits until that has passed the snapshot's LSN. While none streams, what the changelogs lack is read
from the slot, which is not moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from cdc_core.decode.pgoutput.classify import sort_segment
from cdc_core.decode.pgoutput.stream_state import SortedSegment, StreamState
from cdc_core.decode.pgoutput.tuples import decode_rows
from cdc_core.decode.plugin import Translator
from cdc_core.engine.reading.batch_builder import truncate_row
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.schema.steps import same_columns, same_layout
from cdc_core.errors import NotComparableError, SourceError
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.names import RESCUED
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import ChangelogPosition, LakePosition, changelog_position
from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.lake.rows.survey import hidden, in_order
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.change_columns import SCHEMA_VERSION, schema_versions_of, viewed
from cdc_core.lake.stores.changelog import read_changes, read_positions
from cdc_core.lake.stores.quarantine import refused_among, waiting_rows
from cdc_core.lsn import Lsn
from cdc_core.postgres.connect import Connection, connect
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.replication.peek import peek
from cdc_core.postgres.server import sendable_end
from cdc_core.reconcile.judge import Between
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.visibility import Visibility

_POLL_SECONDS = 0.05
_FLUSH_SECONDS = 10.0


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


class SlotChanges:
    """The changes that the slot had not confirmed when they were asked for first. For one thread.

    ``translator`` turns the plug-in's messages into pgoutput's, ``registry`` describes the relations in them.
    ``tables`` are the compared tables, as they are now.
    """

    def __init__(
        self,
        options: PostgresOptions,
        registry: Callable[[], TableRegistry],
        translator: Callable[[], Translator],
        plan: TypingPlan,
        tables: Sequence[TableSchema],
        wait_seconds: float,
    ) -> None:
        self._options = options
        self._registry = registry
        self._translator = translator
        self._plan = plan
        self._tables = {table.id: table for table in tables}
        self._wait_seconds = wait_seconds
        self._known: tuple[Lsn, ChangesInSlot] | None = None

    def upto(self, lsn: Lsn) -> ChangesInSlot:
        """Return the changes up to an LSN that the changelogs may lack; none if a run has stored all of them.

        Raises NotComparableError if a running stream does not get there in time, SourceError without a slot.
        """
        if self._known is None or self._known[0] < lsn:
            with connect(self._options) as connection:
                self._known = lsn, self._found(connection, lsn)
        return self._known[1]

    def position(self) -> tuple[Lsn, bool]:
        """Return the LSN up to which the changelogs have every change, and whether a run streams."""
        with connect(self._options) as connection:
            slot = slots.inspect(connection, self._options.slot_name)
            return slot.confirmed_lsn or Lsn(0), bool(slot.active)

    def _found(self, connection: Connection, lsn: Lsn) -> ChangesInSlot:
        deadline = time.monotonic() + self._wait_seconds
        while True:
            slot = slots.inspect(connection, self._options.slot_name)
            if not slot.exists or slot.confirmed_lsn is None:
                raise SourceError(
                    f"Replication slot {self._options.slot_name} does not exist, so it is not known which changes the "
                    "lake lacks.",
                    "Take a new snapshot of the tables.",
                )
            if slot.confirmed_lsn >= lsn:
                return ChangesInSlot()
            if not slot.active:
                return self._peeked(connection, lsn)
            if time.monotonic() >= deadline:
                raise NotComparableError(
                    f"the running stream has not stored the changes up to {lsn} within {self._wait_seconds:g} s"
                )
            time.sleep(_POLL_SECONDS)

    def _peeked(self, connection: Connection, lsn: Lsn) -> ChangesInSlot:
        # A transaction that was committed asynchronously is visible before it is on disk, and decoded only then.
        deadline = time.monotonic() + _FLUSH_SECONDS
        while sendable_end(connection) < lsn and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        waiting, state, registry = ChangesInSlot(), StreamState(), self._registry()
        with closing(self._translator()) as translator:
            for segment in peek(connection, self._options, lsn):
                for each in translator.feed(segment):
                    self._note(waiting, sort_segment(each, state, registry.describe))
        return waiting

    def _note(self, waiting: ChangesInSlot, found: SortedSegment) -> None:
        for run in found.runs:
            table = self._tables.get(run.table.id)
            if table is None:
                continue
            if not (same_layout(run.table, table) and same_columns(run.table, table)):
                waiting.altered.add(table.id)
                continue
            typer = self._plan.typer(run.table)
            rows = typer.changes(run.raw, decode_rows(run.raw, run.relation))
            waiting.changes.setdefault(table.id, []).append(pa.Table.from_batches([rows]))
        for cut in found.truncates:
            for table in cut.tables:
                if table.id in self._tables:
                    rows = self._plan.typer(table).truncates(truncate_row(cut))
                    waiting.changes.setdefault(table.id, []).append(pa.Table.from_batches([rows]))


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
        held = read_changes(rows, low, 2**62, lambda found: _needed(found, shown, lake), may_have)
        parts = [stored_changes(held, typer, lake.schema_version), *parts]
        if quarantine is not None:
            refused = stored_changes(
                read_positions(rows, waiting_rows(quarantine, lake.place)), typer, lake.schema_version
            )
    every = in_order(pa.concat_tables([typer.change_schema.empty_table(), *parts]).combine_chunks())
    in_lake, seen = _is_in_lake(every, lake), ~hidden(every, shown.visible)
    lost = np.zeros(every.num_rows, dtype=bool)
    if quarantine is not None:
        lost = refused_among(every, quarantine, lake.place.merge_token)
    ahead, behind = in_lake & ~seen & ~lost, ~in_lake & seen
    return Between(every.filter(pa.array(ahead)), every.filter(pa.array(behind)), refused)


def stored_changes(rows: pa.Table, typer: RowTyper, schema_version: int) -> pa.Table:
    """Return rows of a changelog in the typer's columns. Raises NotComparableError for rows of another version."""
    if not rows.num_rows:
        # A column that was added or renamed since the last change is not in the changelog.
        return typer.change_schema.empty_table()
    if set(np.unique(schema_versions_of(rows)).tolist()) - {schema_version}:
        raise NotComparableError("it was altered, and changes from before that are not in both the lake and the source")
    if SCHEMA_VERSION in rows.schema.names:
        rows = viewed(rows, schema_version, [each.name for each in typer.row_type if each.name != RESCUED])
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


def _is_in_lake(rows: pa.Table, lake: LakeVersion) -> np.ndarray:
    """Whether a lake table's content includes changes, if no rule refused them. Shape: table[N] -> bool[N]"""
    found = rows.column("__commit_lsn").to_numpy() <= lake.place.merged
    if lake.visible is not None:
        found = found | ~hidden(rows, lake.visible)
    return np.asarray(found)


def _notstored_changes(rows: pa.Table, position: ChangelogPosition | None) -> pa.Table:
    if position is None:
        return rows
    known = position.covers(rows.column("__commit_lsn").to_numpy(), rows.column("__tx_index").to_numpy())
    return rows.filter(pa.array(~known))

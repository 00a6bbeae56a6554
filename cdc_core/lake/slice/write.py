"""Writes a slice into its lake table, in one Delta commit with the LSN reached.

A task rewrites the files that contain changed rows; where they are large it marks the rows in deletion vectors and
appends their new states (``lake/apply/ways``, docs/decisions/0017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.errors import CommitConflictError
from cdc_core.lake.apply.change_feed import change_files
from cdc_core.lake.apply.changes import Changes, apply, prepare
from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.apply.truncated import EndedRows
from cdc_core.lake.apply.ways import MARK_BYTES, Ways, uses_index
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.deletion_vectors import united
from cdc_core.lake.delta.row_copies import copies_in
from cdc_core.lake.delta.row_count import held_rows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.index.key_positions import KeyPositions, positions_in
from cdc_core.lake.maintenance.compaction import moved_at_once
from cdc_core.lake.options import LakeOptions
from cdc_core.lake.positions import check_epoch, chunk_writes_app, merge_app
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.schema.features import FeaturePolicy
from cdc_core.lake.slice.absent_rows import Expectation
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.outcome import Applied
from cdc_core.lake.slice.shares import JoinedShares, marks_by_file
from cdc_core.lsn import Lsn

# A slice that needs more time for indexes waits for them, so that the other tables of its round need not.
_INDEX_SECONDS = 0.5
# Rows that a change feed need not read again, which a task keeps until it has committed them.
_HELD_BYTES = 8 << 20
# As ``Ways.mark_above``: less than any size.
_ALWAYS = -1


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The effect of a part of a slice, the ``files`` with its rows, and those of its change data feed (``changes``)."""

    effect: Rewrite
    files: tuple[DataFile, ...]
    changes: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class LakeWriter:
    """Writes slices into lake tables; picklable. ``scratch``: a folder for parts of slices, made where a task needs it.

    ``index``: a folder of this machine with indexes of keys; empty to read the keys instead.
    """

    rewrite_max_bytes: int
    history_minutes: int
    scratch: str
    features: FeaturePolicy = field(default_factory=FeaturePolicy)
    owner: Owner = field(default_factory=Owner)
    part_max_bytes: int = 64 << 20
    index: str = ""
    index_max_bytes: int = 1 << 30

    @classmethod
    def of(cls, options: LakeOptions, scratch: Path, owner: Owner, index: Path) -> LakeWriter:
        """Create the writer from the options; ``owner`` is the run that ``scratch`` belongs to.

        ``index``: the folder for indexes of keys, on each machine that merges.
        """
        return cls(
            options.merge_rewrite_max_bytes,
            options.lake_history_minutes,
            str(scratch),
            FeaturePolicy.of(options),
            owner,
            options.merge_part_max_bytes,
            str(index),
            options.merge_index_max_bytes,
        )

    def write(
        self,
        lake: DeltaTable,
        merge: Merge,
        rows: pa.Table,
        scope: str,
        expected: Expectation | None,
        left_out: pa.Table | None = None,
    ) -> Applied:
        """Merge change rows into the table in one commit.

        ``expected``: what the changes must find, beside what ``left_out`` changes would have written; None for changes
        of wal2lake's own, which need not find anything.
        Raises CommitConflictError if another commit was made first, TableError if the changed rows cannot be
        identified or are absent, IndexesMissingError if that needs indexes which are to be made beside the rounds.
        """
        changes = prepare(rows, merge.table, lake.schema, merge.snapshot.visible)
        effect = self._effect(lake, changes, _INDEX_SECONDS)
        if expected is not None:
            expected.require(merge, [expected.absence(merge, lake.schema, effect.absent, left_out)])
        return self._commit_effect(lake, merge, changes, effect, scope, failpoints.DURING_MERGE)

    def write_chunks(self, lake: DeltaTable, merge: Merge, changes: Changes, scope: str) -> Applied:
        """As ``write``, for rows of an incremental snapshot, into a table that is merged up to ``merge.to_lsn``."""
        app = chunk_writes_app(scope, merge.table.id)
        landing = {app: (lake.txn(app) or 0) + 1}
        effect = self._effect(lake, changes, math.inf)
        return self._commit_effect(lake, merge, changes, effect, scope, failpoints.DURING_CHUNK_APPLY, landing)

    def _effect(self, lake: DeltaTable, changes: Changes, index_seconds: float) -> Rewrite:
        self._use_copies(lake)
        return apply(lake, changes, ways=replace(self._ways(lake), index_seconds=index_seconds))

    def _commit_effect(
        self,
        lake: DeltaTable,
        merge: Merge,
        changes: Changes,
        effect: Rewrite,
        scope: str,
        failpoint: str,
        more: Mapping[str, int] | None = None,
    ) -> Applied:
        """Write the effect of changes, and commit it. ``more`` are further positions of the commit."""
        if effect.marked:
            _allow_marks(lake)
        files, at_hand = self._files(lake, merge, effect)
        failpoints.hit(failpoint)
        feed = change_files(lake, files, effect.removed, effect.marked, merge.table.row_key, at_hand)
        version = _commit(lake, merge, scope, files, effect.removed, more, marked=effect.marked, feed=feed)
        return Applied(version, changes.events, effect.inserted, effect.updated, effect.deleted)

    def commit_files(
        self, lake: DeltaTable, merge: Merge, scope: str, files: Sequence[DataFile], replaces: bool = False
    ) -> Applied:
        """Commit files that were written before; ``replaces``: they are the table's entire content.

        Raises CommitConflictError.
        """
        failpoints.hit(failpoints.DURING_MERGE)
        gone = held_rows(lake) if replaces else 0
        version = _commit(lake, merge, scope, files, (), replace=replaces)
        came = sum(file.rows for file in files)
        return Applied(version, came, came, 0, gone)

    def write_part(self, lake: DeltaTable, merge: Merge, changes: Changes, most_rows: int | None = None) -> WrittenPart:
        """Apply a part of a slice to files; commits nothing. The rows that leave their files are marked in any case.

        ``most_rows`` as in ``Ways``.

        Other parts have changed rows in the same files. So whether these files are written again instead is decided for
        the whole slice (``commit_shares``).
        """
        self._use_copies(lake)
        ways = replace(self._ways(lake), mark_above=_ALWAYS, moved=None, most_rows=most_rows)
        effect = apply(lake, changes, ways=ways)
        files, at_hand = self._files(lake, merge, effect)
        feed = change_files(lake, files, (), effect.marked, merge.table.row_key, at_hand)
        return WrittenPart(effect, tuple(files), tuple(feed or ()))

    def end_rows(
        self, lake: DeltaTable, merge: Merge, file: DataFile, at: Truncation, changed: np.ndarray
    ) -> WrittenPart:
        """End the rows of a file by a truncate, all but the ``changed`` ones, as a part of a slice (``write_part``)."""
        self._use_copies(lake)
        ended = EndedRows.of(lake, file, at, changed, guarded=merge.snapshot.visible is None)
        count = len(ended.places)
        schema = lake.tracked_schema
        rows = (batch for states in ended.states(lake) for batch in states.to_batches())
        files = lake.write_stream(rows, schema, lake.row_count(file)) if count else []
        marked = [MarkedRows(file, ended.places)] if count else []
        is_history = mode_of(schema.names) is DeleteMode.HISTORY
        effect = Rewrite([], iter(()), 0, count if is_history else 0, 0 if is_history else count, marked)
        feed = change_files(lake, files, (), marked, merge.table.row_key)
        return WrittenPart(effect, tuple(files), tuple(feed or ()))

    def rewrite(self, lake: DeltaTable, file: DataFile, places: np.ndarray) -> list[DataFile]:
        """Write a file again without the rows at some positions, a few megabytes at a time; commits nothing."""
        stays, live = np.ones(lake.row_count(file), dtype=bool), lake.live(file)
        stays[places] = False
        stays, schema = stays if live is None else stays[live], lake.tracked_schema

        def left() -> Iterator[pa.RecordBatch]:
            at = 0
            for rows in lake.batches(file, schema.names):
                start, at = at, at + rows.num_rows
                yield from rows.filter(pa.array(stays[start:at])).to_batches()
                del rows  # a row may be large, and would stay in memory while the next one is read

        return lake.write_stream(left(), schema, lake.row_count(file))

    def mark_above(self, lake: DeltaTable) -> int | None:
        """Return the bytes of touched files above which rows are marked; None if they may not be."""
        return self._ways(lake).mark_above

    def commit_shares(self, lake: DeltaTable, merge: Merge, scope: str, joined: JoinedShares) -> Applied:
        """Commit what several tasks wrote. Raises CommitConflictError if another commit was made first."""
        results, files = joined.results, {file.path: file for file in lake.files}
        again = joined.rewritten
        added = [file for outcome in joined.done for file in outcome.files]
        marks = {} if again else marks_by_file(results)[0]
        marked = [MarkedRows(files[path], united(places)) for path, places in marks.items()]
        if marked:
            _allow_marks(lake)
        failpoints.hit(failpoints.DURING_MERGE)
        feed = [file for share in results for file in share.changes] if lake.definition.feeds_changes else None
        removed = [files[file.path] for file in again]
        version = _commit(lake, merge, scope, added, removed, marked=marked, feed=feed)
        inserted, updated, deleted = (
            sum(getattr(share, name) for share in results) for name in ("inserted", "updated", "deleted")
        )
        return Applied(version, joined.whole.rows, inserted, updated, deleted)

    def _ways(self, lake: DeltaTable) -> Ways:
        """Return how rows may leave their files, and how they are located."""
        mark_above = min(MARK_BYTES, self.rewrite_max_bytes) if self.features.marks_rows(lake) else None
        return Ways(mark_above, self._positions(), moved=partial(moved_at_once, lake))

    def _use_copies(self, lake: DeltaTable) -> None:
        """Have the rows before changes, which only a change feed needs whole, read from copies of their files."""
        if self.index and lake.definition.feeds_changes:
            lake.use_copies(copies_in(self.index, self.index_max_bytes))

    def _positions(self) -> KeyPositions | None:
        return positions_in(self.index, self.index_max_bytes) if self.index else None

    def _files(self, lake: DeltaTable, merge: Merge, effect: Rewrite) -> tuple[list[DataFile], dict[str, pa.Table]]:
        """Write an effect's rows to files; where keys are found by an index, they get theirs.

        Also returns the rows of files by their paths, as far as a change feed needs them and they are few.
        """
        files, key, positions = list[DataFile](), merge.table.row_key, self._positions()
        leave = bool(effect.marked or effect.removed)
        is_indexed, at_hand = leave and uses_index(lake.files), dict[str, pa.Table]()
        room = _HELD_BYTES if lake.definition.feeds_changes else 0
        for rows in effect.rows:
            files.append(lake.write(rows))
            if is_indexed and positions is not None and key:
                columns = KeyColumns.of(key, lake.schema)
                positions.add(lake, files[-1], rows.select(columns.read), columns)
            if room and (room := room - rows.nbytes) > 0:
                at_hand[files[-1].path] = rows
        return files, at_hand


def _commit(
    lake: DeltaTable,
    merge: Merge,
    scope: str,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    more: Mapping[str, int] | None = None,
    replace: bool = False,
    marked: Iterable[MarkedRows] = (),
    feed: list[DataFile] | None = None,
) -> int:
    """Make a commit. ``feed``: the files of its change data feed; None to write those of a table that has one here."""
    table, token = merge.table.id, merge.snapshot.token
    check_epoch(lake, scope, table)
    txns = {merge_app(scope, table, token): merge.to_lsn, **(more or {})}
    metadata = {"slot": scope, "lsn": str(Lsn(merge.to_lsn)), "snapshot": token}
    added, marked = list(added), list(marked)
    removed = lake.files if replace else list(removed)
    if feed is None:
        feed = change_files(lake, added, removed, marked, merge.table.row_key)
    return lake.commit(added, removed, marked=marked, changes=feed, txns=txns, metadata=metadata, replace=replace)


def _allow_marks(lake: DeltaTable) -> None:
    """Enable deletion vectors before the first commit with marks.

    Raises CommitConflictError if another commit was made first or followed: what was decided may not hold any more.
    """
    before = lake.version
    if lake.enable_vectors() and lake.version != before + 1:
        raise CommitConflictError()

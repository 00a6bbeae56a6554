"""A slice and the table's quarantine: which changes are merged, which are quarantined, and which leave the quarantine.

    changes ─▶ rules ─▶ refused  ┐
                        passing  ├▶ defer (lake/reduce/deferred_changes) ─▶ rows for the lake
    in quarantine before ────────┘                            ─▶ quarantine: new rows, rows that are settled

None of this is executed while a table has no row in quarantine and none is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import TableError
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.opened import opened
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import LakePosition
from cdc_core.lake.reduce.deferred_changes import REMOVAL, UPSERT, Deferred, defer
from cdc_core.lake.rows.row_keys import merge_key
from cdc_core.lake.rows.survey import survey
from cdc_core.lake.slice.order import Merge, Replay
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.lake.slice.schema_versions import by_schema_version, projected, require_key_of
from cdc_core.lake.stores.changelog import read_positions
from cdc_core.lake.stores.quarantine import (
    WAITS_FOR_EARLIER,
    QuarantineStatus,
    Settled,
    waiting_rows,
    write_quarantine,
)
from cdc_core.quality import KEY_UNIQUE, Limits
from cdc_core.schema import TableSchema

if TYPE_CHECKING:
    from cdc_core.quality import Checked

_POSITION = ["__commit_lsn", "__tx_index"]
Judge = Callable[[pa.Table], "Checked | None"]


@dataclass(frozen=True, slots=True)
class Filtered:
    """The rows of a slice for the lake: ``rows`` of the slice itself, and ``earlier`` ones, at or before its start.

    ``refused`` are the rows to be added to the quarantine table, in its columns, and ``settled`` is what becomes of
    others in it. ``waiting`` are the change rows that are in quarantine then; None for none.
    """

    rows: pa.Table
    earlier: pa.Table
    quarantined: QuarantineReport = field(default_factory=QuarantineReport)
    refused: pa.Table | None = None
    settled: Settled | None = None
    waiting: pa.Table | None = None

    @property
    def changed(self) -> bool:
        """Whether the quarantine table is changed: the round's LSN must be committed to the lake even without rows."""
        return self.settled is not None or bool(self.refused is not None and self.refused.num_rows)


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The rows in quarantine before the slice. ``reasons``: one list per row; ``effects``, ``refused``: see ``hold``.

    Shape: rows[W], W lists, int8[W], bool[W]
    """

    rows: pa.Table
    reasons: list[list[str]] = field(default_factory=list)
    effects: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    refused: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))


def _judged_again(
    rows: pa.Table, replay: Replay, judge: Judge, before: list[list[str]]
) -> tuple[np.ndarray, list[list[str]]]:
    """Check rows again; failures of accepted rules are ignored.

    A failure of a rule over the row's batch remains, because the batch can no longer be checked as a whole.
    """
    verdict = judge(rows)
    stays = not replay.accept_all and KEY_UNIQUE not in replay.accept
    reasons = [[KEY_UNIQUE] if stays and KEY_UNIQUE in names else [] for names in before]
    if verdict is not None and verdict.refused is not None and verdict.reasons is not None and not replay.accept_all:
        for at, names in zip(np.flatnonzero(np.asarray(verdict.refused)), verdict.reasons.to_pylist(), strict=True):
            reasons[at] += [name for name in names if not {name, name.removeprefix("user:")} & set(replay.accept)]
    return np.array([bool(names) for names in reasons], dtype=bool), reasons


def accepted(verdict: Checked, replay: Replay) -> Checked:
    """Return a check's result of which the rows that fail accepted rules only are not refused."""
    if verdict.refused is None or verdict.reasons is None:
        return verdict
    refused = np.array(verdict.refused)
    names = {rule for name in replay.accept for rule in (name, f"user:{name}")}
    # row-wise: the rows that a rule refuses
    refused[refused] = [not replay.accept_all and bool(set(reasons) - names) for reasons in verdict.reasons.to_pylist()]
    return replace(verdict, refused=pa.array(refused))


@dataclass(frozen=True, slots=True)
class TableQuarantine:
    """The quarantine of one table in a merge; ``place`` is the lake table's position, ``schema`` its schema.

    ``judge`` checks rows against the rules.
    """

    run: str
    scope: str
    paths: LakePaths
    merge: Merge
    place: LakePosition
    schema: pa.Schema
    judge: Judge

    def filtered(self, changes: pa.Table, verdict: Checked | None, limits: Limits) -> Filtered:
        """Return which rows must not be merged, and which are; writes nothing.

        ``changes`` are the slice's rows and ``verdict`` their check result. Raises LimitExceededError if more
        rows would be in quarantine than the ``limits`` allow.
        """
        merge, bad = self.merge, None if verdict is None else verdict.refused
        if bad is None and not merge.waiting:
            return Filtered(changes, changes.slice(0, 0))
        waited = self.waited(changes.schema)
        # A commit that was made first may have been a part of the slice itself.
        fresh = np.asarray(changes.column("__commit_lsn").to_numpy() > self.place.merged)
        refused = np.zeros(changes.num_rows, dtype=bool) if bad is None else np.asarray(bad)
        if merge.replay is not None and merge.replay.drop:
            return self._dropped(waited, changes)
        every = pa.concat_tables([waited.rows, changes.filter(pa.array(fresh))])
        refused = np.concatenate([waited.refused, refused[fresh]])
        effects = np.concatenate([waited.effects, np.full(int(fresh.sum()), UPSERT | REMOVAL, dtype=np.int8)])
        deferred = defer(every, refused, effects, merge_key(merge.table), self.schema)
        return self._decided(waited, every, deferred, verdict, limits)

    def write(self, filtered: Filtered) -> None:
        """Write to the quarantine table what leaves the slice, for the merge's LSN, before the lake is changed."""
        refused = filtered.refused
        if refused is not None and (filtered.changed or self.merge.waiting):
            path = self.paths.quarantine(self.merge.table.id)
            write_quarantine(refused, path, self.place, self.merge.to_lsn, filtered.settled)

    def waited(self, schema: pa.Schema) -> WaitingRows:
        """Return the rows in quarantine, with the columns of the slice."""
        merge, table = self.merge, self.merge.table.id
        quarantine = opened(self.run, self.paths.quarantine(table))
        places = None if quarantine is None else waiting_rows(quarantine, self.place)
        if places is None or not places.num_rows:
            return WaitingRows(schema.empty_table())
        changelog = opened(self.run, self.paths.changelog(table))
        read = None if changelog is None else read_positions(EpochRows.of(changelog, self.scope), places)
        if read is None or read.num_rows != places.num_rows:
            raise TableError(
                f"{places.num_rows - (0 if read is None else read.num_rows)} quarantined changes of {table} "
                "are no longer in its changelog.",
                f"Run wal2lake snapshot with {table}.",
                str(table),
            )
        versions = by_schema_version(read) if merge.schema.views else []
        for schema_version, changes in versions:
            if not set(survey(changes).ops) <= {"c", "r"}:
                require_key_of(merge.schema, schema_version, merge.table)
        parts = [projected(merge.schema, schema_version, changes) for schema_version, changes in versions] or [read]
        rows = pa.concat_tables([conform(part, schema) for part in parts])
        refused, reasons = np.ones(rows.num_rows, dtype=bool), places.column("reasons").to_pylist()
        if merge.replay is not None and merge.replay.checks_again:
            refused, reasons = _judged_again(rows, merge.replay, self.judge, reasons)
        return WaitingRows(rows, reasons, np.asarray(places.column("effects").to_numpy()), refused)

    def _decided(
        self, waited: WaitingRows, every: pa.Table, deferred: Deferred, verdict: Checked | None, limits: Limits
    ) -> Filtered:
        """Return the changes of the quarantine table, and the remaining rows for the lake."""
        merge, before, effects = self.merge, waited.rows.num_rows, deferred.effects
        waiting = int(np.count_nonzero(effects))
        limits.require_room(str(merge.table.id), waiting, int(np.count_nonzero(waited.effects)))
        new = _new_rows(merge.table, every.slice(before), effects[before:], verdict)
        settled, replayed = _settled(waited, deferred)
        waits = every.filter(pa.array(effects != 0)) if waiting else None
        # A row that was read is before the slice at any LSN: the snapshot may be newer than what is merged.
        late = deferred.rows.column("__commit_lsn").to_numpy() > self.place.merged
        late = pa.array(late & (deferred.rows.column("__tx_index").to_numpy() >= 0))
        rows, earlier = deferred.rows.filter(late), deferred.rows.filter(pc.invert(late))
        return Filtered(rows, earlier, QuarantineReport(waiting, replayed), new, settled, waits)

    def _dropped(self, waited: WaitingRows, changes: pa.Table) -> Filtered:
        """Discard the rows in quarantine; there are no other changes to be merged."""
        merge, count = self.merge, waited.rows.num_rows
        if changes.num_rows:
            raise TableError(
                f"The changelog of {merge.table.id} has changes that are not merged yet, besides those in quarantine.",
                "Run wal2lake replay again after they are merged.",
                str(merge.table.id),
            )
        empty = changes.slice(0, 0)
        if not count:
            return Filtered(empty, empty)
        status = [str(QuarantineStatus.DROPPED)] * count
        gone = Settled(waited.rows.select(_POSITION), np.zeros(count, dtype=np.int8), status)
        none = _as_rows(waited.rows.slice(0, 0), [], np.zeros(0, dtype=np.int8), ())
        return Filtered(empty, empty, QuarantineReport(dropped=count), none, gone)


def _settled(waited: WaitingRows, deferred: Deferred) -> tuple[Settled | None, int]:
    """Return what becomes of the rows that were in quarantine, None if nothing does, and how many were merged."""
    effects = deferred.effects[: waited.rows.num_rows]
    changed = effects != waited.effects
    if not changed.any():
        return None, 0
    # Rows accepted by this replay that are no longer held were merged; those settled without it were superseded.
    went_in = ~waited.refused & (effects == 0)
    status = np.where(went_in, str(QuarantineStatus.REPLAYED), str(QuarantineStatus.SUPERSEDED))
    places = waited.rows.select(_POSITION).take(pa.array(np.flatnonzero(changed)))
    return Settled(places, effects[changed], status[changed].tolist()), int(went_in.sum())


def _new_rows(table: TableSchema, rows: pa.Table, effects: np.ndarray, verdict: Checked | None) -> pa.Table:
    """Return the slice's rows to be quarantined, in the columns of the quarantine table."""
    at = np.flatnonzero(effects)
    some = rows.take(pa.array(at, pa.int64()))
    known: dict[tuple[int, int], list[str]] = {}
    if verdict is not None and verdict.bad is not None and verdict.reasons is not None:
        places = zip(*(verdict.bad.column(name).to_pylist() for name in _POSITION), strict=True)
        known = dict(zip(places, verdict.reasons.to_pylist(), strict=True))
    mine = zip(*(some.column(name).to_pylist() for name in _POSITION), strict=True)
    # row-wise: rows that are refused or held
    reasons = [known.get(place, [WAITS_FOR_EARLIER]) for place in mine]
    return _as_rows(some, reasons, effects[at], merge_key(table))


def _as_rows(rows: pa.Table, reasons: list[list[str]], effects: np.ndarray, key: Sequence[str]) -> pa.Table:
    from cdc_core.quality import as_quarantine_rows  # loads DuckDB, which only the tasks need

    made = as_quarantine_rows(rows, pa.array(reasons, pa.list_(pa.string())), key)
    return made.append_column("effects", pa.array(effects, pa.int8()))


def settle(path: str, place: LakePosition, rows: pa.Table, effects: np.ndarray, table: TableSchema) -> None:
    """Leave waiting change rows these effects; the others are superseded by what the lake table at ``place`` has."""
    settled = Settled(rows.select(_POSITION), effects, [str(QuarantineStatus.SUPERSEDED)] * rows.num_rows)
    none = _as_rows(rows.slice(0, 0), [], np.zeros(0, dtype=np.int8), merge_key(table))
    write_quarantine(none, path, place, place.merged, settled)

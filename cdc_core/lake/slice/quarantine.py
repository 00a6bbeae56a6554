"""A slice and the table's quarantine: which changes are merged, which are quarantined, and which leave the quarantine.

    changes ─▶ rules ─▶ refused  ┐
                        passing  ├▶ defer (lake/reduce/deferred_changes) ─▶ rows for the lake
    in quarantine before ────────┘                            ─▶ quarantine: new rows, rows that are settled

None of this is executed while a table has no row in quarantine and none is refused. What is decided about a change
depends on changes of its keys only: a slice, or what waits, that is too large for a task's memory is divided by keys
together with the other (``share_task``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from cdc_core.lake.reduce.deferred_changes import Deferred, defer
from cdc_core.lake.reduce.key_changes import Apart, as_inserts, key_changes
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.survey import in_order, order_of, survey
from cdc_core.lake.schema.change_columns import empty_changes
from cdc_core.lake.slice.order import Merge, Replay
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.lake.slice.schema_versions import by_schema_version, in_force, require_key_of
from cdc_core.lake.stores.changelog import files_at, stream_positions
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

WAITS = "__waits"
"""A column of change rows, null for those of the slice: what the quarantine table says of one that waits there."""

_POSITION = ["__commit_lsn", "__tx_index"]
_STATE = pa.struct([("reasons", pa.list_(pa.string()))])
Judge = Callable[[pa.Table], "Checked | None"]


@dataclass(frozen=True, slots=True)
class Filtered:
    """The rows of a slice for the lake: ``rows`` of the slice itself, and ``earlier`` ones, at or before its start.

    ``refused`` are the rows to be added to the quarantine table, in its columns, and ``settled`` is what becomes of
    others in it. ``left_out`` are the change rows that are in neither: they wait, or are superseded; None for none.
    """

    rows: pa.Table
    earlier: pa.Table
    quarantined: QuarantineReport = field(default_factory=QuarantineReport)
    refused: pa.Table | None = None
    settled: Settled | None = None
    left_out: pa.Table | None = None

    @property
    def changed(self) -> bool:
        """Whether the quarantine table is changed: the round's LSN must be committed to the lake even without rows."""
        return self.settled is not None or bool(self.refused is not None and self.refused.num_rows)


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The rows in quarantine before the slice, in its columns; ``refused``: see ``defer``. Shape: rows[W], bool[W]"""

    rows: pa.Table
    refused: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def divided(self, key: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Return the rows as ``defer`` takes them: the old row of a key change that is divided was removed before."""
        return as_inserts(self.rows, key_changes(self.rows, key, schema))


def _judged_again(rows: pa.Table, replay: Replay, judge: Judge, before: list[list[str]]) -> np.ndarray:
    """Check rows again, which failed the rules ``before``; returns which still fail one that is not accepted.

    A failure of a rule over the row's batch remains, because the batch can no longer be checked as a whole.
    """
    if replay.accept_all:
        return np.zeros(rows.num_rows, dtype=bool)
    stays = KEY_UNIQUE not in replay.accept
    refused = np.array([stays and KEY_UNIQUE in names for names in before], dtype=bool)
    verdict = judge(rows)
    if verdict is not None:
        again = accepted(verdict, replay).refused
        refused |= False if again is None else np.asarray(again)
    return refused


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

    def filtered(
        self,
        changes: pa.Table,
        verdict: Checked | None,
        limits: Limits,
        waited: WaitingRows | None = None,
        apart: Apart | None = None,
    ) -> Filtered:
        """Return which rows must not be merged, and which are; writes nothing.

        ``changes`` are the slice's rows, ``verdict`` is their check result, and ``waited`` are those in quarantine
        before (None: none); of a part of the slice, those of its keys, and ``apart`` is how key changes are divided
        between the parts (None: they are not). Raises LimitExceededError if more rows would be in quarantine than the
        ``limits`` allow.
        """
        bad, key = None if verdict is None else verdict.refused, self.merge.table.row_key
        if bad is None and waited is None:
            return Filtered(changes if apart is None else apart.joined(changes), changes.slice(0, 0))
        waited = waited or WaitingRows(changes.schema.empty_table())
        apart = apart or Apart.of(changes, key, self.schema)
        refused = np.zeros(changes.num_rows, dtype=bool) if bad is None else np.asarray(bad)
        sent = pa.concat_tables([apart.removals, changes])
        made = pa.concat_tables([apart.removals, as_inserts(changes, apart.moved)])
        refused = np.concatenate([np.zeros(apart.removals.num_rows, dtype=bool), refused])
        # A commit that was made first may have been a part of the slice itself.
        at = order_of(made)
        at = at[made.column("__commit_lsn").to_numpy()[at] > self.place.merged]
        deferred = defer(
            pa.concat_tables([waited.divided(key, self.schema), made.take(pa.array(at))]),
            np.concatenate([waited.refused, refused[at]]),
            key,
            self.schema,
        )
        return self._decided(waited, sent.take(pa.array(at)), deferred, verdict, limits)

    def write(self, filtered: Filtered) -> None:
        """Write to the quarantine table what leaves the slice, for the merge's LSN, before the lake is changed."""
        refused = filtered.refused
        if refused is not None and (filtered.changed or self.merge.waiting):
            path = self.paths.quarantine(self.merge.table.id)
            write_quarantine(refused, path, self.place, self.merge.to_lsn, filtered.settled)

    @property
    def places(self) -> pa.Table | None:
        """The positions and reasons of the rows in quarantine (``waiting_rows``); None for none."""
        quarantine = opened(self.run, self.paths.quarantine(self.merge.table.id))
        places = None if quarantine is None else waiting_rows(quarantine, self.place)
        return places if places is not None and places.num_rows else None

    @property
    def bytes_at_most(self) -> int:
        """The bytes in memory of the rows in quarantine, estimated from files of the changelog: too low for some."""
        changelog, places = opened(self.run, self.paths.changelog(self.merge.table.id)), self.places
        if changelog is None or places is None:
            return 0
        files = files_at(EpochRows.of(changelog, self.scope), places)
        row = max((changelog.bytes_in_memory(file) / changelog.row_count(file) for file in files), default=0)
        return int(row * places.num_rows)

    def waited(self, schema: pa.Schema) -> WaitingRows:
        """Return the rows in quarantine, with the columns of the slice, in stream order."""
        places = self.places
        rows = None if places is None else self.within(places, schema, 1 << 62)
        return WaitingRows(schema.empty_table()) if rows is None else rows

    def within(self, places: pa.Table, schema: pa.Schema, most_bytes: int) -> WaitingRows | None:
        """Return the rows at ``places`` as ``waited`` does; None if they take more than ``most_bytes`` in memory."""
        parts, octets = list[pa.Table](), 0
        for rows in self.stream(places, schema):
            parts.append(rows)
            octets += rows.nbytes
            if octets > most_bytes:
                return None
        return self.judged(in_order(pa.concat_tables(parts)))

    def stream(self, places: pa.Table, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows at ``places`` with the columns of the slice and WAITS, a few megabytes at a time.

        Raises TableError if the changelog no longer has all of them.
        """
        merge, table, count = self.merge, self.merge.table.id, 0
        changelog = opened(self.run, self.paths.changelog(table))
        stored = iter(()) if changelog is None else stream_positions(EpochRows.of(changelog, self.scope), places)
        for read, numbers in stored:
            versions = by_schema_version(read) if merge.schema.views else [(0, read)]
            count += read.num_rows
            for schema_version, rows in versions if merge.schema.views else ():
                if not set(survey(rows).ops) <= {"c", "r"}:
                    require_key_of(merge.schema, schema_version, merge.table)
            rows = conform(in_force(merge.schema, versions), schema)
            yield _with_state(rows, places.take(pa.array(numbers)))
            del read, versions, rows  # a row may be large
        if count != places.num_rows:
            raise TableError(
                f"{places.num_rows - count} quarantined changes of {table} are no longer in its changelog.",
                f"Run wal2lake snapshot with {table}.",
                str(table),
            )

    def judged(self, rows: pa.Table) -> WaitingRows:
        """Return rows of ``stream``, without WAITS; a replay checks them again."""
        waits, rows = column(rows, WAITS), rows.drop_columns([WAITS])
        refused, replay = np.ones(rows.num_rows, dtype=bool), self.merge.replay
        if replay is not None and replay.checks_again and rows.num_rows:
            refused = _judged_again(rows, replay, self.judge, waits.field("reasons").to_pylist())
        return WaitingRows(rows, refused)

    def dropped(self, places: pa.Table | None) -> Filtered:
        """Discard the rows in quarantine, which are at ``places``."""
        none = empty_changes(self.schema)
        if places is None:
            return Filtered(none, none)
        status = [str(QuarantineStatus.DROPPED)] * places.num_rows
        gone = Settled(places.select(_POSITION), status)
        nothing = _as_rows(none, [], ())
        return Filtered(none, none, QuarantineReport(dropped=places.num_rows), nothing, gone)

    def _decided(
        self, waited: WaitingRows, sent: pa.Table, deferred: Deferred, verdict: Checked | None, limits: Limits
    ) -> Filtered:
        """Return the changes of the quarantine table, and the remaining rows for the lake.

        ``sent`` are the rows of the slice as they came, aligned with those of ``deferred`` behind the ``waited`` ones.
        """
        merge, before = self.merge, waited.rows.num_rows
        waiting = int(np.count_nonzero(deferred.waits))
        limits.require_room(str(merge.table.id), waiting, before)
        new = _new_rows(merge.table, sent.filter(pa.array(deferred.waits[before:])), verdict)
        settled, replayed = _settled(waited, deferred)
        left_out = pa.concat_tables([waited.rows, sent]).filter(pa.array(~deferred.applied))
        # A row that was read is before the slice at any LSN: the snapshot may be newer than what is merged.
        late = deferred.rows.column("__commit_lsn").to_numpy() > self.place.merged
        late = pa.array(late & (deferred.rows.column("__tx_index").to_numpy() >= 0))
        rows, earlier = deferred.rows.filter(late), deferred.rows.filter(pc.invert(late))
        return Filtered(rows, earlier, QuarantineReport(waiting, replayed), new, settled, left_out)


def without_state(rows: pa.Table) -> pa.Table:
    """Return change rows of a slice with the column WAITS."""
    return rows.append_column(WAITS, pa.nulls(rows.num_rows, _STATE))


def _with_state(rows: pa.Table, places: pa.Table) -> pa.Table:
    parts = [column(places, field.name).cast(field.type) for field in _STATE]
    return rows.append_column(WAITS, pa.StructArray.from_arrays(parts, fields=list(_STATE)))


def _settled(waited: WaitingRows, deferred: Deferred) -> tuple[Settled | None, int]:
    """Return what becomes of the rows that were in quarantine, None if nothing does, and how many were merged."""
    ends = ~deferred.waits[: waited.rows.num_rows]
    if not ends.any():
        return None, 0
    # Rows accepted by this replay that are no longer held were merged; those settled without it were superseded.
    went_in = ~waited.refused & ends
    status = np.where(went_in, str(QuarantineStatus.REPLAYED), str(QuarantineStatus.SUPERSEDED))
    places = waited.rows.select(_POSITION).filter(pa.array(ends))
    return Settled(places, status[ends].tolist()), int(went_in.sum())


def _new_rows(table: TableSchema, rows: pa.Table, verdict: Checked | None) -> pa.Table:
    """Return rows of the slice, which are to wait, in the columns of the quarantine table."""
    known: dict[tuple[int, int], list[str]] = {}
    if verdict is not None and verdict.bad is not None and verdict.reasons is not None:
        places = zip(*(verdict.bad.column(name).to_pylist() for name in _POSITION), strict=True)
        known = dict(zip(places, verdict.reasons.to_pylist(), strict=True))
    mine = zip(*(rows.column(name).to_pylist() for name in _POSITION), strict=True)
    # row-wise: rows that are refused or held
    reasons = [known.get(place, [WAITS_FOR_EARLIER]) for place in mine]
    return _as_rows(rows, reasons, table.row_key)


def _as_rows(rows: pa.Table, reasons: list[list[str]], key: Sequence[str]) -> pa.Table:
    from cdc_core.quality import as_quarantine_rows  # loads DuckDB, which only the tasks need

    return as_quarantine_rows(rows, pa.array(reasons, pa.list_(pa.string())), key)


def settle(path: str, place: LakePosition, rows: pa.Table, table: TableSchema) -> None:
    """Let change rows wait no more, which are superseded by what the lake table at ``place`` has."""
    settled = Settled(rows.select(_POSITION), [str(QuarantineStatus.SUPERSEDED)] * rows.num_rows)
    none = _as_rows(rows.slice(0, 0), [], table.row_key)
    write_quarantine(none, path, place, place.merged, settled)

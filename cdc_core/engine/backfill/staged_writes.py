"""Writes staged ranges to their lake tables, between two rounds, whichever process has read them.

    staged range ─▶ lake table merged past its LSN ─▶ its rows in commits of some 100,000 ─▶ stored ─▶ no longer staged

Crash safety. Before the range is removed it is stored which changes were searched for rows that moved, and which keys
are to be read again. A run that is killed before the removal writes the range again, with the same ordinals: writing
rows again that are in the lake already does not change them, and rows that are in the changelog already
(``wal2lake.changelog.reads``) are not appended twice. Each range is exact by itself (``lake/apply/chunk_rows``), so the
order of ranges, of requests and of processes does not matter.

A range that can no longer be written is not lost in silence:

    the table was altered since            it is read again, and replaces itself in one commit
    the table was read as a whole since    the lake has later rows: it is removed
    the table no longer exists             it is removed, with a message
    its rows cannot be judged, or written  it is removed, with a message, after MAX_TRIES where the cause may pass
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from cdc_core import failpoints
from cdc_core.engine.backfill.stored import StoredProgress
from cdc_core.errors import (
    CdcError,
    LimitExceededError,
    LockedError,
    NotJudgedError,
    OlderTransactionsError,
    RereadNeededError,
)
from cdc_core.lake import ChunkOrder, ChunkOutcome, Merge, StagedRows
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.snapshot import Discarded, RangeRead, RangeReads, Search, StagedRange, is_unaltered

_log = logging.getLogger(__name__)

MAX_TRIES = 60
_SLICE_ROWS = 100_000
_LOOK_SECONDS, _DESCRIBE_SECONDS = 0.5, 2.0
# In an object store, where each look is a request or two.
_FAR_SECONDS = 2.0


class StagedTarget(Protocol):
    """The operations of the lake that need it (``cdc_core.engine.round.backfill_target.BackfillTarget``)."""

    def is_current(self, table: TableSchema) -> bool:
        """Whether the lake table has the schema version of this description of its source and is merged by rounds."""

    def order_for_chunks(self, table: TableId, reached: int, passed: int) -> Merge | None:
        """Return the order once the lake table is merged up to ``reached``; None before that."""

    def apply_chunks(self, order: ChunkOrder) -> ChunkOutcome:
        """Write rows to the lake table."""


@dataclass(frozen=True, slots=True)
class Wrote:
    """``rows`` of a range were written; ``is_whole``: with them, all of it."""

    range: StagedRange
    rows: int
    is_whole: bool


class StagedWrites:
    """The staged ranges of a connector, written by its streaming run. For one thread.

    ``describe`` returns a table as it is now, None if it no longer exists. ``keeps_events``: rows are also appended to
    the changelog.
    """

    def __init__(
        self,
        stored: StoredProgress,
        staged: StagedRows,
        reads: RangeReads,
        describe: Callable[[TableId], TableSchema | None],
        *,
        keeps_events: bool,
    ) -> None:
        self._stored = stored
        self._staged = staged
        self._reads = reads
        self._describe = describe
        self._keeps_events = keeps_events
        self._known: dict[str, StagedRange] = {}
        self._slice: dict[str, int] = {}
        self._tries: Counter[str] = Counter()
        self._again: dict[str, Future[RangeRead]] = {}
        # Ranges to be read again, also while none is being read: a run does not end before.
        self._altered: set[str] = set()
        self._dropped: set[str] = set()
        self._looked_at = float("-inf")
        self._described_at: dict[str, float] = {}
        self.held: set[TableId] = set()
        """The tables whose ranges wait until the lake table has the columns of the source, or is merged again."""
        self.refused: set[TableId] = set()
        """The tables whose rows could not be written for a reason that remains, until it is taken note of."""

    @property
    def ranges(self) -> list[StagedRange]:
        """The staged ranges, in the order in which they are written."""
        return sorted(self._known.values(), key=lambda staged: (staged.facts.reached, staged.facts.id))

    @property
    def has_any(self) -> bool:
        """Whether a range is staged, or being read again."""
        return bool(self._known or self._again)

    @property
    def is_busy(self) -> bool:
        """Whether a range is staged whose table is not held, or is to be read again."""
        known = self._known.values()
        return bool(self._again) or any(
            staged.table not in self.held or staged.facts.id in self._altered for staged in known
        )

    def staged(self, request: str) -> set[int]:
        """Return the numbers of a request's ranges that are staged."""
        return {staged.name[1] for staged in self._known.values() if staged.name[0] == request}

    def has(self, table: TableId) -> bool:
        """Whether a range of a table is staged."""
        return any(staged.table == table for staged in self._known.values())

    def has_moved(self, table: TableId) -> bool:
        """Whether rows of a table are staged that are read again because they moved."""
        return any(staged.table == table and not staged.name[1] for staged in self._known.values())

    def look(self, *, now: bool = False) -> None:
        """Look which ranges are staged, at intervals, or ``now``."""
        seconds = _LOOK_SECONDS if self._staged.is_local else _FAR_SECONDS
        if not now and time.monotonic() - self._looked_at < seconds:
            return
        self._looked_at = time.monotonic()
        ranges = {
            staged_file.file.path: self._known.get(staged_file.file.path) or StagedRange.of(staged_file)
            for staged_file in self._staged.look()
        }
        former = [staged for staged in ranges.values() if staged.facts.epoch != self._stored.now.epoch]
        for staged in former:
            _log.warning(
                "A range of %s is not written: it was read of another server, or before a gap in the stream.",
                staged.table,
            )
        unwanted = [staged for staged in ranges.values() if staged.name[0] in self._dropped]
        self._known = {
            path: staged for path, staged in ranges.items() if staged not in former and staged not in unwanted
        }
        self._altered &= {staged.facts.id for staged in self._known.values()}
        self._discard(former, "it was read of another server or history")
        self._remove(unwanted)

    def drop(self, request: str) -> None:
        """Stop writing ranges of a request, including those that are still being read."""
        if request:
            self._dropped.add(request)
            self._remove([staged for staged in self._known.values() if staged.name[0] == request])

    def drop_tables(self, is_dropped: Callable[[TableId], bool], reason: str) -> None:
        """Discard the staged ranges of tables."""
        self._discard([staged for staged in self._known.values() if is_dropped(staged.table)], reason)

    def write(self, lake: StagedTarget, passed: int) -> Wrote | None:
        """Write a part of the first range that can be written now; None if there is none."""
        self._collect()
        blocked: set[TableId] = set()
        for staged in self.ranges:
            if staged.table in blocked or staged.facts.id in self._again:
                continue
            order = self._order(lake, staged, passed)
            if order is not None:
                return self._write(lake, staged, order)
            blocked.add(staged.table)
        return None

    def _order(self, lake: StagedTarget, staged: StagedRange, passed: int) -> Merge | None:
        facts = staged.facts
        if not lake.is_current(facts.table):
            # It is paused or being re-read, the stream has not reached its last schema change, or it was altered since.
            if staged.table not in self.held:
                _log.info("Rows of %s wait until the lake table has the current columns of the source.", staged.table)
            self.held.add(staged.table)
            self._compare(staged)
            return None
        self.held.discard(staged.table)
        order = lake.order_for_chunks(staged.table, facts.reached, passed)
        if order is None or order.snapshot.token == facts.token:
            return order
        if order.snapshot.token > facts.token:
            _log.info("A range of %s is not written: the table was read as a whole since.", staged.table)
            self._finish(staged, self._search(staged))
        else:
            self._read_again(staged)
        return None

    def _compare(self, staged: StagedRange) -> None:
        """Read a range again if its table was altered since it was read."""
        if time.monotonic() - self._described_at.get(staged.facts.id, float("-inf")) < _DESCRIBE_SECONDS:
            return
        self._described_at[staged.facts.id] = time.monotonic()
        now = self._describe(staged.table)
        if now is None:
            _log.warning("A range of %s is not written: the table no longer exists in the source.", staged.table)
            self._discard([staged], "the table no longer exists in the source")
        elif not is_unaltered(staged.facts.table, streamed(now)):
            _log.warning("A range of %s is read again: the table was altered after it was read.", staged.table)
            self._altered.add(staged.facts.id)
            self._read_again(staged)

    def _read_again(self, staged: StagedRange) -> None:
        if len(self._again) < self._reads.threads:
            self._again[staged.facts.id] = self._reads.read(staged.facts.range, staged.staged)

    def _collect(self) -> None:
        """Take note of ranges that were read again, and have replaced themselves."""
        for name, reading in [entry for entry in self._again.items() if entry[1].done()]:
            del self._again[name]
            staged = next((staged for staged in self._known.values() if staged.facts.id == name), None)
            try:
                read = reading.result()
            except (LockedError, OlderTransactionsError) as error:
                _log.warning("A range is read again later: %s", error)
                self._altered.discard(name)
            except CdcError as error:
                self._note_failure(staged, error)
            else:
                if staged is not None and read.ended is not None:
                    self._discard([staged], f"the table cannot be read in chunks ({read.ended.value})")
            self.look(now=True)

    def _search(self, staged: StagedRange) -> Search:
        since = staged.facts.range.since
        return self._stored.now.searches.get(staged.table) or Search(since, since)

    def _write(self, lake: StagedTarget, staged: StagedRange, order: Merge) -> Wrote | None:
        facts, slices = staged.facts, staged.slices(_SLICE_ROWS)
        at = self._slice.get(facts.id, 0)
        search = self._numbered(staged, len(slices))
        failpoints.hit(failpoints.BEFORE_CHUNK_APPLY)
        ordinal = search.writing[1] + at if self._keeps_events else None
        low = search.begin(facts.range.since)
        outcome = lake.apply_chunks(ChunkOrder(order, slices[at], low, facts.reached, ordinal, staged.staged.file))
        if outcome.error is not None:
            self._note_failure(staged, outcome.error)
            return None
        failpoints.hit(failpoints.AFTER_CHUNK_APPLY)
        self._tries.pop(facts.id, None)
        is_whole = at + 1 == len(slices)
        searched = search.searched(facts.range.since, order.to_lsn)
        searched = searched.with_moved(outcome.rest, facts.range.keys if is_whole else ())
        self._slice[facts.id] = at + 1
        rows = sum(chunk.rows for chunk in slices[at])
        if is_whole:
            self._finish(staged, searched)
        else:
            self._stored.now = self._stored.now.with_search(staged.table, searched)
        return Wrote(staged, rows, is_whole)

    def _numbered(self, staged: StagedRange, writes: int) -> Search:
        """Return the table's search, with the ordinal of the range's first write; stored if rows are events."""
        search, now = self._search(staged), self._stored.now
        if search.writing[0] != staged.facts.id:
            search = replace(search, writing=(staged.facts.id, now.ordinal + 1))
            state = replace(now, ordinal=now.ordinal + writes).with_search(staged.table, search)
            if self._keeps_events:
                self._stored.store(state)
            else:
                self._stored.now = state
        return search

    def _finish(self, staged: StagedRange, search: Search) -> None:
        """Store what follows from a range that is in the lake table, then remove it."""
        state, (request, number) = self._stored.now.with_search(staged.table, search), staged.name
        if request == state.request.id and number:
            state = replace(state, request=state.request.with_done(number, staged.staged.rows))
        self._stored.store(state)
        failpoints.hit(failpoints.BEFORE_UNSTAGING)
        self._remove([staged])

    def _note_failure(self, staged: StagedRange | None, error: CdcError) -> None:
        if staged is None:
            return
        table = staged.table
        if isinstance(error, (NotJudgedError, LimitExceededError)):
            _log.error("%s is skipped by the incremental snapshot: %s", table, error)
            self._refuse(table, error)
        elif isinstance(error, RereadNeededError):
            _log.warning("Rows of %s could not be written to the lake and will be re-read: %s", table, error)
            search = replace(self._search(staged), again=True, moved=())
            self._stored.now = self._stored.now.with_search(table, search)
            self.drop_tables(lambda name: name == table, error.message)
        else:
            self._tries[staged.facts.id] += 1
            _log.warning("Rows of %s could not be written to the lake: %s", table, error)
            if self._tries[staged.facts.id] >= MAX_TRIES:
                _log.error(
                    "%s is skipped by the incremental snapshot: %d attempts to write its rows to the lake failed. "
                    "See the log for the cause, and request the snapshot again.",
                    *(table, MAX_TRIES),
                )
                self._refuse(table, error)

    def _refuse(self, table: TableId, error: CdcError) -> None:
        self.refused.add(table)
        self.drop_tables(lambda name: name == table, error.message)

    def _discard(self, ranges: Iterable[StagedRange], reason: str) -> None:
        discarded = list(ranges)
        if discarded:
            self._stored.discard(Discarded(*staged.name, reason) for staged in discarded)
            self._remove(discarded)

    def _remove(self, ranges: Sequence[StagedRange]) -> None:
        if ranges:
            self._staged.remove(staged.staged for staged in ranges)
            gone = {staged.staged.file.path for staged in ranges}
            self._known = {path: staged for path, staged in self._known.items() if path not in gone}
            for staged in ranges:
                self._slice.pop(staged.facts.id, None)
                self._tries.pop(staged.facts.id, None)
                self._described_at.pop(staged.facts.id, None)

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
        return sorted(self._known.values(), key=lambda each: (each.facts.reached, each.facts.id))

    @property
    def is_busy(self) -> bool:
        """Whether a range is staged whose table is not held, or is to be read again."""
        known = self._known.values()
        return bool(self._again) or any(each.table not in self.held or each.facts.id in self._altered for each in known)

    def staged(self, request: str) -> set[int]:
        """Return the numbers of a request's ranges that are staged."""
        return {each.name[1] for each in self._known.values() if each.name[0] == request}

    def has(self, table: TableId) -> bool:
        """Whether a range of a table is staged."""
        return any(each.table == table for each in self._known.values())

    def has_moved(self, table: TableId) -> bool:
        """Whether rows of a table are staged that are read again because they moved."""
        return any(each.table == table and not each.name[1] for each in self._known.values())

    def look(self, *, now: bool = False) -> None:
        """Look which ranges are staged, at intervals, or ``now``."""
        if not now and time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        found = {
            each.file.path: self._known.get(each.file.path) or StagedRange.of(each) for each in self._staged.look()
        }
        former = [each for each in found.values() if each.facts.epoch != self._stored.now.epoch]
        for each in former:
            _log.warning(
                "A range of %s is not written: it was read of another server, or before a gap in the stream.",
                each.table,
            )
        unwanted = [each for each in found.values() if each.name[0] in self._dropped]
        self._known = {path: each for path, each in found.items() if each not in former and each not in unwanted}
        self._altered &= {each.facts.id for each in self._known.values()}
        self._discard(former, "it was read of another server or history")
        self._remove(unwanted)

    def drop(self, request: str) -> None:
        """Stop writing ranges of a request, including those that are still being read."""
        if request:
            self._dropped.add(request)
            self._remove([each for each in self._known.values() if each.name[0] == request])

    def drop_tables(self, is_dropped: Callable[[TableId], bool], reason: str) -> None:
        """Discard the staged ranges of tables."""
        self._discard([each for each in self._known.values() if is_dropped(each.table)], reason)

    def write(self, lake: StagedTarget, passed: int) -> Wrote | None:
        """Write a part of the first range that can be written now; None if there is none."""
        self._collect()
        blocked: set[TableId] = set()
        for each in self.ranges:
            if each.table in blocked or each.facts.id in self._again:
                continue
            order = self._order(lake, each, passed)
            if order is not None:
                return self._write(lake, each, order)
            blocked.add(each.table)
        return None

    def _order(self, lake: StagedTarget, each: StagedRange, passed: int) -> Merge | None:
        facts = each.facts
        if not lake.is_current(facts.table):
            # It is paused or being re-read, the stream has not reached its last schema change, or it was altered since.
            if each.table not in self.held:
                _log.info("Rows of %s wait until the lake table has the current columns of the source.", each.table)
            self.held.add(each.table)
            self._compare(each)
            return None
        self.held.discard(each.table)
        order = lake.order_for_chunks(each.table, facts.reached, passed)
        if order is None or order.snapshot.token == facts.token:
            return order
        if order.snapshot.token > facts.token:
            _log.info("A range of %s is not written: the table was read as a whole since.", each.table)
            self._finish(each, self._search(each))
        else:
            self._read_again(each)
        return None

    def _compare(self, each: StagedRange) -> None:
        """Read a range again if its table was altered since it was read."""
        if time.monotonic() - self._described_at.get(each.facts.id, float("-inf")) < _DESCRIBE_SECONDS:
            return
        self._described_at[each.facts.id] = time.monotonic()
        now = self._describe(each.table)
        if now is None:
            _log.warning("A range of %s is not written: the table no longer exists in the source.", each.table)
            self._discard([each], "the table no longer exists in the source")
        elif not is_unaltered(each.facts.table, streamed(now)):
            _log.warning("A range of %s is read again: the table was altered after it was read.", each.table)
            self._altered.add(each.facts.id)
            self._read_again(each)

    def _read_again(self, each: StagedRange) -> None:
        if len(self._again) < self._reads.threads:
            self._again[each.facts.id] = self._reads.read(each.facts.range, each.staged)

    def _collect(self) -> None:
        """Take note of ranges that were read again, and have replaced themselves."""
        for name, reading in [one for one in self._again.items() if one[1].done()]:
            del self._again[name]
            each = next((one for one in self._known.values() if one.facts.id == name), None)
            try:
                found = reading.result()
            except (LockedError, OlderTransactionsError) as error:
                _log.warning("A range is read again later: %s", error)
                self._altered.discard(name)
            except CdcError as error:
                self._note_failure(each, error)
            else:
                if each is not None and found.ended is not None:
                    self._discard([each], f"the table cannot be read in chunks ({found.ended.value})")
            self.look(now=True)

    def _search(self, each: StagedRange) -> Search:
        since = each.facts.range.since
        return self._stored.now.searches.get(each.table) or Search(since, since)

    def _write(self, lake: StagedTarget, each: StagedRange, order: Merge) -> Wrote | None:
        facts, slices = each.facts, each.slices(_SLICE_ROWS)
        at = self._slice.get(facts.id, 0)
        search = self._numbered(each, len(slices))
        failpoints.hit(failpoints.BEFORE_CHUNK_APPLY)
        ordinal = search.writing[1] + at if self._keeps_events else None
        low = search.begin(facts.range.since)
        outcome = lake.apply_chunks(ChunkOrder(order, slices[at], low, facts.reached, ordinal, each.staged.file))
        if outcome.error is not None:
            self._note_failure(each, outcome.error)
            return None
        failpoints.hit(failpoints.AFTER_CHUNK_APPLY)
        self._tries.pop(facts.id, None)
        is_whole = at + 1 == len(slices)
        found = search.searched(facts.range.since, order.to_lsn)
        found = found.with_moved(outcome.rest, facts.range.keys if is_whole else ())
        self._slice[facts.id] = at + 1
        rows = sum(chunk.rows for chunk in slices[at])
        if is_whole:
            self._finish(each, found)
        else:
            self._stored.now = self._stored.now.with_search(each.table, found)
        return Wrote(each, rows, is_whole)

    def _numbered(self, each: StagedRange, writes: int) -> Search:
        """Return the table's search, with the ordinal of the range's first write; stored if rows are events."""
        search, now = self._search(each), self._stored.now
        if search.writing[0] != each.facts.id:
            search = replace(search, writing=(each.facts.id, now.ordinal + 1))
            state = replace(now, ordinal=now.ordinal + writes).with_search(each.table, search)
            if self._keeps_events:
                self._stored.store(state)
            else:
                self._stored.now = state
        return search

    def _finish(self, each: StagedRange, search: Search) -> None:
        """Store what follows from a range that is in the lake table, then remove it."""
        state, (request, number) = self._stored.now.with_search(each.table, search), each.name
        if request == state.request.id and number:
            state = replace(state, request=state.request.with_done(number, each.staged.rows))
        self._stored.store(state)
        failpoints.hit(failpoints.BEFORE_UNSTAGING)
        self._remove([each])

    def _note_failure(self, each: StagedRange | None, error: CdcError) -> None:
        if each is None:
            return
        table = each.table
        if isinstance(error, (NotJudgedError, LimitExceededError)):
            _log.error("%s is skipped by the incremental snapshot: %s", table, error)
            self._refuse(table, error)
        elif isinstance(error, RereadNeededError):
            _log.warning("Rows of %s could not be written to the lake and will be re-read: %s", table, error)
            search = replace(self._search(each), again=True, moved=())
            self._stored.now = self._stored.now.with_search(table, search)
            self.drop_tables(lambda name: name == table, error.message)
        else:
            self._tries[each.facts.id] += 1
            _log.warning("Rows of %s could not be written to the lake: %s", table, error)
            if self._tries[each.facts.id] >= MAX_TRIES:
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
        found = list(ranges)
        if found:
            self._stored.discard(Discarded(*each.name, reason) for each in found)
            self._remove(found)

    def _remove(self, ranges: Sequence[StagedRange]) -> None:
        if ranges:
            self._staged.remove(each.staged.file for each in ranges)
            gone = {each.staged.file.path for each in ranges}
            self._known = {path: each for path, each in self._known.items() if path not in gone}
            for each in ranges:
                self._slice.pop(each.facts.id, None)
                self._tries.pop(each.facts.id, None)
                self._described_at.pop(each.facts.id, None)

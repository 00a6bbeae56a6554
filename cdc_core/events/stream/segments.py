"""Where a run of events gets the stream's segments: from the slot itself, or from the reader of a run into a lake."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.decode import NoTranslator, RelationRun, Segment, SortedSegment, StreamState, Translator, sort_segment
from cdc_core.lsn import Lsn
from cdc_core.postgres import ReplicationStream
from cdc_core.schema import Relation, TableSchema

_ROWS = 20_000
_BYTES = 8 << 20


class Segments(Protocol):
    """The stream, segment by segment. For one thread."""

    @property
    def is_open(self) -> bool:
        """Whether the last segment ended inside a transaction."""

    @property
    def wal_end(self) -> int:
        """The end of the WAL up to which the server had no more for this stream, as far as it is known."""

    @property
    def passed(self) -> int:
        """The LSN up to which everything was received, or is confirmed."""

    def next(self, seconds: float) -> SortedSegment | None:
        """Return the segment received within some ``seconds``, None if there is none."""

    def confirm(self, lsn: int) -> None:
        """Record that everything up to ``lsn`` is durable."""

    def confirm_idle(self, is_idle: bool) -> None:
        """Record whether all returned segments are durable and complete: an idle stream then confirms the WAL end."""

    def tick(self) -> None:
        """Keep a connection alive while not reading."""


class SlotSegments:
    """``Segments`` of a slot that this run alone reads. ``describe`` returns the table of a relation."""

    def __init__(
        self,
        stream: ReplicationStream,
        began_at: Lsn,
        describe: Callable[[Relation, int], TableSchema | None],
        translator: Translator | None = None,
    ) -> None:
        self._stream = stream
        self._translator: Translator = translator or NoTranslator()
        # The translated segments of the last one that was read: the next, and an iterator of the others.
        self._ahead: Segment | None = None
        self._translated: Iterator[Segment] = iter(())
        self._state = StreamState(prior_end_lsn=int(began_at))
        self._describe = describe

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or received bytes have not been returned."""
        return self._state.open is not None or self._translator.is_open or self._ahead is not None

    @property
    def wal_end(self) -> int:
        """The server's end of WAL in its last message."""
        return self._stream.wal_end

    @property
    def passed(self) -> int:
        """The larger of the confirmed position and the server's end of WAL."""
        return max(self._stream.confirmed_lsn, self._stream.wal_end)

    def next(self, seconds: float) -> SortedSegment | None:
        """Read and sort."""
        if self._ahead is None:
            segment = self._stream.read(_ROWS, _BYTES, seconds)
            if segment is None:
                return None
            self._translated = iter(self._translator.feed(segment))
            self._ahead = next(self._translated, None)
            if self._ahead is None:
                return None
        translated, self._ahead = self._ahead, next(self._translated, None)
        return sort_segment(translated, self._state, self._describe)

    def confirm(self, lsn: int) -> None:
        """Confirm to the slot."""
        self._stream.confirm(lsn)

    def confirm_idle(self, is_idle: bool) -> None:
        """Let the connection confirm the server's WAL end while the stream is idle."""
        self._stream.idle_confirm(is_idle)

    def tick(self) -> None:
        """Send a status message if one is due."""
        self._stream.tick()


class SharedSegments:
    """``Segments`` that the reader of another run passes on (``segment_sorter.Tap``), bounded in bytes.

    The reader's thread puts; one thread takes; a third asks up to where the slot may be confirmed. Segments are kept in
    memory, not in files: the clear text of masked columns must not be written anywhere.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._queue: deque[tuple[SortedSegment, int]] = deque()
        self._bytes = 0
        self._full_since: float | None = None
        self._durable = 0
        self._is_settled = True
        self._is_open = False
        self._wal_end = 0
        self._after = 0

    def start_after(self, lsn: Lsn) -> None:
        """Leave out transactions that end at or before ``lsn``, which the destination has; 0 if it has none.

        source.sequence continues from there.
        """
        self._after = int(lsn)

    @property
    def has_room(self) -> bool:
        """Whether more may be put."""
        with self._changed:
            return self._bytes < self._most_bytes

    @property
    def full_seconds(self) -> float:
        """The seconds for which the queue has been full without a segment taken; 0 if it has room."""
        with self._changed:
            return 0.0 if self._full_since is None else time.monotonic() - self._full_since

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait."""
        with self._changed:
            return self._bytes

    def put(self, segment: SortedSegment) -> None:
        """Add a segment, in stream order."""
        size = sum(run.raw.nbytes for run in segment.runs) + sum(len(message.content) for message in segment.messages)
        with self._changed:
            self._queue.append((segment, size))
            self._bytes += size
            self._is_settled = False
            if self._bytes >= self._most_bytes and self._full_since is None:
                self._full_since = time.monotonic()
            self._changed.notify_all()

    def note_silence(self, wal_end: int) -> None:
        """Record an end of WAL before which everything was put."""
        with self._changed:
            self._wal_end = max(self._wal_end, wal_end)

    def reach(self, lsn: int) -> int:
        """Return up to where the slot may be confirmed, at most ``lsn``, before which everything was put."""
        with self._changed:
            return lsn if self._is_settled else min(lsn, self._durable)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was put is durable."""
        with self._changed:
            return self._is_settled

    @property
    def is_open(self) -> bool:
        """Whether the last segment ended inside a transaction."""
        return self._is_open

    @property
    def wal_end(self) -> int:
        """The last silent end of WAL, 0 while segments wait."""
        with self._changed:
            return 0 if self._queue else self._wal_end

    @property
    def passed(self) -> int:
        """The same."""
        return self.wal_end

    def next(self, seconds: float) -> SortedSegment | None:
        """Return the waiting segments, up to a size, as one, without changes before the start.

        The reader passes on many small ones. Each costs as much besides its rows, so the thread could not catch up.
        """
        with self._changed:
            if not self._queue:
                self._changed.wait(seconds)
            if not self._queue:
                return None
            taken = [self._taken()]
            while self._queue and sum(part.frames for part, _ in (*taken, self._queue[0])) <= _ROWS:
                if sum(size for _, size in (*taken, self._queue[0])) > _BYTES:
                    break
                taken.append(self._taken())
            self._full_since = time.monotonic() if self._bytes >= self._most_bytes else None
        segment = joined([part for part, _ in taken])
        self._is_open = segment.open_transaction
        return later(segment, self._after) if self._after else segment

    def _taken(self) -> tuple[SortedSegment, int]:
        found = self._queue.popleft()
        self._bytes -= found[1]
        return found

    def confirm(self, lsn: int) -> None:
        """Record the durable position."""
        with self._changed:
            self._durable = max(self._durable, int(lsn))

    def confirm_idle(self, is_idle: bool) -> None:
        """Record whether all segments taken are durable; those put since are not."""
        with self._changed:
            self._is_settled = is_idle and not self._queue

    def tick(self) -> None:
        """Do nothing: the reader keeps its connection."""


def joined(parts: Sequence[SortedSegment]) -> SortedSegment:
    """Return consecutive segments as one. Their ``seq`` continue from one to the next."""
    if len(parts) == 1:
        return parts[0]
    runs: dict[tuple[int, int], list[RelationRun]] = {}
    for run in (run for part in parts for run in part.runs):
        runs.setdefault((id(run.relation), id(run.table)), []).append(run)
    commits = [part for part in parts if part.last_commit_end_lsn is not None]
    return SortedSegment(
        [replace(same[0], raw=pa.concat_batches([run.raw for run in same])) for same in runs.values()],
        [item for part in parts for item in part.truncates],
        [item for part in parts for item in part.messages],
        pa.concat_batches([part.transactions for part in parts]),
        commits[-1].last_commit_lsn if commits else None,
        commits[-1].last_commit_end_lsn if commits else None,
        parts[-1].open_transaction,
        sum(part.frames for part in parts),
        sum(part.row_messages for part in parts),
        sum(part.captured_rows for part in parts),
    )


def later(segment: SortedSegment, lsn: int) -> SortedSegment:
    """Return a segment without the transactions that end at or before ``lsn``, the end of one of them."""
    marks = segment.transactions
    end = segment.last_commit_end_lsn
    is_new = end is not None and end > lsn
    runs = [replace(run, raw=_continued(_from(run.raw, lsn), lsn)) for run in segment.runs]
    truncates = [item for item in segment.truncates if item.commit_lsn >= lsn]
    return replace(
        segment,
        runs=[run for run in runs if run.raw.num_rows],
        truncates=[item if item.prior_end_lsn else replace(item, prior_end_lsn=lsn) for item in truncates],
        messages=[item for item in segment.messages if (item.commit_lsn or item.lsn) >= lsn],
        transactions=_from(marks, lsn),
        last_commit_lsn=segment.last_commit_lsn if is_new else None,
        last_commit_end_lsn=end if is_new else None,
    )


def _continued(raw: pa.RecordBatch, lsn: int) -> pa.RecordBatch:
    """Return rows of the reader's first transaction with ``lsn`` as the end of the one before, which it did not see."""
    prior = raw.column("prior_end_lsn").to_numpy()
    if not len(prior) or prior[0]:
        return raw
    at = raw.schema.get_field_index("prior_end_lsn")
    return raw.set_column(at, raw.schema.field(at), pa.array(np.where(prior == 0, lsn, prior), pa.int64()))


def _from(rows: pa.RecordBatch, lsn: int) -> pa.RecordBatch:
    commits = rows.column("commit_lsn").to_numpy()
    # A transaction's commit record lies before its end, which is at or before the next one's.
    return rows if not len(commits) or commits[0] >= lsn else rows.filter(pa.array(np.asarray(commits >= lsn)))

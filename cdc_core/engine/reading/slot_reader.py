"""Reads a slot into micro-batches, concurrently with the caller.

    walsender ──▶ reader thread ──segments──▶ sorter thread ──Batch──▶ caller (Spark)
                  appends bytes,              translates, classifies,        appends, merges,
                  answers keepalives          drops what the changelog       confirms
                                              has, spools

The reader thread only receives, so that the walsender is blocked by Python as little as possible, and it answers
keepalives while the caller is busy with Spark. Both queues are bounded: if the caller is slow, the spool reaches its
limit, then the queue of segments, and then TCP flow control blocks the server, which retains the WAL.

Invariants

* A batch contains everything received by the time it is requested: a slow caller gets larger batches, not later ones.
* Only complete batches are passed on; the caller confirms only what it has made durable.
* Segments end anywhere; batches end at the end of a transaction unless a single transaction exceeds the limits: the
  part of a segment after its last commit goes to the next batch if this one is due. (Rows of a transaction that a batch
  divides are read from the changelog again before they are merged, which costs as much as all the rest.)
* An error in either thread is raised by the caller's next ``next_batch``, after the batches that precede it.

Contract

* The public methods are for one thread, the caller's. The reader thread alone uses the connection to receive; a
  confirmation is handed to the connection by the caller's thread (``Confirmations``), never by this module.
* The caller calls ``done`` once for each batch, and only when its rows are durable: ``done`` deletes the only copy on
  this side. Without ``done`` the spool reaches its limit, nothing more is read, and the server keeps its WAL.
* ``next_batch`` may return None any number of times, and may be called again after that. After it has raised, the
  reader is at its end; another one begins at the slot's position.
* ``idle_position`` is a position that may be confirmed although no captured transaction ends there. It is None while
  any batch is not done, or any message is not sorted: otherwise the confirmation would pass changes that are only in
  the spool.
* Rows at or before the builder's positions, which the caller read from the changelogs, are dropped. If a position
  were too high, changes would be missing; one that is too low is noticed by the append, which compares again.
* Transactions that were not confirmed are sent again to the next reader, from their Begin, in other segments and
  batches. The positions of their rows are the same.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from cdc_core.connector_threads import ConnectorThread
from cdc_core.decode import NoTranslator, Segment, Translator
from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reading.batch_builder import BatchBuilder
from cdc_core.engine.reading.seen import Seen
from cdc_core.engine.reading.segment_parts import SegmentPart
from cdc_core.engine.reading.segment_sorter import SegmentSorter
from cdc_core.errors import UnreachableError

_SEGMENT_ROWS = 50_000
_SEGMENT_BYTES = 16 << 20
_SEGMENT_SECONDS = 0.05
_QUEUED_SEGMENTS = 4
_QUEUED_BATCHES = 2
# Besides those: one that the caller has, and one that is being filled.
_HELD_BATCHES = _QUEUED_BATCHES + 2
_POLL_SECONDS = 0.05
_JOIN_SECONDS = 30.0


class Stream(Protocol):
    """The operations of a replication stream that the reader uses (``postgres/replication/stream``)."""

    def read(self, max_rows: int, max_bytes: int, max_seconds: float) -> Segment | None:
        """Return the frames received, or None if none arrived in time."""

    def tick(self) -> None:
        """Keep the connection alive while not reading."""

    def close(self) -> None:
        """Close the connection."""

    @property
    def wal_end(self) -> int:
        """The server's end of WAL in its last message."""


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """Limits of a micro-batch and of the spool as a whole."""

    max_rows: int
    max_bytes: int
    spool_bytes: int


@dataclass(frozen=True, slots=True)
class WaitingChanges:
    """Changes that were received and are not durable, and how many may be: about, for a segment is not divided."""

    rows: int
    most_rows: int
    bytes: int
    most_bytes: int


@dataclass(slots=True)
class _Progress:
    """State shared by the two threads and the caller, under one lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    unsorted: int = 0
    outstanding_rows: int = 0
    outstanding_bytes: int = 0
    outstanding_batches: int = 0
    idle_wal_end: int = 0
    last_data: float = field(default_factory=time.monotonic)


class SlotReader:
    """Reads a stream into micro-batches. A context manager; the caller uses ``next_batch`` and ``done``.

    ``translator`` turns another plug-in's messages into pgoutput's.
    ``on_lost`` is called, in the thread concerned, when the connection to the server is lost: another connection may
    wait for an answer that never comes. ``lost`` is then why.
    """

    def __init__(
        self,
        stream: Stream,
        sorter: SegmentSorter,
        builder: BatchBuilder,
        bounds: BatchBounds,
        translator: Translator | None = None,
        *,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._stream, self._sorter, self._builder, self._bounds = stream, sorter, builder, bounds
        self._translator: Translator = translator or NoTranslator()
        self._kept = 0
        self._on_lost = on_lost
        self.lost: UnreachableError | None = None
        self._segments: queue.Queue[Segment | None] = queue.Queue(_QUEUED_SEGMENTS)
        self._batches: queue.Queue[Batch | BaseException] = queue.Queue(_QUEUED_BATCHES)
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._closed = threading.Event()
        self._progress = _Progress()
        self._threads = [
            ConnectorThread(target=self._guard, args=(body,), name=name, daemon=True)
            for name, body in (("slot-reader", self._read), ("slot-sorter", self._sort))
        ]

    def __enter__(self) -> SlotReader:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._closed.set()
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        self._stream.close()
        self._translator.close()

    def next_batch(self, timeout: float) -> Batch | None:
        """Return a micro-batch of everything received, or None if nothing is received within ``timeout`` seconds.

        Raises the error that ended the reading, once every batch before it has been returned.
        """
        self._wanted.set()
        try:
            item = self._batches.get(timeout=timeout)
        except queue.Empty:
            return None
        self._wanted.clear()
        if isinstance(item, BaseException):
            raise item
        return item

    def done(self, batch: Batch) -> None:
        """Delete a batch's files after its rows have become durable."""
        for path in batch.paths():
            path.unlink(missing_ok=True)
        with self._progress.lock:
            self._progress.outstanding_rows -= batch.rows
            self._progress.outstanding_bytes -= batch.bytes
            self._progress.outstanding_batches -= 1

    def idle_position(self) -> int | None:
        """Return the end of WAL up to which the server had no changes for us; None unless all received ones are done.

        It may be confirmed although no captured transaction ended there. Raises BrokenStreamError.
        """
        with self._progress.lock:
            busy = self._progress.outstanding_batches or self._progress.unsorted
            position = None if busy or not self._progress.idle_wal_end else self._progress.idle_wal_end
        if position is not None:
            self._sorter.note_idle(position)
        return position

    @property
    def seen(self) -> Seen:
        """What was received so far; may be asked by any thread."""
        return self._sorter.seen

    @property
    def waiting(self) -> WaitingChanges:
        """What is not durable yet; may be asked by any thread."""
        bounds = self._bounds
        with self._progress.lock:
            rows, octets = self._progress.outstanding_rows, self._progress.outstanding_bytes
        return WaitingChanges(rows, _HELD_BATCHES * bounds.max_rows, octets, bounds.spool_bytes)

    @property
    def is_drained(self) -> bool:
        """Whether everything received so far has been returned and is done."""
        with self._progress.lock:
            return not self._progress.outstanding_batches and not self._progress.unsorted

    @property
    def has_changes(self) -> bool:
        """Whether captured changes that were received are not done yet, or messages are not sorted yet."""
        with self._progress.lock:
            return self._progress.outstanding_bytes > 0 or self._progress.unsorted > 0

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last message of a captured table, or of the signal table, was received."""
        return time.monotonic() - self._progress.last_data

    @property
    def wal_end(self) -> int:
        """The server's end of WAL in its last message."""
        return self._stream.wal_end

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            self._stop.set()
            if isinstance(error, UnreachableError) and self.lost is None:
                self.lost = error
                self._on_lost()
            self._hand_over(error)

    def _read(self) -> None:
        # A batch is only split between segments, so no segment may be larger than a batch.
        most_rows = min(_SEGMENT_ROWS, self._bounds.max_rows)
        most_bytes = min(_SEGMENT_BYTES, self._bounds.max_bytes)
        while not self._stop.is_set():
            wal_end_before = self._stream.wal_end
            segment = self._stream.read(most_rows, most_bytes, _SEGMENT_SECONDS)
            if segment is None:
                self._note_silence(wal_end_before)
                continue
            with self._progress.lock:
                self._progress.unsorted += 1
                self._progress.idle_wal_end = 0
            while not self._stop.is_set():
                try:
                    self._segments.put(segment, timeout=_POLL_SECONDS)
                    break
                except queue.Full:
                    self._stream.tick()

    def _note_silence(self, wal_end: int) -> None:
        # Read before the read that returned nothing: every frame up to it was returned by an earlier read.
        with self._progress.lock:
            if self._progress.unsorted == 0:
                self._progress.idle_wal_end = wal_end
                self._sorter.note_silence(wal_end)

    def _sort(self) -> None:
        while not self._stop.is_set():
            if not self._sorter.has_room:
                self._hand_over_if_due()
                time.sleep(_POLL_SECONDS)
                continue
            try:
                segment = self._segments.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                segment = None
            if segment is not None:
                for translated in self._translator.feed(segment):
                    for part in self._sorter.parts(translated):
                        self._add(part)
                        self._hand_over_if_due()
                    self._wait_for_room()
                self._note_sorted()
            else:
                self._hand_over_if_due()
            self._wait_for_room()

    def _note_sorted(self) -> None:
        # A translator that keeps messages counts as one segment that is not sorted: they are nowhere else.
        keeps = int(self._translator.is_open)
        with self._progress.lock:
            self._progress.unsorted += keeps - self._kept - 1
        self._kept = keeps

    def _add(self, part: SegmentPart) -> None:
        added = self._builder.add(part)
        with self._progress.lock:
            self._progress.outstanding_rows += added.rows
            self._progress.outstanding_bytes += added.bytes
            self._progress.outstanding_batches += added.is_first
            if added.is_change:
                self._progress.last_data = time.monotonic()

    def _hand_over_if_due(self) -> None:
        if self._builder.has_content and self._is_due(self._builder.batch):
            self._hand_over(self._builder.take())

    def _is_due(self, batch: Batch) -> bool:
        if batch.rows >= self._bounds.max_rows or batch.bytes >= self._bounds.max_bytes:
            return True
        # Only a transaction that is larger than a batch is split.
        return batch.open_lsn is None and self._wanted.is_set()

    def _wait_for_room(self) -> None:
        while not self._stop.is_set():
            with self._progress.lock:
                if self._progress.outstanding_bytes < self._bounds.spool_bytes:
                    return
            time.sleep(_POLL_SECONDS)

    def _hand_over(self, item: Batch | BaseException) -> None:
        while True:
            try:
                self._batches.put(item, timeout=_POLL_SECONDS)
                return
            except queue.Full:
                if self._closed.is_set() or (self._stop.is_set() and not isinstance(item, BaseException)):
                    return

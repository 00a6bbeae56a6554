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
* Rows at or before ``positions``, which the caller read from the changelogs, are dropped here. If a position were too
  high, changes would be missing; one that is too low is noticed by the append, which compares again.
* Transactions that were not confirmed are sent again to the next reader, from their Begin, in other segments and
  batches. The positions of their rows are the same.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.decode.pgoutput.classify import sort_segment
from cdc_core.decode.pgoutput.stream_state import SortedSegment, StreamState, Truncate
from cdc_core.decode.plugin import NoTranslator, Translator
from cdc_core.decode.raw_batch import RAW_SCHEMA
from cdc_core.decode.segment import Segment
from cdc_core.engine.reading.batch import Batch, rows_in_changelog
from cdc_core.engine.reading.continuity import CommitWatch
from cdc_core.engine.reading.delivered import DeliveredFilter
from cdc_core.engine.reading.segment_parts import SegmentPart, parts_of
from cdc_core.engine.reading.spool import Spool
from cdc_core.engine.reading.spool_writer import SpoolWriter
from cdc_core.errors import UnreachableError
from cdc_core.lake.positions import ChangelogPosition
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.schema.relation import Relation
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.signals.rows import signal_rows

_SEGMENT_ROWS = 50_000
_SEGMENT_BYTES = 16 << 20
_SEGMENT_SECONDS = 0.05
_QUEUED_SEGMENTS = 4
_QUEUED_BATCHES = 2
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


class Tap(Protocol):
    """What else gets every segment, in stream order, before a batch with its rows is handed over: another destination.

    While it has no room nothing more is read; batches are still handed over. Called by the reader's threads.
    """

    @property
    def has_room(self) -> bool:
        """Whether more segments may be put."""

    def put(self, found: SortedSegment) -> None:
        """Take a segment."""

    def note_silence(self, wal_end: int) -> None:
        """Take an end of the server's WAL before which every segment was put."""


Describe = Callable[[Relation, int], TableSchema | None]


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """Limits of a micro-batch and of the spool as a whole."""

    max_rows: int
    max_bytes: int
    spool_bytes: int


@dataclass(frozen=True, slots=True)
class SignalTable:
    """The signal table. ``is_kept``: it is also captured like any other table."""

    table: TableId
    is_kept: bool


@dataclass(slots=True)
class _Progress:
    """State shared by the two threads and the caller, under one lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    unsorted: int = 0
    outstanding_bytes: int = 0
    outstanding_batches: int = 0
    idle_wal_end: int = 0
    last_data: float = field(default_factory=time.monotonic)


class SlotReader:
    """Reads a stream into micro-batches. A context manager; the caller uses ``next_batch`` and ``done``.

    ``delivered`` leaves out what another connector has delivered; ``tap`` gets it.
    ``on_lost`` is called, in the thread concerned, when the connection to the server is lost: another connection may
    wait for an answer that never comes. ``lost`` is then why.
    """

    def __init__(
        self,
        stream: Stream,
        describe: Describe,
        positions: Mapping[TableId, ChangelogPosition],
        spool: Spool,
        plan: TypingPlan,
        bounds: BatchBounds,
        signals: SignalTable | None = None,
        watch: CommitWatch | None = None,
        tap: Tap | None = None,
        translator: Translator | None = None,
        *,
        delivered: DeliveredFilter | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._translator: Translator = translator or NoTranslator()
        self._kept = 0
        self._watch = watch
        self._tap = tap
        self._delivered = delivered
        self._on_lost = on_lost
        self.lost: UnreachableError | None = None
        self._signals = signals
        self._stream = stream
        self._describe = describe
        self._positions = dict(positions)
        self._writer = SpoolWriter(spool, plan)
        self._bounds = bounds
        self._segments: queue.Queue[Segment | None] = queue.Queue(_QUEUED_SEGMENTS)
        self._batches: queue.Queue[Batch | BaseException] = queue.Queue(_QUEUED_BATCHES)
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._closed = threading.Event()
        self._progress = _Progress()
        self._state = StreamState()
        self._threads = [
            threading.Thread(target=self._guard, args=(body,), name=name, daemon=True)
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
            self._progress.outstanding_bytes -= batch.bytes
            self._progress.outstanding_batches -= 1

    def idle_position(self) -> int | None:
        """Return the end of WAL up to which the server had no changes for us; None unless all received ones are done.

        It may be confirmed although no captured transaction ended there. Raises BrokenStreamError.
        """
        with self._progress.lock:
            busy = self._progress.outstanding_batches or self._progress.unsorted
            position = None if busy or not self._progress.idle_wal_end else self._progress.idle_wal_end
        if position is not None and self._watch is not None:
            self._watch.note_silence(position)
        return position

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
                if self._tap is not None:
                    self._tap.note_silence(wal_end)

    def _sort(self) -> None:
        batch = Batch(1)
        while not self._stop.is_set():
            if self._tap is not None and not self._tap.has_room:
                batch = self._handed_over(batch)
                time.sleep(_POLL_SECONDS)
                continue
            try:
                segment = self._segments.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                segment = None
            if segment is not None:
                for each in self._translator.feed(segment):
                    batch = self._sorted(batch, each)
                    self._wait_for_room()
                self._note_sorted()
            else:
                batch = self._handed_over(batch)
            self._wait_for_room()

    def _sorted(self, batch: Batch, segment: Segment) -> Batch:
        """Add a segment of pgoutput's messages to the batch; returns the batch to be filled."""
        found = sort_segment(segment, self._state, self._describe)
        if self._watch is not None:
            self._watch.note(found)
        if self._tap is not None:
            self._tap.put(found)
        if self._delivered is not None:
            found = self._delivered.rest(found)
        for part in parts_of(found, self._state.open):
            self._take(batch, part)
            batch = self._handed_over(batch)
        return batch

    def _note_sorted(self) -> None:
        # A translator that keeps messages counts as one segment that is not sorted: they are nowhere else.
        keeps = int(self._translator.is_open)
        with self._progress.lock:
            self._progress.unsorted += keeps - self._kept - 1
        self._kept = keeps

    def _take(self, batch: Batch, found: SegmentPart) -> None:
        was_empty, known = not self._has_content(batch), (batch.rows, len(batch.signals))
        self._add(batch, found)
        is_opened = was_empty and self._has_content(batch)
        with self._progress.lock:
            self._progress.outstanding_batches += is_opened
            if (batch.rows, len(batch.signals)) != known:
                self._progress.last_data = time.monotonic()

    def _handed_over(self, batch: Batch) -> Batch:
        """Return the batch to be filled: a new one if this one was due, and is the caller's now."""
        if not (self._has_content(batch) and self._is_due(batch)):
            return batch
        self._writer.flush()
        self._hand_over(batch)
        return Batch(batch.number + 1)

    @staticmethod
    def _has_content(batch: Batch) -> bool:
        return batch.rows > 0 or batch.complete_lsn is not None or batch.open_lsn is not None

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

    def _add(self, batch: Batch, found: SegmentPart) -> None:
        pieces: list[tuple[TableSchema, pa.RecordBatch, Relation | None]]
        pieces = [(run.table, run.raw, run.relation) for run in found.runs]
        pieces += [(table, truncate_row(cut), None) for cut in found.truncates for table in cut.tables]
        # In stream order, so that a table's versions are in the order in which they were in force.
        if self._signals is not None:
            batch.signals += signal_rows(found.runs, self._signals.table)
            if not self._signals.is_kept:
                pieces = [piece for piece in pieces if piece[0].id != self._signals.table]
        for table, raw, relation in sorted(pieces, key=lambda piece: piece[1].column("seq")[0].as_py()):
            self._add_rows(batch, table, raw, relation)
        if found.last_commit is not None:
            last = found.last_commit
            batch.complete_lsn, batch.confirm_lsn = last.lsn, last.end_lsn
            batch.last_xid, batch.last_ts_us, batch.last_commit_ts_us = last.xid, last.ts_us, last.ts_us
        batch.open_lsn = found.open_lsn

    def _add_rows(self, batch: Batch, table: TableSchema, raw: pa.RecordBatch, relation: Relation | None) -> None:
        known = rows_in_changelog(self._positions.get(table.id, ChangelogPosition(0)), raw)
        if known is not None:
            raw = raw.filter(pa.array(~known))
        if raw.num_rows == 0:
            return
        files, size = batch.files_of(table), raw.nbytes
        files.note(raw, relation is not None and _only_inserts(raw))
        if relation is None:
            self._writer.add_truncates(files, raw)
        else:
            self._writer.add(files, relation, raw, size)
        batch.rows += raw.num_rows
        batch.bytes += size
        with self._progress.lock:
            self._progress.outstanding_bytes += size


def _only_inserts(raw: pa.RecordBatch) -> bool:
    """Whether every message is an Insert, determined by its first byte."""
    payload = raw.column("payload")
    octets = np.frombuffer(payload.buffers()[2], dtype=np.uint8)
    wide = pa.types.is_large_binary(payload.type)
    offsets = np.frombuffer(payload.buffers()[1], dtype=np.int64 if wide else np.int32)
    starts = offsets[payload.offset : payload.offset + len(payload)]
    return bool((octets[starts] == ord("I")).all())


def truncate_row(truncate: Truncate) -> pa.RecordBatch:
    """Return a truncate as the one row of its tables. Shape: RAW_SCHEMA[1]"""
    values = {
        "seq": truncate.seq,
        "lsn": truncate.lsn,
        "commit_lsn": truncate.commit_lsn,
        "tx_index": truncate.tx_index,
        "prior_end_lsn": truncate.prior_end_lsn,
        "xid": truncate.xid,
        "commit_ts_us": truncate.commit_ts_us,
        "origin": truncate.origin,
        "origin_lsn": truncate.origin_lsn,
        "payload": b"",
    }
    return pa.RecordBatch.from_pylist([values], schema=RAW_SCHEMA)

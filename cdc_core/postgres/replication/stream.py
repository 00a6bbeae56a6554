"""The replication protocol with a walsender: receive frames, and send status updates in between.

``attach`` makes the connection, ``standby_status`` keeps the positions that are reported on it, ``silence`` notices
when no bytes arrive, ``stream_errors`` converts the error that ended the stream.

The receive loop only appends bytes: decoding here would slow down the server, which sends each message separately. For
the same reason it does not read immediately: after the socket becomes readable it sleeps for half a millisecond and
then reads everything available, so that neither side is woken up for every message.

Threads. One thread reads (``read``, ``tick``, ``idle_confirm``); any thread may call ``confirm``, which only stores the
position for the next status update. ``close`` is called after the reading thread has ended.
"""

from __future__ import annotations

import select
import struct
import time
from array import array
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import psycopg
from psycopg.pq.abc import PGconn

from cdc_core.decode import FRAME_HEADER, HEADER, Segment
from cdc_core.errors import CdcError, ProtocolError
from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import plugin
from cdc_core.postgres.replication.attach import attach
from cdc_core.postgres.replication.silence import Silence, allowed_seconds
from cdc_core.postgres.replication.standby_status import StandbyStatus
from cdc_core.postgres.replication.stream_errors import end_of_copy, stream_error

_XLOG_DATA, _KEEPALIVE = ord("w"), ord("k")
_KEEPALIVE_BODY = struct.Struct("!cQqB")  # kind, WAL end, clock, reply requested
_NAP_SECONDS = 0.0005
_MAX_WAIT_MS = 50
_FINAL_STATUS_SECONDS = 5.0


class ReplicationStream:
    """One consumer of one slot, from its creation until ``close``.

    Waits for a slot in use according to slot.max.retries and slot.retry.delay.ms. ``check`` is called with the
    connection before it streams: two connections may lead to two servers. Raises SourceError, TransientError or
    ConfigError.
    """

    def __init__(
        self,
        options: PostgresOptions,
        *,
        start_lsn: Lsn | None = None,
        silence_seconds: float | None = None,
        check: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self._options = options
        self._connection, timeout_ms = attach(options, start_lsn or Lsn(0), check)
        self._status = StandbyStatus(options, start_lsn or 0, timeout_ms)
        self._pg: PGconn = self._connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self._has_tls = self._pg.ssl_in_use
        silence_seconds = allowed_seconds(timeout_ms) if silence_seconds is None else silence_seconds
        self._silence = Silence(self._pg.socket, silence_seconds)
        self._closed = False
        # Frames in place of changes that wal2json leaves out with a warning, which arrives in their place.
        self._left_out: list[bytes] = []
        if plugin.warns_of_changes(options):
            self._connection.add_notice_handler(self._note_warning)

    def __enter__(self) -> ReplicationStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def wal_end(self) -> int:
        """The LSN up to which the server has read its WAL for this stream, from its last message."""
        return self._status.wal_end

    @property
    def confirmed_lsn(self) -> Lsn:
        """The LSN of the next status update; 0 if nothing was confirmed."""
        return Lsn(self._status.confirmed)

    def confirm(self, lsn: int) -> None:
        """Record that every transaction that ends at or before ``lsn`` is durable. Never decreases. For any thread."""
        self._status.confirm(lsn)

    def idle_confirm(self, idle: bool = True) -> None:
        """Record that all frames returned so far are durable and no transaction among them is open.

        While this is so, each end of WAL that the server sends is confirmed automatically, so that an idle table
        retains no WAL. It ends with the next frame.
        """
        self._status.set_idle(idle)

    def read(self, max_rows: int, max_bytes: int, max_seconds: float) -> Segment | None:
        """Return frames until a limit is reached (the last may exceed ``max_bytes``), or None if none arrived in time.

        Answers the server meanwhile. Raises TransientError if the connection ends or receives nothing, SourceError if
        the server refuses to continue.
        """
        buffer, ends = bytearray(), array("q")
        deadline = time.monotonic() + max_seconds
        try:
            while True:
                is_full = self._take(buffer, ends, max_rows, max_bytes)
                self._keep_in_touch()
                if is_full or time.monotonic() >= deadline:
                    break
                self._wait(deadline)
        except psycopg.Error as error:
            raise self._lost(error) from None
        if not ends:
            return None
        self._note_frames(buffer, ends)
        return Segment(buffer, np.frombuffer(ends, dtype=np.int64))

    def tick(self) -> None:
        """Send a status update if one is due, and notice silence; for a reading thread that waits for something else.

        Raises as ``read`` does.
        """
        try:
            self._keep_in_touch()
            self._silence.look()
        except psycopg.Error as error:
            raise self._lost(error) from None

    def close(self) -> None:
        """Send the last confirmation to the server, end the stream and the connection. Bounded time; never raises."""
        if self._closed:
            return
        self._closed = True
        with suppress(psycopg.Error, OSError):
            self._status.report(self._pg.put_copy_data)
            self._end_copy()
        self._connection.close()

    def _take(self, buffer: bytearray, ends: array[int], max_rows: int, max_bytes: int) -> bool:
        """Append what libpq has buffered; returns whether a limit is reached."""
        get, append, left_out, before = self._pg.get_copy_data, ends.append, self._left_out, len(ends)
        while True:
            length, data = get(1)
            if left_out:
                for frame in left_out:
                    buffer += frame
                    append(len(buffer))
                left_out.clear()
            if length <= 0:
                break
            if data[0] == _XLOG_DATA:
                buffer += data
                append(len(buffer))
                if len(ends) >= max_rows or len(buffer) >= max_bytes:
                    self._silence.ended()
                    return True
            else:
                self._note_keepalive(bytes(data), has_frames=bool(ends))
        if len(ends) > before:
            self._silence.ended()
        if length == -1:
            raise end_of_copy(self._pg, self._options)
        return False

    def _note_warning(self, warning: psycopg.errors.Diagnostic) -> None:
        message = plugin.left_out(warning.message_primary or "")
        if message is not None:
            received = self._status.received
            self._left_out.append(HEADER.pack(b"w", received, received, 0) + message)

    def _wait(self, deadline: float) -> None:
        """Wait until the socket is readable or the deadline; then read everything available into libpq's buffer."""
        if not self._poll.poll(0):
            before = time.monotonic()
            readable = self._poll.poll(min(_MAX_WAIT_MS, max(0.0, deadline - before) * 1000))
            if readable:
                time.sleep(_NAP_SECONDS)
            else:
                self._silence.lasts(time.monotonic() - before)
                if not self._has_tls:
                    return
        # With TLS, bytes may be buffered in the library although the socket is not readable, so it is read in any case.
        self._pg.consume_input()

    def _note_keepalive(self, message: bytes, has_frames: bool) -> None:
        if message[0] != _KEEPALIVE or len(message) != _KEEPALIVE_BODY.size:
            raise ProtocolError(
                "", None, "a frame of XLogData or a keepalive", f"kind {message[0]}, {len(message)} bytes"
            )
        self._silence.ended()
        _, wal_end, _, wants_reply = _KEEPALIVE_BODY.unpack(message)
        self._status.note_keepalive(wal_end, follows_frames=has_frames)
        if wants_reply:
            self._status.report(self._pg.put_copy_data)
            self._pg.flush()

    def _note_frames(self, buffer: bytearray, ends: array[int]) -> None:
        # The last frame is sufficient: LSNs of frames do not decrease, except for Relation messages, which have none.
        start = ends[-2] if len(ends) > 1 else 0
        if len(buffer) - start < FRAME_HEADER:
            raise ProtocolError("", None, f"a header of {FRAME_HEADER} bytes", f"{len(buffer) - start} bytes")
        _, wal_start, wal_end, _ = HEADER.unpack_from(buffer, start)
        self._status.note_frames(wal_start, wal_end)

    def _keep_in_touch(self) -> None:
        self._status.report_if_due(self._pg.put_copy_data)
        self._pg.flush()  # also what was not sent before; waiting for it here could deadlock both sides

    def _end_copy(self) -> None:
        """End this side of the copy and read until the server ends its side: then it has received the last status."""
        self._pg.put_copy_end()
        deadline = time.monotonic() + _FINAL_STATUS_SECONDS
        while time.monotonic() < deadline:
            self._pg.flush()
            length = 1
            while length > 0:
                length, _ = self._pg.get_copy_data(1)
            if length == -1:
                return
            self._poll.poll(_MAX_WAIT_MS)
            self._pg.consume_input()

    def _lost(self, error: psycopg.Error) -> CdcError:
        return stream_error(error, self._options)

"""The replication protocol with a walsender: START_REPLICATION, receive frames, send status messages.

The receive loop only appends bytes: decoding here would slow down the server, which sends each message separately. For
the same reason it does not read immediately: after the socket becomes readable it sleeps for half a millisecond and
then reads everything available, so that neither side is woken up for every message.

Threads. One thread reads (``read``, ``tick``); any thread may call ``confirm`` and ``idle_confirm``, which only store
the positions for the next status message. ``close`` is called after the reading thread has ended.

In a status message, *flushed* and *applied* are the LSN confirmed by the caller, so the server removes no WAL before
it; *written* is the LSN received, which is for information only. Before the first confirmation, nothing is confirmed to
the server.
"""

from __future__ import annotations

import re
import select
import struct
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import psycopg
from psycopg import sql
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from cdc_core.clock import postgres_now_us
from cdc_core.decode.segment import FRAME_HEADER, Segment
from cdc_core.errors import CdcError, InUseError, ProtocolError, ServerBusyError, SourceError
from cdc_core.lsn import Lsn
from cdc_core.postgres.connect import Connection, connect, has_raw_text
from cdc_core.postgres.options import LsnFlushMode, PostgresOptions
from cdc_core.postgres.replication import plugin
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.replication.silence import Silence
from cdc_core.postgres.sqlstate import row_fault, server_error

_XLOG_DATA, _KEEPALIVE = ord("w"), ord("k")
_HEADER = struct.Struct("!cQQq")  # kind, WAL start, WAL end, clock: FRAME_HEADER bytes
_KEEPALIVE_BODY = struct.Struct("!cQqB")  # kind, WAL end, clock, reply wanted
_STATUS = struct.Struct("!cQQQqB")  # kind, written, flushed, applied, clock, reply wanted

# In the context of an error of the output plugin, in any language.
_LSN = re.compile(r"\b[0-9A-F]+/[0-9A-F]+\b")
_NAP_SECONDS = 0.0005
_MAX_WAIT_MS = 50
_MAX_STATUS_SECONDS = 10.0
# The server ends a connection whose client is silent for wal_sender_timeout; this side allows it the same time, in
# which it is asked for a reply at least three times.
_LEAST_SILENCE_SECONDS, _MOST_SILENCE_SECONDS = 5.0, 300.0
_FINAL_STATUS_SECONDS = 5.0
_LOOK_SECONDS = 0.5  # between two attempts to attach to a slot in use


class ReplicationStream:
    """One consumer of one slot, from its creation until ``close``.

    Waits for a slot in use according to slot.max.retries and slot.retry.delay.ms. ``check`` is called with the
    connection before it streams: two connections may lead to two servers. Raises SourceError, TransientError or
    ConfigError.
    """

    def __init__(
        self,
        options: PostgresOptions,
        slot: str | None = None,
        publication: str | None = None,
        start_lsn: Lsn | None = None,
        extra_params: tuple[tuple[str, str], ...] = (),
        *,
        silence_seconds: float | None = None,
        check: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self._slot = slots.validate_slot_name(slot or options.slot_name)
        self._publication = publication or options.publication_name
        self._plugin_options = replace(options, slot_stream_params=(*options.slot_stream_params, *extra_params))
        plugin.checked(options.plugin_name, self._plugin_options.slot_stream_params)
        self._confirms_slot = options.lsn_flush_mode is not LsnFlushMode.MANUAL and options.flush_lsn_source
        self._lock = threading.Lock()
        self._confirmed = 0
        self._is_idle = False
        self._received = 0
        self._wal_end = int(start_lsn or 0)
        self._silent_end = 0
        self._reported = 0
        self._closed = False
        self._connection, patience_ms = _attach(options, self._slot, self._start_command, start_lsn or Lsn(0), check)
        self._pg: PGconn = self._connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self._has_tls = self._pg.ssl_in_use
        self._status_seconds = _status_seconds(options, patience_ms)
        silence_seconds = _silence_seconds(patience_ms) if silence_seconds is None else silence_seconds
        self._silence = Silence(self._pg.socket, silence_seconds)
        self._last_status = time.monotonic()
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
        return self._wal_end

    @property
    def received_lsn(self) -> Lsn:
        """WAL start of the last frame that had one; 0 before the first."""
        return Lsn(self._received)

    @property
    def confirmed_lsn(self) -> Lsn:
        """The LSN of the next status message; 0 if nothing was confirmed."""
        return Lsn(self._confirmed)

    def confirm(self, lsn: int) -> None:
        """Record that every transaction that ends at or before ``lsn`` is durable. Never decreases. For any thread."""
        with self._lock:
            if lsn > self._confirmed:
                self._confirmed = int(lsn)

    def idle_confirm(self, idle: bool = True) -> None:
        """Record that all frames returned so far are durable and no transaction among them is open.

        While this is so, each end of WAL that the server sends is confirmed automatically, so that an idle table
        retains no WAL. It ends with the next frame. An end that was sent before is confirmed at once: it lies after the
        frames before it, and every later frame belongs to a transaction that ends after it.
        """
        with self._lock:
            self._is_idle = idle
            if idle:
                self._confirmed = max(self._confirmed, self._silent_end)

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
        """Send a status message if one is due, and notice silence; for a reading thread that waits for something else.

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
            self._send_status(wants_reply=False)
            self._send_final_status()
        self._connection.close()

    def _take(self, buffer: bytearray, ends: array[int], max_rows: int, max_bytes: int) -> bool:
        """Append what libpq has buffered; returns whether a limit is reached."""
        get, append, left_out = self._pg.get_copy_data, ends.append, self._left_out
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
                    return True
            else:
                self._note_keepalive(bytes(data), has_frames=bool(ends))
            self._silence.ended()
        if length == -1:
            raise self._ended()
        return False

    def _note_warning(self, warning: psycopg.errors.Diagnostic) -> None:
        message = plugin.left_out(warning.message_primary or "")
        if message is not None:
            self._left_out.append(_HEADER.pack(b"w", self._received, self._received, 0) + message)

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
        _, wal_end, _, wants_reply = _KEEPALIVE_BODY.unpack(message)
        self._wal_end = max(self._wal_end, wal_end)
        with self._lock:
            self._silent_end = max(self._silent_end, wal_end)
            if self._is_idle and not has_frames:
                self._confirmed = max(self._confirmed, wal_end)
        if wants_reply:
            self._send_status(wants_reply=False)

    def _note_frames(self, buffer: bytearray, ends: array[int]) -> None:
        # The last frame is sufficient: LSNs of frames do not decrease, except for Relation messages, which have none.
        start = ends[-2] if len(ends) > 1 else 0
        if len(buffer) - start < FRAME_HEADER:
            raise ProtocolError("", None, f"a header of {FRAME_HEADER} bytes", f"{len(buffer) - start} bytes")
        _, wal_start, wal_end, _ = _HEADER.unpack_from(buffer, start)
        self._received = max(self._received, wal_start)
        self._wal_end = max(self._wal_end, wal_end)
        with self._lock:
            self._is_idle = False

    def _keep_in_touch(self) -> None:
        """Send a status message if one is due or the confirmed position has advanced."""
        with self._lock:
            has_advanced = self._confirms_slot and self._confirmed > self._reported
        if time.monotonic() - self._last_status >= self._status_seconds:
            # A reply is requested, so that a dead connection is detected and an idle server still sends its end of WAL.
            self._send_status(wants_reply=True)
        elif has_advanced:
            self._send_status(wants_reply=False)
        else:
            self._pg.flush()  # what was not sent before; waiting for it here could deadlock both sides

    def _send_status(self, wants_reply: bool) -> None:
        with self._lock:
            confirmed = self._confirmed if self._confirms_slot else 0
            written = max(self._received, self._confirmed, self._wal_end)
        message = _STATUS.pack(b"r", written, confirmed, confirmed, postgres_now_us(), wants_reply)
        if self._pg.put_copy_data(message):
            self._reported = confirmed
            self._last_status = time.monotonic()
        self._pg.flush()

    def _send_final_status(self) -> None:
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

    def _ended(self) -> psycopg.Error | CdcError:
        """Return why the server ended the copy."""
        result = self._pg.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            return psycopg.errors.error_from_result(result, encoding="utf-8")
        return ServerBusyError(
            "The server ended the stream: it is stopping or restarting.",
            "Run again once the server accepts connections.",
        )

    def _lost(self, error: psycopg.Error) -> CdcError:
        return _stream_error(error, self._slot, self._publication)

    def _start_command(self, version: int, start_lsn: Lsn) -> sql.Composed:
        parameters = plugin.parameters(self._plugin_options, self._publication, version, in_progress=True)
        listed = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in parameters.items()
        )
        return sql.SQL("START_REPLICATION SLOT {} LOGICAL {} {}").format(
            sql.Identifier(self._slot),
            sql.SQL(str(start_lsn)),
            sql.SQL("({})").format(listed) if parameters else sql.SQL(""),
        )


def _attach(
    options: PostgresOptions,
    slot: str,
    command: Callable[[int, Lsn], sql.Composed],
    start_lsn: Lsn,
    check: Callable[[Connection], None],
) -> tuple[Connection, int]:
    """Return the streaming connection, and the server's wal_sender_timeout in milliseconds (0: none)."""
    deadline = time.monotonic() + options.slot_max_retries * options.slot_retry_delay_ms / 1000
    while True:
        connection = connect(options, replication=True)
        try:
            row = connection.execute("SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'").fetchone()
            try:
                check(connection)
            except CdcError:
                connection.close()
                raise
            # Encoded as UTF-8, as all names are, before the text of rows is received as it is stored.
            start = command(connection.info.server_version, start_lsn).as_bytes(connection)
            if plugin.warns_of_changes(options):
                connection.execute("SET client_min_messages = warning")
            if has_raw_text(connection):
                connection.execute("SET client_encoding = SQL_ASCII")
            slots.clear_two_phase(connection, slot)
            connection.execute(start)
            return connection, int(row[0]) if row else 0
        except (psycopg.Error, InUseError) as error:
            connection.close()
            failure = error if isinstance(error, InUseError) else _stream_error(error, slot, options.publication_name)
            if not isinstance(failure, InUseError) or time.monotonic() >= deadline:
                raise failure from None
        time.sleep(min(_LOOK_SECONDS, options.slot_retry_delay_ms / 1000))


def _status_seconds(options: PostgresOptions, patience_ms: int) -> float:
    """Return the seconds between two status messages: as configured, but well below the server's time-out."""
    wanted = min(_MAX_STATUS_SECONDS, options.status_update_interval_ms / 1000)
    return min(wanted, patience_ms / 3000) if patience_ms else wanted


def _silence_seconds(patience_ms: int) -> float:
    """Return the seconds after which a server that sends nothing is taken for lost."""
    wanted = patience_ms / 1000 or _MOST_SILENCE_SECONDS
    return max(_LEAST_SILENCE_SECONDS, min(wanted, _MOST_SILENCE_SECONDS))


def _stream_error(error: psycopg.Error, slot: str, publication: str) -> CdcError:
    text = error.diag.message_primary or ""
    if isinstance(error, psycopg.errors.ObjectInUse):
        pid = "".join(character for character in text.rpartition("PID")[2] if character.isdecimal())
        return slots.in_use(slot, int(pid) if pid else None)
    if isinstance(error, psycopg.errors.UndefinedObject) and "publication" in text:
        return SourceError(
            f'Publication "{publication}" did not exist when the changes in the slot were made.',
            "Create it, drop the slot, and take a new snapshot: a publication must be older than what it publishes.",
        )
    if isinstance(error, psycopg.errors.UndefinedObject):
        return SourceError(f"Slot {slot} does not exist.", "Take a snapshot: it creates the slot.")
    if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState | psycopg.errors.UndefinedFile):
        return SourceError(
            f"Slot {slot} can no longer be read: {text.rstrip('.')}.",
            f"Run SELECT pg_drop_replication_slot('{slot}') and take a new snapshot.",
        )
    fault = row_fault(error)
    if fault is not None:
        place = _LSN.search(error.diag.context or "")
        return SourceError(
            f"The server cannot send a change from slot {slot}{f' at LSN {place[0]}' if place else ''}: {fault}.",
            "Correct or delete the row in the source. The WAL keeps the old one, so no run can pass it: then run "
            f"SELECT pg_drop_replication_slot('{slot}') and wal2lake snapshot.",
        )
    return server_error(error, f"streaming from slot {slot}")

"""Reads the changes that a slot has not delivered yet, without moving it: the slot must not be in use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
from psycopg import sql

from cdc_core.decode import HEADER, Segment
from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import plugin, plugin_library
from cdc_core.postgres.server import sendable_end
from cdc_core.postgres.sqlstate import server_error

_FRAMES = 20_000
_FLUSH_SECONDS = 10.0
_POLL_SECONDS = 0.05


def peek(connection: Connection, options: PostgresOptions, upto: Lsn) -> Iterator[Segment]:
    """Yield the slot's changes up to the commit that ends at or after ``upto``, as segments of the stream.

    They are decoded from the slot's confirmed position on and stay in the slot. The server keeps them in a temporary
    file until they are read. Raises SourceError, or TransientError if the slot is in use.
    """
    _await_sendable(connection, upto)
    told = plugin.parameters(options, options.publication_name, connection.info.server_version)
    arguments = (options.slot_name, str(upto), None, *(text for pair in told.items() for text in pair))
    query = sql.SQL("SELECT (lsn - '0/0')::bigint, data FROM pg_logical_slot_peek_binary_changes({})").format(
        sql.SQL(", ").join(map(sql.Literal, arguments))
    )
    with closing(connection.cursor()) as cursor:
        frames: list[bytes] = []
        try:
            for lsn, data in cursor.stream(query, binary=True):  # row-wise: only what no run has read yet
                frames.append(HEADER.pack(b"w", lsn, lsn, 0) + data)
                if len(frames) == _FRAMES:
                    yield Segment.of(frames)
                    frames = []
        except psycopg.Error as error:
            refusal = plugin_library.load_error(error, connection, options.plugin_name.on_server)
            raise refusal or server_error(error, "reading the changes that wait in the slot") from None
        if frames:
            yield Segment.of(frames)


def _await_sendable(connection: Connection, lsn: Lsn) -> None:
    # A transaction that was committed asynchronously is visible before it is on disk, and decoded only then.
    deadline = time.monotonic() + _FLUSH_SECONDS
    while sendable_end(connection) < lsn and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)

"""Facts about the server: version, role in replication, end of WAL."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.sqlstate import one_row, translated
from cdc_core.visibility import full_ids


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """``version`` as a number (150018), ``text`` as printed (15.18)."""

    version: int
    text: str
    is_standby: bool
    wal_level: str
    wal_end: Lsn


def server_info(connection: Connection) -> ServerInfo:
    """Read the facts again. Raises SourceError or TransientError."""
    with translated("reading the server version"):
        row = one_row(
            connection, "SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('wal_level')"
        )
    return ServerInfo(connection.info.server_version, row[0], row[1], row[2], wal_end(connection))


# An insert position just after a page's header is, for a reader, the start of the page: no record ends in between, and
# a target there would only be reached by the next record. Headers have 24 bytes, 40 on a segment's first page.
_END = """
SELECT lsn::text, (lsn - '0/0')::numeric % pg_size_bytes(current_setting('wal_segment_size'))
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN {standby} ELSE pg_current_wal_insert_lsn() END AS lsn) AS position
"""
_WAL_END = _END.format(standby="coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())")
_SHOWN_END = _END.format(standby="pg_last_wal_replay_lsn()")


# The LSN up to which a walsender sends: the WAL on disk, on a standby the replayed WAL.
_SENDABLE = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text
"""


def sendable_end(connection: Connection) -> Lsn:
    """Return the LSN up to which a walsender can decode now.

    Unlike ``wal_end`` it is reached without further writing, also while a transaction is open that wrote something. An
    asynchronous commit (``synchronous_commit=off``) may end behind it for three times ``wal_writer_delay``.
    """
    with translated("reading the end of the WAL"):
        row = one_row(connection, _SENDABLE)
    return Lsn.parse(row[0])


def wal_end(connection: Connection) -> Lsn:
    """Return the LSN after the newest record written: every transaction committed by now ends at or before it.

    On a standby: the LSN received. Who waits until the stream has passed it calls ``request_flush``.
    """
    return _end(connection, _WAL_END)


# Its commit has no changes, so that it is neither decoded nor waited for.
_REQUEST_FLUSH = """
SELECT CASE WHEN pg_is_in_recovery() THEN NULL WHEN pg_current_wal_flush_lsn() >= %s::pg_lsn THEN NULL
    ELSE txid_current() END
"""


def request_flush(connection: Connection, lsn: Lsn) -> None:
    """Have the server write its WAL to disk up to an LSN soon, so that walsenders reach it.

    Without this, the records of an open transaction (that of LOCK TABLE, for one) may stay in memory until something
    else is committed, on an idle server for any time. Uses up a transaction id if they do.
    """
    with translated("requesting a flush of the WAL"):
        connection.execute(_REQUEST_FLUSH, (str(lsn),))


def shown_end(connection: Connection) -> Lsn:
    """Return an LSN before which every commit is shown by snapshots that are taken from now on.

    On a standby: the LSN replayed.
    """
    return _end(connection, _SHOWN_END)


def _end(connection: Connection, query: str) -> Lsn:
    with translated("reading the end of the WAL"):
        row = one_row(connection, query.encode())
    lsn, in_segment = Lsn.parse(row[0]), int(row[1])
    if in_segment == 40:
        return Lsn(lsn - 40)
    if in_segment != 24 and in_segment % 8192 == 24:
        return Lsn(lsn - 24)
    return lsn


# The next free transaction id. It differs from a snapshot's xmax, which follows the last transaction that has ended;
# open transactions may have later ids.
_NEXT_ID = """
SELECT xmax + ((age('3'::xid)::bigint + 3 - xmax) % (1::bigint << 32) + (1::bigint << 32)) % (1::bigint << 32)
FROM (SELECT txid_snapshot_xmax(txid_current_snapshot()) AS xmax) AS snapshot
"""
_OLDEST_ID = "SELECT txid_snapshot_xmin(txid_current_snapshot())"


def next_transaction(connection: Connection) -> int:
    """Return an id (64 bits) that no transaction has yet: those that are open have lower ones."""
    return _transaction_id(connection, _NEXT_ID)


def oldest_transaction(connection: Connection) -> int:
    """Return an id (64 bits) below which every transaction, also a prepared one, has ended."""
    return _transaction_id(connection, _OLDEST_ID)


def is_running(connection: Connection, xid: int) -> bool:
    """Whether a transaction (32 bits) has not ended, or is committed and not visible to new snapshots yet.

    Before PostgreSQL 10, and for an id that this server has not given yet: False.
    """
    if connection.info.server_version < 100_000:
        return False
    following = next_transaction(connection)
    full = full_ids(xid, following)
    if not 0 < full < following:
        return False
    with translated("reading whether a transaction has ended"):
        return bool(one_row(connection, "SELECT txid_status(%s) = 'in progress'", (full,))[0])


def _transaction_id(connection: Connection, query: str) -> int:
    with translated("reading transaction ids"):
        row = one_row(connection, query.encode())
    return int(row[0])

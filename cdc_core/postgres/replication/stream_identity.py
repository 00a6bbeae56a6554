"""Whose stream it is: the server's system identifier, its timelines, the database and the slot's position.

A system identifier is made by initdb and shared by a server, its standbys and its restored backups. The timeline
distinguishes these: each promotion or recovery to a point in time begins one, at an LSN that its history file holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.replication.slot import SlotInfo
from cdc_core.postgres.sqlstate import one_row, translated


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What one replication connection is connected to.

    ``history``: the timelines before ``timeline``, each with the LSN at which it was left; None if the server no longer
    has the file. ``flushed``: the end of the WAL on disk, on a standby of what it has received.
    """

    system_id: str
    timeline: int
    history: tuple[tuple[int, Lsn], ...] | None
    flushed: Lsn
    is_standby: bool
    database: str
    database_oid: int
    slot: SlotInfo


def stream_facts(replication: Connection, slot: str) -> StreamFacts:
    """Read the facts on a replication connection, before it streams. Raises SourceError or TransientError."""
    with translated("identifying the server"):
        system = one_row(replication, "IDENTIFY_SYSTEM")
        row = one_row(
            replication,
            "SELECT pg_is_in_recovery(), d.datname, d.oid::bigint FROM pg_database AS d "
            "WHERE d.datname = current_database()",
        )
    system_id, timeline, flushed = str(system[0]), int(system[1]), Lsn.parse(str(system[2]))
    history = _history(replication, timeline)
    return StreamFacts(system_id, timeline, history, flushed, row[0], row[1], row[2], slots.inspect(replication, slot))


def server_mark(connection: Connection) -> tuple[str, int]:
    """Return the system identifier and the timeline of an ordinary connection; empty and 0 where they are unknown.

    A standby does not report its timeline here, and a server may refuse both to the role.
    """
    try:
        row = connection.execute(
            "SELECT system_identifier::text, CASE WHEN pg_is_in_recovery() THEN '0' "
            "ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END FROM pg_control_system()"
        ).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return "", 0
    return ("", 0) if row is None else (str(row[0]), int(row[1], 16))


def _history(replication: Connection, timeline: int) -> tuple[tuple[int, Lsn], ...] | None:
    if timeline == 1:
        return ()
    try:
        row = replication.execute(sql.SQL("TIMELINE_HISTORY {}").format(sql.Literal(timeline))).fetchone()
    except psycopg.errors.UndefinedFile:
        return None
    if row is None:
        return None
    text = bytes(row[1]).decode("utf-8", "replace") if isinstance(row[1], bytes | memoryview) else str(row[1])
    return parse_history(text)


def parse_history(text: str) -> tuple[tuple[int, Lsn], ...]:
    """Return the timelines of a history file, each with the LSN at which it was left, oldest first."""
    found = []
    for line in text.splitlines():
        parts = line.split("#")[0].split()
        if len(parts) >= 2 and parts[0].isdecimal():
            found.append((int(parts[0]), Lsn.parse(parts[1])))
    return tuple(found)

"""The source side of a run: connections, captured tables, publication, slot."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from cdc_core import failpoints
from cdc_core.decode import Translator, translator
from cdc_core.errors import InUseError, OtherServerError, SourceError
from cdc_core.lsn import Lsn
from cdc_core.postgres.catalog.fingerprints import catalogue_stamp
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import Connection, connect, place
from cdc_core.postgres.options import PostgresOptions, PublicationAutocreateMode
from cdc_core.postgres.replication import partition_names, plugin, publication, replica_identity
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.replication.seen_relations import SeenRelations
from cdc_core.postgres.replication.stream_identity import server_mark
from cdc_core.postgres.rows.copy_out import SnapshotHolder
from cdc_core.postgres.server import (
    next_transaction,
    oldest_transaction,
    request_flush,
    sendable_end,
    server_info,
    wal_end,
)
from cdc_core.postgres.sessions import Sessions
from cdc_core.postgres.sqlstate import one_row
from cdc_core.schema import TableId, TableSchema
from cdc_core.selection import OPERATIONS, TableSelection

_log = logging.getLogger(__name__)

_UNLOGGED = "unlogged table"
# Relations that are not captured though a list may name them.
_SILENT = {
    "foreign table": "a foreign table and is not captured: its rows are not stored on this server.",
    _UNLOGGED: "UNLOGGED and is not captured: the WAL does not contain its changes.",
}

_STATEMENT = "Lake and events will lack these changes; wal2lake check prints the statement that corrects it."
_OLDER_SECONDS = 90.0
_OLDER_PAUSE_SECONDS = 0.1
_CLAIM_SECONDS, _CLAIM_NAP_SECONDS = 5.0, 0.1
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('wal2lake:' || %s, 0))"
_HOLDER = """
SELECT l.pid, host(a.client_addr) FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
AND (classid::bigint << 32) | objid::bigint = hashtextextended('wal2lake:' || %s, 0)
"""
_IS_LOCKED = """
SELECT EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND (classid::bigint << 32) | objid::bigint = hashtextextended('wal2lake:' || %s, 0)
)
"""


@dataclass(frozen=True, slots=True)
class OpenSnapshot:
    """A snapshot that is valid until it is closed.

    ``lsn`` is the position up to which it shows changes: a new slot's consistent point (``made_slot``), else the end of
    WAL when it was taken.
    """

    holder: SnapshotHolder
    lsn: Lsn
    made_slot: bool
    _closing: ExitStack

    def close(self) -> None:
        """Close the connection, and thereby the snapshot."""
        self._closing.close()


@dataclass(frozen=True, slots=True)
class Published:
    """The captured tables in the publication.

    ``live`` are those whose changes are sent: if a partitioned table and its partitions are both captured, only under
    one name. ``added`` were just added to the publication, so that earlier changes of theirs are never sent.
    ``is_altered``: the publication or a replica identity was, so what was read of the tables before is out of date.
    """

    live: list[TableSchema]
    added: frozenset[TableId]
    is_altered: bool

    @property
    def names(self) -> set[TableId]:
        """The names of ``live``."""
        return {table.id for table in self.live}


class Source:
    """One connector's server, opened once per run. A context manager.

    ``sessions`` are those of the connector; ``claim`` ends what is left of claims that are over.
    ``told`` are the warnings that were logged: several sources of one process that share it log each one once.
    ``on_slot`` is called with the consistent point of a slot that was just created, before anything is read at it.
    Raises SourceError, TransientError or ConfigError, each with the cause and the remedy.
    """

    def __init__(
        self,
        options: PostgresOptions,
        selection: TableSelection,
        told: set[str] | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self.options = options
        self.selection = selection
        self.on_slot: Callable[[Lsn], None] = lambda lsn: None
        self._told = set() if told is None else told
        self._expected: tuple[str, int] | None = None
        self._sessions = Sessions() if sessions is None else sessions
        self._opened: list[Connection] = []
        self._closing = ExitStack()
        self._selected: list[TableSchema] = []
        self._unlogged: list[TableId] = []
        self._relations: tuple[list[TableId], dict[TableId, str]] = [], {}

    def __enter__(self) -> Source:
        self._connection = self._open()
        self.catalog = self._catalog(self._connection)
        info = server_info(self._connection)
        if info.wal_level != "logical":
            self._closing.close()
            raise SourceError(
                f"The server's wal_level is {info.wal_level}, and logical replication needs logical.",
                "Set wal_level = logical in postgresql.conf and restart the server.",
            )
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.close()

    def claim(self, lake: str = "") -> None:
        """Claim the slot, and the tables in the folder ``lake``: no other process of wal2lake can claim them until
        ``__exit__``, whatever its slot is.

        Waits some seconds for a run that was just killed: the server needs a moment to detect that its connection is
        closed.
        """
        self._closing.enter_context(self._sessions.claiming(self._connection))
        deadline = time.monotonic() + _CLAIM_SECONDS
        while not self._is_free(self.options.slot_name):
            if time.monotonic() >= deadline:
                raise InUseError(
                    f"Another run of wal2lake is using slot {self.options.slot_name}{self._holder()}.",
                    "Wait until it has ended, or stop it: a slot has one consumer at a time.",
                )
            time.sleep(_CLAIM_NAP_SECONDS)
        while lake and not self._is_free(f"lake {lake}"):
            if time.monotonic() >= deadline:
                raise InUseError(
                    f"Another run of wal2lake, which uses another slot than {self.options.slot_name}, is writing to "
                    f"the lake tables in {lake}.",
                    "Give each connector its own topic.prefix or wal2lake.lake.path. If slot.name was changed, stop "
                    "the run that uses the former slot.",
                )
            time.sleep(_CLAIM_NAP_SECONDS)
        self._sessions.note(self._connection)
        self._sessions.was_accepted = True

    def renew(self) -> bool:
        """Discard the cached catalogue, for the next operation that has this claim.

        Return whether there still is a claim: it is that of the connection, which the server may have ended.
        """
        self.catalog = self._catalog(self._connection)
        with suppress(psycopg.Error):
            self._connection.execute("SELECT")
            return True
        return False

    def abandon(self) -> None:
        """End the connections without asking the server, for any thread: what waits for an answer gets an error.

        For a server that has become silent: a query on another connection would wait for it without a limit.
        """
        for connection in self._opened:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def system_id(self) -> str:
        """Return the server's system identifier; empty where the role may not read it."""
        return server_mark(self._connection)[0]

    def is_standby(self) -> bool:
        """Whether the server is a standby now."""
        return server_info(self._connection).is_standby

    def is_in_use(self, slot: str) -> bool:
        """Whether a slot has a consumer now, or a run of wal2lake has claimed it."""
        return slots.inspect(self._connection, slot).active or is_claimed(self._connection, slot)

    def _is_free(self, name: str) -> bool:
        return bool(one_row(self._connection, _LOCK, (name,))[0])

    def _holder(self) -> str:
        """Return who has the claim of the slot: a process and its host, or the session of the server."""
        with suppress(psycopg.Error):
            row = self._connection.execute(_HOLDER, (self.options.slot_name,)).fetchone()
            if row is not None:
                session = f"process {row[0]} of the server, connected from {row[1] or 'its own host'}"
                return f": {self._sessions.process_of(row[0]) or session}"
        return ""

    def tables(self) -> list[TableSchema]:
        """Return the captured tables, in the order of the include list, then by name.

        Foreign and UNLOGGED tables are left out; a log message names them.
        """
        captured = self.catalog.tables(self.selection.includes)
        self._relations = self.catalog.names(), self.catalog.no_tables()
        others = self._relations[1]
        silent = {name: kind for name, kind in others.items() if kind in _SILENT}
        for name in filter(self.selection.includes, silent):
            self.warn(f"{name} is {_SILENT[silent[name]]}")
        self._unlogged = [name for name in filter(self.selection.includes, silent) if silent[name] == _UNLOGGED]
        self._selected = sorted(captured, key=lambda table: self.selection.position(table.id))
        return list(self._selected)

    @property
    def selected(self) -> list[TableSchema]:
        """What ``tables`` has returned last."""
        return self._selected

    @property
    def relations(self) -> tuple[list[TableId], dict[TableId, str]]:
        """Every table when ``tables`` was called last, and every relation that cannot be captured with its kind."""
        return self._relations

    def unlogged(self) -> list[TableSchema]:
        """Return the tables that ``tables`` left out because they are UNLOGGED; a lake may have them from before."""
        found = (self.catalog.current(name) for name in self._unlogged)
        return [table for table in found if table is not None]

    def named(self, tables: list[TableSchema]) -> list[TableSchema]:
        """Return the tables whose changes are sent under their own names (``partition_names``): those of the lake.

        A log message names those of which nothing is captured under any name.
        """
        naming = partition_names.named(self._connection, self.options, tables)
        for name in naming.unheard:
            self.warn(partition_names.unheard_text(name))
        for root, leaves in naming.divided.items():
            self.warn(f"{partition_names.divided_text(root, leaves)} {partition_names.DIVIDED_REMEDY}")
        for text in partition_names.silent_partitions(self._connection, naming.own):
            self.warn(text)
        for leaf, text in partition_names.unlike_partitions(self._connection, naming.own).items():
            self.warn(
                f"{text} Run ALTER TABLE {leaf.quoted} REPLICA IDENTITY FULL, then wal2lake snapshot with the table."
            )
        return naming.own

    def published(self) -> list[TableId]:
        """Return the captured tables whose changes the server sends now, in the order of ``tables``."""
        if not self._has_publication:
            return [table.id for table in self._live(self.tables())]
        found = publication.inspect(self._connection, self.options.publication_name).published
        return sorted((name for name in found if self.selection.includes(name)), key=self.selection.position)

    def catalogue_stamp(self) -> str:
        """Return a text that is another one once the publication, an enum or a composite type was altered."""
        return catalogue_stamp(self._connection, self.options.publication_name)

    def check_publication(self, tables: list[TableSchema]) -> None:
        """Raise SourceError if a publication is missing that must not be created; changes nothing."""
        if self._has_publication and self.options.publication_autocreate_mode is PublicationAutocreateMode.DISABLED:
            publication.ensure(self._connection, self.options, tables)

    def require_publication(self, tables: Sequence[TableSchema] = (), unneeded: Sequence[str] = OPERATIONS) -> None:
        """Raise SourceError if there is no publication: without it some servers stream nothing and report no error.

        Log messages name those of ``tables``, and operations but ``unneeded`` ones (c, u, d, t), that it leaves out.
        """
        if not self._has_publication:
            return
        name = self.options.publication_name
        info = publication.inspect(self._connection, name)
        if not info.exists:
            raise SourceError(
                f'Publication "{name}" no longer exists, and the slot {self.options.slot_name} depends on it.',
                "Re-read all tables with wal2lake snapshot: it creates the publication again.",
            )
        unsent = publication.unsent_operations(info, unneeded)
        # A table of the lake whose changes are sent under another name is paused with that reason.
        marks = {table.id: table.fingerprint and table.fingerprint.publication for table in tables}
        lacking = [
            str(name) for name, mark in marks.items() if name not in info.published and not (mark and not mark.is_own)
        ]
        if unsent:
            self.warn(f"{publication.unsent_text(info, unsent)} {_STATEMENT}")
        if lacking:
            self.warn(f'Publication "{name}" does not include {", ".join(sorted(lacking))}. {_STATEMENT}')

    def publish(self, tables: list[TableSchema], *, always: str = "") -> Published:
        """Create or alter publication and replica identities according to the options.

        The publication lists all captured tables, also partitioned ones that are not among ``tables`` (``named``): it
        then sends the changes of partitions that are made later. Operations in ``always`` are published even if
        ``skipped.operations`` contains them: a lake needs truncates. Changes that open transactions made before a table
        was added are never sent (``await_older_transactions``).
        """
        skipped = [operation for operation in self.selection.skipped_operations if operation not in always]
        added: set[TableId] = set()
        is_altered = False
        if self._has_publication:
            change = publication.ensure(self._connection, self.options, self._selected or tables, skipped)
            added = {table.id for table in tables} if change.created else set(change.added)
            is_altered = change != publication.PublicationChange(change.name)
        rules = self.options.replica_identity_autoset_values
        for identity in replica_identity.autoset(self._connection, rules, tables) if rules else []:
            is_altered |= not identity.problem
            if identity.problem:
                _log.warning("%s", identity.problem)
        if not self._has_publication:
            return Published(self._live(tables), frozenset(), is_altered)
        published = publication.inspect(self._connection, self.options.publication_name).published
        return Published([table for table in tables if table.id in published], frozenset(added), is_altered)

    @property
    def connection(self) -> Connection:
        """For short queries of the thread that opened the source."""
        return self._connection

    @property
    def server_version(self) -> int:
        """As a number like libpq's: 150018."""
        return self._connection.info.server_version

    def slot(self) -> slots.SlotInfo:
        """Return the current state of the slot."""
        return slots.inspect(self._connection, self.options.slot_name)

    def check_slot(self) -> slots.SlotInfo:
        """Return the slot, after waiting for another consumer by slot.max.retries; raises if it cannot be used."""
        return slots.wait_until_free(self._connection, self.options)

    def drop_slot(self) -> None:
        """Drop the slot, so that a new one can be created."""
        slots.drop(self._connection, self.options.slot_name)

    def drop_lost_slot(self, is_allowed: bool) -> None:
        """Drop a slot that the server has invalidated, if the snapshot mode allows to create a new one."""
        if is_allowed and self.slot().is_lost:
            self.drop_slot()

    def drop_on_stop(self) -> None:
        """Drop the slot if slot.drop.on.stop is set."""
        slots.drop_on_stop(self._connection, self.options)

    def make_slot(self) -> Lsn:
        """Create the slot without reading anything; returns its consistent point."""
        with connect(self.options, replication=True) as replication:
            made = slots.create(
                replication,
                self.options.slot_name,
                self.options.plugin_name.on_server,
                failover=self.options.slot_failover,
            )
        failpoints.hit(failpoints.AFTER_SLOT_CREATED)
        self.on_slot(made.consistent_point)
        return made.consistent_point

    def open_snapshot(self) -> OpenSnapshot:
        """Open a snapshot of the source: exported by the slot's creation if there is no slot yet, else taken now."""
        with ExitStack() as opening:
            if self.check_slot().exists:
                holder = opening.enter_context(SnapshotHolder(self._reading()))
                return OpenSnapshot(holder, holder.facts.lsn, False, opening.pop_all())
            replication = opening.enter_context(connect(self.options, replication=True))
            made = slots.create(
                replication,
                self.options.slot_name,
                self.options.plugin_name.on_server,
                failover=self.options.slot_failover,
            )
            failpoints.hit(failpoints.AFTER_SLOT_CREATED)
            self.on_slot(made.consistent_point)
            holder = opening.enter_context(SnapshotHolder(self._reading(), made.snapshot_name))
            return OpenSnapshot(holder, made.consistent_point, True, opening.pop_all())

    def open_concurrent_snapshot(self) -> OpenSnapshot:
        """Open a snapshot of the source now, while this connector streams from the slot."""
        with ExitStack() as opening:
            holder = opening.enter_context(SnapshotHolder(self._reading()))
            return OpenSnapshot(holder, holder.facts.lsn, False, opening.pop_all())

    def await_older_transactions(self, seconds: float = _OLDER_SECONDS) -> bool:
        """Wait until every transaction that is open now has ended; False if one is still open after some seconds."""
        bound, deadline = self.next_transaction(), time.monotonic() + seconds
        while self.oldest_transaction() < bound:
            if time.monotonic() > deadline:
                return False
            time.sleep(_OLDER_PAUSE_SECONDS)
        return True

    def next_transaction(self) -> int:
        """Return an id (64 bits) that no transaction has yet: those that are open have lower ones."""
        return next_transaction(self._connection)

    def oldest_transaction(self) -> int:
        """Return an id (64 bits) below which every transaction, also a prepared one, has ended."""
        return oldest_transaction(self._connection)

    def wal_lsn(self) -> Lsn:
        """Return the end of the server's WAL, which the stream reaches also while nothing else is committed."""
        end = wal_end(self._connection)
        request_flush(self._connection, end)
        return end

    def sendable_lsn(self) -> Lsn:
        """Return the LSN up to which the server can send changes now."""
        return sendable_end(self._connection)

    def describing(self) -> Catalog:
        """Return a catalogue on a separate connection, for the reader's thread."""
        catalog = self._catalog(self._open())
        catalog.types.load_enums()
        return catalog

    def translator(self, catalog: Catalog, tables: list[TableSchema], folder: Path | None = None) -> Translator:
        """Return what turns the plug-in's messages into pgoutput's; ``folder`` as in ``decode.plugins.translator``."""
        relations = SeenRelations(catalog, self.includes(), tables)
        return translator(
            self.options.plugin_name.on_server,
            relations,
            folder,
            before_commit=self.options.sends_in_progress,
            max_bytes=self.options.streaming_transactions_max_bytes,
        )

    def includes(self) -> Callable[[TableId], bool]:
        """Return the function that determines whether a table is captured."""
        return self.selection.includes

    def expect(self, system_id: str, timeline: int) -> None:
        """Require that this and every later connection is to the server with this identifier, on this timeline.

        Raises OtherServerError for another one: behind one name there may be several servers.
        """
        self._expected = system_id, timeline
        self._require_server(self._connection)

    @property
    def _has_publication(self) -> bool:
        return self.options.plugin_name.has_publication

    @staticmethod
    def _live(tables: list[TableSchema]) -> list[TableSchema]:
        """Return the tables whose changes a plug-in without publications sends: partitions by their own names."""
        return [table for table in tables if not table.is_partitioned]

    def _catalog(self, connection: Connection) -> Catalog:
        return Catalog(connection, self.options.publication_name, plugin.sent(self.options))

    def _require_server(self, connection: Connection) -> Connection:
        if self._expected is None:
            return connection
        mark = server_mark(connection)
        if any(mine and mine != expected for mine, expected in zip(mark, self._expected, strict=True)):
            raise OtherServerError(
                f"Two connections to {place(self.options)} reached two servers: system identifier {mark[0]} on "
                f"timeline {mark[1]}, and {self._expected[0]} on timeline {self._expected[1]}.",
                "Let database.hostname lead to one server: a proxy may not choose another for each connection.",
            )
        return connection

    def warn(self, text: str) -> None:
        """Log a warning about the source, once for all sources that share ``told``."""
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)

    def _reading(self) -> Connection:
        return self._require_server(connect(self.options, statement_timeout_ms=0))

    def _open(self) -> Connection:
        connection = self._closing.enter_context(connect(self.options))
        self._opened.append(connection)
        return self._require_server(connection)


def is_claimed(connection: Connection, slot: str) -> bool:
    """Whether a run of wal2lake is using the slot now (``Source.claim``)."""
    return bool(one_row(connection, _IS_LOCKED, (slot,))[0])

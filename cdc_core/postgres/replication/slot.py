"""Replication slots: inspect, create, check, drop, advance.

A slot makes the server retain WAL for its consumer. One connector has one slot, one slot has one consumer.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_core.errors import CdcError, ConfigError, InUseError, SourceError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import plugin_library
from cdc_core.postgres.sqlstate import one_row, server_error, translated

_NAME = re.compile(r"[a-z0-9_]{1,63}")
_CREATE_SECONDS = 90.0
_DROP_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """A slot in pg_replication_slots; all fields but ``name`` are empty if it does not exist.

    ``restart_lsn`` is the oldest WAL the server retains for it, ``confirmed_lsn`` the LSN confirmed by its consumer.
    ``wal_status`` is None before PostgreSQL 13; ``lost`` means that WAL it needs was removed. ``has_two_phase``: the
    server sends prepared transactions at PREPARE, and never again after a restart.
    """

    name: str
    exists: bool = False
    plugin: str | None = None
    database: str | None = None
    is_temporary: bool = False
    active: bool = False
    active_pid: int | None = None
    restart_lsn: Lsn | None = None
    confirmed_lsn: Lsn | None = None
    wal_status: str | None = None
    invalidation_reason: str | None = None
    xmin: int | None = None
    catalog_xmin: int | None = None
    has_two_phase: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether the slot has become permanently unusable."""
        return self.exists and (
            self.wal_status == "lost"
            or bool(self.invalidation_reason)
            or (self.restart_lsn is None and not self.active)
        )


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """A slot just created. ``snapshot_name`` can be imported until the next command on the creating connection.

    The snapshot shows exactly the transactions committed before ``consistent_point``, and the stream contains the
    others.
    """

    name: str
    consistent_point: Lsn
    snapshot_name: str


def validate_slot_name(name: str) -> str:
    """Return the name if it is valid for the server. Raises ConfigError."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"slot.name is {name!r}, which is not a valid name in PostgreSQL.",
            "Use 1 to 63 lower-case letters, digits and underscores.",
        )
    return name


@dataclass(frozen=True, slots=True)
class SlotAges:
    """Seconds; None if the server does not have the value.

    ``lag_seconds`` is the server's flush_lag of an active slot; ``inactive_seconds`` the time since it is inactive,
    from PostgreSQL 17 on.
    """

    lag_seconds: float | None = None
    inactive_seconds: float | None = None


def inspect(connection: Connection, name: str) -> SlotInfo:
    """Read a slot from the catalogue."""
    version = connection.info.server_version
    wal_status = "wal_status" if version >= 130000 else "NULL"
    reason = "invalidation_reason" if version >= 170000 else "NULL"
    two_phase = "two_phase" if version >= 140000 else "false"
    with translated("looking up the slot"):
        # Without parameters: a replication connection accepts simple queries only.
        row = connection.execute(
            sql.SQL(
                "SELECT plugin, database, temporary, active, active_pid, restart_lsn::text, confirmed_flush_lsn::text, "
                f"{wal_status}, {reason}, xmin::text::bigint, catalog_xmin::text::bigint, {two_phase} "
                "FROM pg_replication_slots WHERE slot_name = {}"
            ).format(sql.Literal(name))
        ).fetchone()
    if row is None:
        return SlotInfo(name)
    plugin, database, temporary, active, pid, restart, confirmed, status, why, xmin, catalog_xmin, two_phase = row
    return SlotInfo(
        name, True, plugin, database, temporary, active, pid, _lsn(restart), _lsn(confirmed), status, why, xmin,
        catalog_xmin, two_phase,
    )  # fmt: skip


def ages(connection: Connection, name: str) -> SlotAges:
    """Return the age of what is not confirmed, and the time for which the slot has been inactive."""
    since = "extract(epoch FROM now() - s.inactive_since)" if connection.info.server_version >= 170000 else "NULL"
    with translated("reading the slot's lag"):
        row = connection.execute(
            f"SELECT s.active, extract(epoch FROM r.flush_lag)::float8, {since}::float8 FROM pg_replication_slots AS s "
            "LEFT JOIN pg_stat_replication AS r ON r.pid = s.active_pid WHERE s.slot_name = %s",
            (name,),
        ).fetchone()
    if row is None:
        return SlotAges()
    active, lag, inactive = row
    return SlotAges(float(lag or 0.0), 0.0) if active else SlotAges(None, inactive)


def check_usable(slot: SlotInfo, options: PostgresOptions) -> None:
    """Raise an error if an existing slot cannot be used by this connector; a missing one is not an error.

    Raises SourceError for another plugin, another database or a lost slot, TransientError for one that is in use.
    """
    if not slot.exists:
        return
    if slot.plugin is None:
        raise SourceError(
            f"Slot {slot.name} is a physical replication slot.", "Choose another slot.name; the slot is then created."
        )
    if slot.plugin != options.plugin_name.on_server:
        raise SourceError(
            f"Slot {slot.name} uses output plugin {slot.plugin}, but plugin.name is {options.plugin_name.value}.",
            "Choose another slot.name or plugin.name, or drop the slot if it is unused.",
        )
    if slot.database != options.database_dbname:
        raise SourceError(
            f"Slot {slot.name} belongs to database {slot.database}, but database.dbname is {options.database_dbname}.",
            "Choose another slot.name: slot names are unique across all databases of a server.",
        )
    if slot.has_two_phase:
        raise SourceError(
            f"Slot {slot.name} was made with two_phase: the server sends prepared transactions at PREPARE, and never "
            "again after a restart.",
            "Choose another slot.name, whose slot is then created without two_phase. PostgreSQL 18 and later take it "
            f'from a slot: run ALTER_REPLICATION_SLOT {slot.name} (TWO_PHASE false) in psql "replication=database".',
        )
    if slot.is_lost:
        why = f" ({slot.invalidation_reason})" if slot.invalidation_reason else ""
        raise SourceError(
            f"Slot {slot.name} is lost{why}: the server has removed WAL that it needs.",
            f"Run SELECT pg_drop_replication_slot('{slot.name}'), raise max_slot_wal_keep_size, take a new snapshot.",
        )
    if slot.active:
        raise in_use(slot.name, slot.active_pid)


def in_use(name: str, pid: int | None) -> InUseError:
    """The error for a slot in use."""
    by = f" by the server process with PID {pid}" if pid else ""
    return InUseError(
        f"Slot {name} is in use{by}.",
        "Stop the other consumer, or choose another slot.name: a slot has one consumer at a time.",
    )


def wait_until_free(connection: Connection, options: PostgresOptions) -> SlotInfo:
    """Check the slot until it is not in use, for slot.max.retries times slot.retry.delay.ms at most.

    Raises what ``check_usable`` raises: immediately for problems that waiting does not solve.
    """
    deadline = time.monotonic() + options.slot_max_retries * options.slot_retry_delay_ms / 1000
    while True:
        slot = inspect(connection, options.slot_name)
        try:
            check_usable(slot, options)
            return slot
        except InUseError:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
        # More often than at each retry: the walsender of a run that was just killed ends within a second.
        time.sleep(min(left, _LOOK_SECONDS, options.slot_retry_delay_ms / 1000))


def create(
    replication: Connection,
    name: str,
    plugin: str = "pgoutput",
    *,
    failover: bool = False,
    temporary: bool = False,
    seconds: float = _CREATE_SECONDS,
) -> CreatedSlot:
    """Create a logical slot on a replication connection and export its snapshot.

    ``failover`` is used from PostgreSQL 17 on. The server waits for every running transaction; after ``seconds`` the
    creation is cancelled, and nothing remains. Raises SourceError or TransientError.
    """
    version = replication.info.server_version
    if version >= 150000:
        clauses = ["SNAPSHOT 'export'"] + (["FAILOVER true"] if failover and version >= 170000 else [])
        ending = f"({', '.join(clauses)})"
    else:
        ending = "EXPORT_SNAPSHOT"
    command = sql.SQL("CREATE_REPLICATION_SLOT {} {} LOGICAL {} ").format(
        sql.Identifier(validate_slot_name(name)), sql.SQL("TEMPORARY" if temporary else ""), sql.Identifier(plugin)
    ) + sql.SQL(ending)
    timer = threading.Timer(seconds, _cancel, (replication,))
    timer.daemon = True
    timer.start()
    try:
        row = one_row(replication, command)
    except psycopg.Error as error:
        raise _creation_error(error, replication, name, plugin, seconds) from None
    finally:
        timer.cancel()
    return CreatedSlot(row[0], Lsn.parse(row[1]), row[2])


def drop(connection: Connection, name: str, seconds: float = _DROP_SECONDS) -> bool:
    """Drop a slot; returns whether it existed.

    A walsender ends shortly after its connection, so this is retried for ``seconds``. Raises TransientError if another
    consumer is using it.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            return True
        except psycopg.errors.UndefinedObject:
            return False
        except psycopg.errors.ObjectInUse:
            if time.monotonic() >= end:
                raise in_use(name, inspect(connection, name).active_pid) from None
            time.sleep(_PAUSE_SECONDS)
        except psycopg.Error as error:
            raise server_error(error, f"dropping slot {name}") from None


def drop_on_stop(connection: Connection, options: PostgresOptions) -> bool:
    """Drop the slot at an orderly stop if slot.drop.on.stop is set; returns whether a slot was dropped."""
    return options.slot_drop_on_stop and drop(connection, options.slot_name)


def advance(connection: Connection, name: str, lsn: Lsn) -> Lsn:
    """Advance an unused slot to ``lsn`` without reading; returns its position. Raises SourceError or TransientError."""
    try:
        row = one_row(
            connection, "SELECT end_lsn::text FROM pg_replication_slot_advance(%s, %s::pg_lsn)", (name, str(lsn))
        )
    except psycopg.errors.ObjectInUse:
        raise in_use(name, inspect(connection, name).active_pid) from None
    except psycopg.Error as error:
        raise server_error(error, f"advancing slot {name} to {lsn}") from None
    return Lsn.parse(row[0])


def _cancel(connection: Connection) -> None:
    try:
        connection.cancel_safe(timeout=10)
    except psycopg.Error:
        connection.close()


def _creation_error(error: psycopg.Error, replication: Connection, name: str, plugin: str, seconds: float) -> CdcError:
    if isinstance(error, psycopg.errors.QueryCanceled):
        return TransientError(
            f"Creating slot {name} took longer than {seconds:g} s.",
            "It waits for all open transactions; end the oldest ones in pg_stat_activity and run again.",
        )
    if isinstance(error, psycopg.errors.DuplicateObject):
        return SourceError(f"Slot {name} exists already.", "It was created concurrently; run again.")
    # The name of a setting is the same in every language.
    if "wal_level" in (error.diag.message_primary or ""):
        return SourceError(
            "The server's wal_level does not allow logical decoding.", "Set wal_level = logical and restart the server."
        )
    return plugin_library.load_error(error, replication, plugin) or server_error(error, f"creating slot {name}")


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)

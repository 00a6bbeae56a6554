"""Attaches to a slot: a replication connection on which START_REPLICATION was executed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import psycopg
from psycopg import sql

from cdc_core.errors import InUseError
from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection, connect, has_raw_text
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import plugin
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.replication.stream_errors import start_error
from cdc_core.postgres.sqlstate import one_row

_LOOK_SECONDS = 0.5  # between two attempts to attach to a slot in use


def attach(options: PostgresOptions, start_lsn: Lsn, check: Callable[[Connection], None]) -> tuple[Connection, int]:
    """Return the streaming connection, and the server's wal_sender_timeout in milliseconds (0: none).

    A slot in use is waited for, for slot.max.retries times slot.retry.delay.ms. ``check`` is called with each
    connection before it streams. Raises SourceError, TransientError or ConfigError, and what ``check`` raises.
    """
    slots.validate_slot_name(options.slot_name)
    plugin.checked(options.plugin_name, options.slot_stream_params)
    deadline = time.monotonic() + options.slot_max_retries * options.slot_retry_delay_ms / 1000
    while True:
        try:
            return _attached(options, start_lsn, check)
        except InUseError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(min(_LOOK_SECONDS, options.slot_retry_delay_ms / 1000))


def _attached(options: PostgresOptions, start_lsn: Lsn, check: Callable[[Connection], None]) -> tuple[Connection, int]:
    connection = connect(options, replication=True)
    try:
        (timeout,) = one_row(connection, "SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'")
        check(connection)
        # Encoded as UTF-8, as all names are, before the text of rows is received as it is stored.
        start = _command(options, connection.info.server_version, start_lsn).as_bytes(connection)
        if plugin.warns_of_changes(options):
            connection.execute("SET client_min_messages = warning")
        if has_raw_text(connection):
            connection.execute("SET client_encoding = SQL_ASCII")
        connection.execute(start)
        return connection, int(timeout)
    except BaseException as error:
        with closing(connection):
            if isinstance(error, psycopg.Error):
                raise start_error(error, options, connection) from None
            raise


def _command(options: PostgresOptions, version: int, start_lsn: Lsn) -> sql.Composed:
    parameters = plugin.parameters(options, options.publication_name, version, in_progress=True)
    listed = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), _literal(value)) for name, value in parameters.items()
    )
    return sql.SQL("START_REPLICATION SLOT {} LOGICAL {} {}").format(
        sql.Identifier(options.slot_name),
        sql.SQL(str(start_lsn)),
        sql.SQL("({})").format(listed) if parameters else sql.SQL(""),
    )


def _literal(text: str) -> sql.SQL:
    """Return a literal of the replication grammar, in which a backslash has no meaning and E'…' does not exist."""
    return sql.SQL("'" + text.replace("'", "''") + "'")

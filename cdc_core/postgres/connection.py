"""Connections: their parameters, session settings and errors, in one module.

Only the connector file determines the server of a connection: libpq's environment variables that select another one, or
change what is received, have no effect. ``settings`` sets the parameters of each session and proves them.
"""

from __future__ import annotations

import os
import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PGconn, Ping

from cdc_core.errors import ConfigError
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.refusal import refusal
from cdc_core.postgres.settings import settle, settle_again
from cdc_core.postgres.sqlstate import connection_error, one_row, translated

Connection = psycopg.Connection[tuple[Any, ...]]

APPLICATION = "wal2lake"

# Parameters that libpq would read from the environment: the address, and the files that verify the server.
# Other variables only make it refuse servers; the error of a refused connection names them.
_NOT_FROM_ENVIRONMENT = {
    "hostaddr": "",
    "options": "",
    "target_session_attrs": "any",
    "load_balance_hosts": "disable",
    "sslcert": "",
    "sslkey": "",
    "sslrootcert": "",
    "sslcertmode": "allow",
    "sslnegotiation": "postgres",
}
_DEAD_LINE_MS = 60_000
# Both sides send keepalives: the server has to end sessions of a failed machine, for one may hold a claim. On a server
# tcp_user_timeout would end a stream that is read slowly on purpose, too.
_PROBES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_SERVERS_PROBES = {f"tcp_{name}": str(value) for name, value in _PROBES.items()}
# A name, an IPv4 or an IPv6 address, with or without brackets; a port only behind the former two and brackets.
_ADDRESS = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[]*|[^:\[]*:[^:\[]*:[^\[]*)(?::(?P<port>\d+))?")


class ConnectionString:
    """libpq's connection string with its password, for a process without the options. Picklable, never printed."""

    __slots__ = ("_text", "has_keepalives", "statements")

    def __init__(self, text: str, statements: tuple[str, ...] = (), has_keepalives: bool = True) -> None:
        self._text = text
        self.statements = statements
        self.has_keepalives = has_keepalives

    def reveal(self) -> str:
        """Return the string in clear text."""
        return self._text

    def __repr__(self) -> str:
        return "ConnectionString(***)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._text, self.statements, self.has_keepalives)


def connect(
    options: PostgresOptions,
    *,
    replication: bool = False,
    application_name: str = APPLICATION,
    statement_timeout_ms: int | None = None,
) -> Connection:
    """Open a connection in autocommit; a replication connection accepts the walsender's commands and SQL.

    ``statement_timeout_ms`` defaults to database.query.timeout.ms, on a replication connection to none. The initial
    statements are run on ordinary connections only. Raises SourceError or TransientError, never with the password.
    """
    if statement_timeout_ms is None:
        statement_timeout_ms = 0 if replication else options.database_query_timeout_ms
    parameters = _parameters(options, application_name)
    if replication:
        parameters["replication"] = "database"
    try:
        connection = psycopg.connect(**parameters, autocommit=True)
    except psycopg.Error as error:
        refused = refusal(error, parameters)
        raise connection_error(error, place(options), options.database_user, options.database_dbname, refused) from None
    others = _settings(options.database_tcp_keep_alive, statement_timeout_ms)
    _prepare(connection, place(options), others, () if replication else options.database_initial_statements)
    return connection


def connect_as(text: str, options: PostgresOptions) -> Connection:
    """Open another role's connection to the database of ``options``, for questions about the server.

    ``text`` is libpq's connection string or URI. The address and TLS are those of ``options`` where it has none, user
    and password those of PGUSER, PGPASSWORD and the password file. Raises CdcError, never with the password.
    """
    try:
        from_conninfo = {name: value for name, value in conninfo_to_dict(text).items() if value is not None}
    except psycopg.Error:
        raise ConfigError(
            "The administrator's connection is no connection string of libpq.",
            'Give it as postgresql://USER@HOST:PORT or as "host=HOST user=USER".',
        ) from None
    database = from_conninfo.setdefault("dbname", options.database_dbname)
    if database != options.database_dbname:
        raise ConfigError(
            f'The administrator\'s connection is to database "{database}", and database.dbname is '
            f'"{options.database_dbname}".',
            "Leave the database out of it.",
        )
    own = ("user", "password", "sslcert", "sslkey", "sslpassword", *(("port",) if "host" in from_conninfo else ()))
    parameters = {name: value for name, value in _parameters(options, APPLICATION).items() if name not in own}
    parameters |= from_conninfo
    where = _place(str(parameters["host"]), str(parameters.get("port", options.database_port)))
    try:
        connection = psycopg.connect(**parameters, autocommit=True)
    except psycopg.Error as error:
        role = str(parameters.get("user", os.environ.get("PGUSER", "")))
        raise connection_error(error, where, role, database, refusal(error, parameters)) from None
    _prepare(connection, where, _settings(options.database_tcp_keep_alive, options.database_query_timeout_ms), ())
    return connection


def answers(options: PostgresOptions) -> bool:
    """Whether the server accepts connections now; waits two seconds for its answer. Sends no password."""
    text = make_conninfo(**{**_NOT_FROM_ENVIRONMENT, **_address(options)}, connect_timeout=2)
    return PGconn.ping(text.encode()) == Ping.OK


def connection_string(options: PostgresOptions, *, application_name: str = APPLICATION) -> ConnectionString:
    """Return the string for a Spark worker: no statement time-out, secrets resolved in this process."""
    text = make_conninfo(**_parameters(options, application_name))
    return ConnectionString(text, options.database_initial_statements, options.database_tcp_keep_alive)


def connect_with(target: ConnectionString) -> Connection:
    """Open a connection from its string, as ``connect`` does. Raises SourceError or TransientError."""
    try:
        connection = psycopg.connect(target.reveal(), autocommit=True)
    except psycopg.Error as error:
        known = psycopg.conninfo.conninfo_to_dict(target.reveal())
        where = _place(str(known.get("host", "")), str(known.get("port", "")))
        role, database = str(known.get("user", "")), str(known.get("dbname", ""))
        raise connection_error(error, where, role, database, refusal(error, known)) from None
    where = _place(connection.info.host, str(connection.info.port))
    _prepare(connection, where, _settings(target.has_keepalives, 0), target.statements)
    return connection


def has_raw_text(connection: Connection) -> bool:
    """Whether the database has encoding SQL_ASCII: its text may be any bytes, not all of which can be converted."""
    return connection.info.parameter_status("server_encoding") == "SQL_ASCII"


def servers_own(connection: Connection, name: str) -> str | None:
    """Return a setting as the server's configuration has it, without those of databases and roles; None if refused.

    A walsender that has no database shows it.
    """
    known = connection.info
    # The text lacks libpq's defaults, which the environment would override.
    parameters: dict[str, Any] = {"sslmode": "prefer", **_NOT_FROM_ENVIRONMENT, **conninfo_to_dict(known.dsn)}
    dsn = make_conninfo(**{**parameters, "password": known.password or None, "replication": "true"})
    try:
        with psycopg.connect(dsn, autocommit=True) as walsender:
            return str(one_row(walsender, f"SHOW {name}".encode())[0])
    except psycopg.Error:
        return None


def place(options: PostgresOptions) -> str:
    """Return the server's address, for messages."""
    found = _address(options)
    return _place(found["host"], found["port"])


def _place(host: str, port: str) -> str:
    if "," in host:
        return ", ".join(map(_place, host.split(","), port.split(",")))
    if host.startswith("/"):
        return f"socket {host}/.s.PGSQL.{port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address(options: PostgresOptions) -> dict[str, Any]:
    """Return host and port of database.hostname; in a list of servers, libpq selects the primary."""
    found = [_host_and_port(each.strip(), options.database_port) for each in options.database_hostname.split(",")]
    address = {"host": ",".join(host for host, _ in found), "port": ",".join(str(port) for _, port in found)}
    return address if len(found) == 1 else {**address, "target_session_attrs": "primary"}


def _host_and_port(text: str, port: int) -> tuple[str, int]:
    found = None if text.startswith("/") else _ADDRESS.fullmatch(text)
    if found is None:
        return text.strip("[]"), port
    return found["host"].strip("[]"), int(found["port"] or port)


def _settings(has_keepalives: bool, statement_timeout_ms: int) -> dict[str, str]:
    return {"statement_timeout": str(statement_timeout_ms), **(_SERVERS_PROBES if has_keepalives else {})}


def _parameters(options: PostgresOptions, application_name: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        **_NOT_FROM_ENVIRONMENT,
        **_address(options),
        "user": options.database_user,
        "password": options.database_password.reveal() or None,
        "dbname": options.database_dbname,
        "application_name": application_name,
        "client_encoding": "UTF8",
        # libpq uses two seconds for any smaller value.
        "connect_timeout": max(2, options.connection_validation_timeout_ms // 1000),
        "sslmode": str(options.database_sslmode.value),
        "sslcert": options.database_sslcert,
        "sslkey": options.database_sslkey,
        "sslpassword": options.database_sslpassword.reveal() or None,
        "sslrootcert": options.database_sslrootcert,
        "keepalives": int(options.database_tcp_keep_alive),
    }
    if options.database_tcp_keep_alive:
        parameters |= {**_PROBES, "tcp_user_timeout": _DEAD_LINE_MS}
    return {name: value for name, value in parameters.items() if value is not None}


def _prepare(connection: Connection, where: str, others: dict[str, str], statements: tuple[str, ...]) -> None:
    try:
        settle(connection, where, others, with_path=not statements)
        for statement in statements:
            # bytes: psycopg would interpret a % in a str as a placeholder only if there are parameters; there are none.
            with translated("running database.initial.statements"):
                connection.execute(statement.encode())
        if statements:
            settle_again(connection)
    except BaseException:
        connection.close()
        raise

"""Converts errors of the server or libpq to CdcErrors: one sentence for the cause, one for the remedy.

Errors of the server are distinguished by SQLSTATE, and by names that are the same in every language: of functions and
files of its source, of settings and files in the text. libpq's own messages have no SQLSTATE and are matched: they are
in English, as Python does not set LC_MESSAGES. Texts of classes 22 and 23 (data and constraint errors) may contain a
row's values and are never quoted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.abc import Params, QueryNoTemplate

from cdc_core.errors import (
    CdcError,
    InUseError,
    ServerBusyError,
    SourceError,
    TransientError,
    UnknownHostError,
    UnreachableError,
)
from cdc_core.postgres.refusal import Refusal

# Variables that libpq reads even if all parameters are set.
_VARIABLES = (
    *("PGSERVICE", "PGSERVICEFILE", "PGDATESTYLE", "PGTZ", "PGGEQO", "PGREQUIREAUTH", "PGREQUIREPEER"),
    *("PGCHANNELBINDING", "PGGSSENCMODE", "PGKRBSRVNAME", "PGGSSLIB", "PGGSSDELEGATION", "PGSSLCRL", "PGSSLCRLDIR"),
    *("PGSSLSNI", "PGSSLMINPROTOCOLVERSION", "PGSSLMAXPROTOCOLVERSION", "PGMINPROTOCOLVERSION"),
    "PGMAXPROTOCOLVERSION",
)

# (SQLSTATE or its class, function of the server or a name in the text, kind, cause, remedy); the first one
# that fits. {where}, {user}, {database}, {text} and, for statements, {role} and {base} are filled in.
_REFUSALS: tuple[tuple[str, str, type[CdcError], str, str], ...] = (
    (
        "08P01",
        "unsupported startup parameter",
        SourceError,
        "At {where} is a pooler, which refuses this connection: {text}.",
        "Set database.hostname and database.port to the server itself. PgBouncer passes replication on from version "
        "1.23.",
    ),
    (
        "28P01",
        "",
        SourceError,
        "The server at {where} refuses the password of role {user}.",
        "Correct database.user and database.password.",
    ),
    (
        "28",
        "pg_hba.conf",
        SourceError,
        "The pg_hba.conf of the server at {where} has no entry that allows role {user} to connect to database "
        "{database} from this host{without}.",
        "{tls}dd an entry for it (also for replication connections, with the captured database) and reload the server "
        "configuration.",
    ),
    (
        "28",
        "ClientAuthentication",
        SourceError,
        "The server at {where} requires a client certificate of role {user}: {text}.",
        "Set database.sslcert and database.sslkey to the files of a certificate and its private key.",
    ),
    (
        "28",
        "InitializeSessionUserId",
        SourceError,
        "The server at {where} does not let role {user} log in: {text}.",
        "Correct database.user, or create the role with LOGIN and REPLICATION.",
    ),
    (
        "28",
        "",
        SourceError,
        "The server at {where} refuses role {user}: {text}.",
        "Correct database.user and database.password, or the certificate in database.sslcert.",
    ),
    (
        "3D",
        "",
        SourceError,
        "The server at {where} has no database {database}.",
        "Correct database.dbname.",
    ),
    (
        "42501",
        "CheckMyDatabase",
        SourceError,
        "Role {user} is not permitted to connect to database {database} at {where}.",
        "As the database's owner run GRANT CONNECT ON DATABASE {base} TO {role};",
    ),
    (
        "42501",
        "InitPostgres",
        SourceError,
        "Role {user} is not permitted to start replication: {text}.",
        "As a superuser run ALTER ROLE {role} REPLICATION; wal2lake check prints what a managed service needs.",
    ),
    (
        "53",
        "max_wal_senders",
        ServerBusyError,
        "All WAL senders of the server at {where} are in use.",
        "Raise max_wal_senders, or stop another consumer.",
    ),
    (
        "53",
        "",
        ServerBusyError,
        "The server at {where} has no free connection.",
        "Raise max_connections, or close other clients.",
    ),
    (
        "57",
        "",
        ServerBusyError,
        "The server at {where} is starting or stopping.",
        "Wait until it accepts connections.",
    ),
)
# Other states that are the same at every attempt: the request cannot succeed.
_DEFINITE = ("0A", "22", "42", "55")

# (pattern in libpq's own text, kind, cause, remedy).
_FAILURES: tuple[tuple[str, type[CdcError], str, str], ...] = (
    (
        r"definition of service|service file|invalid \w+ value: |authentication method requirement|channel binding"
        r"|requirepeer|protocol version",
        SourceError,
        "No connection to {where} meets what the environment asks for: {text}.",
        "Only the connector file should determine how the server is reached.",
    ),
    (
        r"no password supplied",
        SourceError,
        "The server at {where} refuses the password of role {user}.",
        "Correct database.user and database.password.",
    ),
    (
        r"Temporary failure in name resolution|Try again",
        UnreachableError,
        "The host name in {where} cannot be resolved at the moment.",
        "Check the name resolution (DNS) of this machine.",
    ),
    (
        r"failed to resolve host|could not translate host name|Name or service not known|nodename nor servname",
        UnknownHostError,
        "The host name in {where} does not exist.",
        "Correct database.hostname.",
    ),
    (
        r"in hot standby mode",
        ServerBusyError,
        "None of the servers at {where} is a primary.",
        "Promote one of them, or correct database.hostname.",
    ),
    (
        r"Connection refused|No such file or directory\s+Is the server running|is the server running",
        UnreachableError,
        "No server is listening at {where}.",
        "Start the server, or correct database.hostname and database.port.",
    ),
    (
        r"timeout expired|timed out|No route to host|Network is unreachable",
        UnreachableError,
        "The server at {where} does not answer.",
        "Check host, port and firewall.",
    ),
    (
        r"server does not support SSL",
        SourceError,
        "The server at {where} does not support TLS, and database.sslmode requires it.",
        "Enable TLS on the server, or set database.sslmode=prefer.",
    ),
    (
        r"certificate verify failed",
        SourceError,
        "The certificate of the server at {where} is not valid: it was not issued by an authority in "
        "database.sslrootcert, or it has expired.",
        "Set database.sslrootcert to the file of the authority's certificate, or renew the server's certificate.",
    ),
    (
        r"certificate for .* does not match host name",
        SourceError,
        "The certificate of the server at {where} is for another host: {text}.",
        "Set database.hostname to a name in the certificate, or database.sslmode=verify-ca.",
    ),
    (
        r"alert .*(certificate|unknown ca)",
        SourceError,
        "The server at {where} does not accept the certificate in database.sslcert for role {user}: {text}.",
        "Set database.sslcert and database.sslkey to a certificate that the server's authority issued for the role.",
    ),
    (
        r"certificate|SSL error|sslmode|private key|crl file",
        SourceError,
        "The TLS connection to {where} fails: {text}.",
        "Check database.sslmode, database.sslrootcert, database.sslcert, database.sslkey and database.sslpassword.",
    ),
)


def connection_error(
    error: psycopg.Error, where: str, user: str, database: str, refused: Refusal | None = None
) -> CdcError:
    """Convert the error of a failed connection. ``where`` is host and port, or the socket's folder.

    ``refused``: how the server answered, None if it did not.
    """
    said, text = _NOISE.sub("", str(error)), _line(str(error)).rstrip(".")
    facts = {"where": where, "user": f'"{user}"', "database": f'"{database}"', "text": text}
    if refused is not None:
        return _refusal(refused, facts, user, database)
    for pattern, kind, message, remedy in _FAILURES:
        if re.search(pattern, said, re.IGNORECASE):
            return kind(message.format(**facts), remedy + ("" if issubclass(kind, TransientError) else _environment()))
    return UnreachableError(f"Cannot connect to {where}: {text}.", f"Check the server's log.{_environment()}")


def _environment() -> str:
    """Return a sentence about the variables that may be the reason, if some are set."""
    names = [name for name in _VARIABLES if os.environ.get(name)]
    return f" libpq also reads {', '.join(names)} from the environment: unset what is not for it." if names else ""


def _refusal(refused: Refusal, facts: dict[str, str], user: str, database: str) -> CdcError:
    facts |= {"role": sql.Identifier(user).as_string(), "base": sql.Identifier(database).as_string()}
    facts |= {"without": "", "tls": "A"}
    if not refused.tried_tls:
        facts["without"] = " without TLS"
        facts["tls"] = "Set database.sslmode=require (or verify-full, with database.sslrootcert) if it has TLS, or a"
    for state, name, kind, message, remedy in _REFUSALS:
        if refused.state.startswith(state) and (name == refused.function or name in facts["text"]):
            return kind(message.format(**facts), remedy.format(**facts))
    kind = SourceError if refused.state.startswith(_DEFINITE) else UnreachableError
    remedy = f"Check the server's log.{_environment()}"
    return kind("The server at {where} refuses the connection: {text}.".format(**facts), remedy)


# SQLSTATE, or its class of two characters → (kind, what to do).
_STATES: dict[str, tuple[type[CdcError], str]] = {
    "08": (UnreachableError, "Run again once the server can be reached."),
    "25006": (ServerBusyError, "Connect to the primary, or wait until this server is promoted."),
    "40": (TransientError, "Run again."),
    "42501": (SourceError, "Grant the privilege, or let the owner perform this step."),
    "42704": (SourceError, "Create it, or correct its name in the connector file."),
    "53": (ServerBusyError, "Free resources of the server and run again."),
    "53400": (SourceError, "Raise max_replication_slots, or drop an unused slot."),
    "55006": (InUseError, "Stop the other consumer; a slot has one consumer at a time."),
    "55P03": (TransientError, "Run again once the lock is free."),
    "57": (ServerBusyError, "Run again once the server accepts connections."),
    "57014": (TransientError, "Raise database.query.timeout.ms, or check what blocks the statement."),
    "58P01": (SourceError, "Install the package or restore the file on the server: it is needed for this step."),
}
_QUIET_CLASSES = ("22", "23")
# What the server finds while it converts a row to text; none of these messages has a value.
_ROW_STATES = {
    "22P05": "a value has a character that does not exist in UTF-8",
    "22021": "a value has bytes that are not valid in the encoding of the database",
    "54000": "it is larger than the 1 GB that the server can send as text",
    "XX001": "",
}
# An internal error without a specific state (XX000).
_TOO_LARGE = "invalid memory alloc request size"
# The server's function that raises the error of row_security = off: its text depends on lc_messages.
_ROW_SECURITY = "check_enable_rls"


def server_error(error: psycopg.Error, doing: str) -> CdcError:
    """Convert the error of a statement. ``doing`` is the attempted operation: ``reading the catalogue``."""
    state = error.sqlstate
    if state is None:
        said = _line(str(error)).rstrip(".") or "the connection is closed"
        return UnreachableError(f"The connection to the server was lost while {doing}: {said}.", _STATES["08"][1])
    if error.diag.source_function == _ROW_SECURITY:
        said = _line(error.diag.message_primary or "").rstrip(".")
        return SourceError(
            f"Row-level security would hide rows, so the server refused {doing}: {said}.",
            "Give the role of database.user BYPASSRLS, or make it the owner of the table without FORCE ROW LEVEL "
            "SECURITY.",
        )
    said = f"SQLSTATE {state}"
    fault = row_fault(error)
    if fault is not None:
        return SourceError(f"The server refused {doing}: {fault}.", "Correct or delete the row in the source.")
    if not state.startswith(_QUIET_CLASSES):
        said = _line(error.diag.message_primary or str(error)).rstrip(".")
        if error.diag.message_detail and state.startswith(("55", "42501")):
            said += f" ({_line(error.diag.message_detail).rstrip('.')})"
    kind, remedy = _STATES.get(state) or _STATES.get(state[:2]) or (SourceError, error.diag.message_hint or "")
    return kind(f"The server refused {doing}: {said}.", remedy)


def row_fault(error: psycopg.Error) -> str | None:
    """Return why the server cannot send a row, None if the error has another cause.

    Such an error is that of one row: other tables can be read, and every attempt to read this one fails.
    """
    state, said = error.sqlstate or "", _line(error.diag.message_primary or "").rstrip(".")
    kind = "54000" if said.startswith(_TOO_LARGE) else state
    return f"{_ROW_STATES[kind] or said} (SQLSTATE {state})" if kind in _ROW_STATES else None


def known_error(error: BaseException) -> CdcError | None:
    """Convert an error of psycopg that no statement has converted; None if it is of another library."""
    return server_error(error, "answering") if isinstance(error, psycopg.Error) else None


def one_row(
    connection: psycopg.Connection[tuple[Any, ...]], query: QueryNoTemplate, parameters: Params | None = None
) -> tuple[Any, ...]:
    """Execute a query that returns one row, whatever the database contains; return it. Raises psycopg.Error."""
    row = connection.execute(query, parameters).fetchone()
    if row is None:
        raise psycopg.DataError("The server returned no row of a query that always has one.")
    return row


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Convert psycopg's errors inside the context with ``server_error``."""
    try:
        yield
    except psycopg.Error as error:
        raise server_error(error, doing) from None


_NOISE = re.compile(
    r"connection (failed|is bad): |connection to server (at|on socket) [^\n]*? failed: ([^:\n]{1,40}:  )?"
    r"|consuming input failed: |(FATAL|ERROR):\s+"
)


def _line(text: str) -> str:
    """Return one line, without libpq's prefixes, hints and repetitions for several addresses."""
    told = _NOISE.sub("", text)
    told = told.split("Multiple connection attempts failed")[0].split("\n\t")[0] or told
    return re.sub(r"\s+", " ", told).strip()

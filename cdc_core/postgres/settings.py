"""The parameters of a session: set and proven by one statement, after the connection is established.

Values are received as text, in snapshots and in the stream, and that text depends on settings of the session. A
startup packet cannot fix them: libpq's environment variables, the role, the database and a login event trigger set
them after it, and a pooler leaves them out. So they are set when all of these are over, on the walsender too, whose
output functions run in its own session. The statement returns what the session then has.

A pooler that gives each transaction another session of the server cannot keep settings, nor the lock by which a slot
is claimed. Each session is marked with its connection, so a session that two connections share is noticed by the
second one; transactions that read rows prove the mark again (``require_own``).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import psycopg

from cdc_core.errors import SourceError
from cdc_core.postgres.sqlstate import one_row, translated

_Connection = psycopg.Connection[tuple[Any, ...]]

# Settings that determine values, or how a statement is understood; as SHOW prints them. Without row_security a query
# from which row-level security would hide rows fails: a table read without them would look complete. search_path: the
# catalogue's names mean the catalogue, and names in values (regclass) are the same in every session.
_VALUES = {
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "xmloption": "content",
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    "row_security": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
}
# PostgreSQL's own default, which Debezium's sessions have: texts of regclass and the like are equal to those in its
# events. The catalogue comes first because it is not named.
_PATH = '"$user", public'
# Time-outs that must not end a connection that waits intentionally, and the version from which servers have them.
_TIMEOUTS = {
    "lock_timeout": 0,
    "idle_in_transaction_session_timeout": 0,
    "idle_session_timeout": 140000,
    "transaction_timeout": 170000,
}

_MARK = "pg_catalog.current_setting('wal2lake.session', true)"
_OWN_PATH = "pg_catalog.current_setting('wal2lake.search_path')"
_SET_OWN_PATH = f"SELECT pg_catalog.set_config('search_path', {_OWN_PATH}, {{is_local}})"
ROLES_PATH = _SET_OWN_PATH.format(is_local="true")
"""For SQL of the user's: until the end of the transaction names mean what they mean in any session of the role."""
CATALOGUE_PATH = f"SET LOCAL search_path = {_PATH}"
"""In the same transaction: names mean the catalogue's again."""

_REMEDY = (
    "Connect to the server itself, or to a pooler in session mode (PgBouncer: pool_mode=session, server_reset_query="
    "DISCARD ALL)."
)


_DOING = "setting the parameters of a session"


@dataclass(frozen=True, slots=True)
class _Session:
    """The server's process of a connection, and the mark that the connection gave it. ``where``: the address."""

    pid: int
    mark: str
    where: str


_sessions: WeakKeyDictionary[_Connection, _Session] = WeakKeyDictionary()


def settle(connection: _Connection, where: str, others: Mapping[str, str], *, with_path: bool) -> None:
    """Set what values depend on, the time-outs and ``others``, and prove the former.

    Without ``with_path`` the role's search_path stays until ``settle_again``, for database.initial.statements. Raises
    SourceError, which names the setting; ``where`` is the server's address.
    """
    version = connection.info.server_version
    timeouts = {name: "0" for name, since in _TIMEOUTS.items() if version >= since}
    _set(connection, where, secrets.token_hex(8), {**timeouts, **others}, with_path=with_path)
    with translated(_DOING):
        require_own(connection)


def settle_again(connection: _Connection) -> None:
    """Set and prove what values depend on, after database.initial.statements, which may have set it."""
    session = _sessions[connection]
    _set(connection, session.where, session.mark, {}, with_path=True)


def use_roles_settings(connection: _Connection) -> None:
    """Let names, also those in functions and triggers, mean what they mean in any session of the role, and read rows
    by its policies: for a connection that runs the user's own SQL and reads nothing for a destination.
    """
    connection.execute(f"SET row_security = on; {_SET_OWN_PATH.format(is_local='false')}".encode())


def is_pooled(connection: _Connection) -> bool:
    """Whether a pooler answers in the server's place: it invents the process id by which a client cancels."""
    session = _sessions.get(connection)
    return session is not None and session.pid != connection.info.backend_pid


def require_own(connection: _Connection) -> None:
    """Raise SourceError if the session of the server is no longer this connection's, or its settings are others.

    Without a pooler no query is sent. Inside a transaction the proof is valid until its end. Raises psycopg.Error.
    """
    if not is_pooled(connection):
        return
    session = _sessions[connection]
    calls = ["pg_catalog.pg_backend_pid()", _MARK, *(f"pg_catalog.current_setting('{name}')" for name in _VALUES)]
    row = one_row(connection, f"SELECT {', '.join(calls)}".encode())
    _require(_VALUES, row[2:], session.where)
    if row[:2] != (session.pid, session.mark):
        raise _shared(session.where)


def _set(connection: _Connection, where: str, mark: str, others: Mapping[str, str], *, with_path: bool) -> None:
    values = {**_VALUES, "search_path": _PATH} if with_path else _VALUES
    own_path = "pg_catalog.set_config('wal2lake.search_path', pg_catalog.current_setting('search_path'), false)"
    settings = {"wal2lake.session": mark, **values, **others}
    calls = [
        *("pg_catalog.pg_backend_pid()", _MARK, own_path),
        *(f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in settings.items()),
    ]
    with translated(_DOING):
        row = one_row(connection, f"SELECT {', '.join(calls)}".encode())
    _sessions[connection] = _Session(row[0], mark, where)
    _require(values, row[4:], where)
    if row[1] not in (None, "", mark):
        raise _shared(where)


def _require(expected: Mapping[str, str], received: Sequence[str], where: str) -> None:
    for (name, value), actual in zip(expected.items(), received, strict=False):
        if actual != value:
            raise SourceError(
                f"A session at {where} has {name} = {actual} after it was set to {value}: values would be read "
                "wrongly. A pooler or proxy between here and the server does not keep what a session sets.",
                _REMEDY,
            )


def _shared(where: str) -> SourceError:
    return SourceError(
        f"A pooler at {where} gives one session of the server to several connections: what a connection sets "
        f"({', '.join(_VALUES)}) and locks is lost, or is another one's.",
        _REMEDY,
    )

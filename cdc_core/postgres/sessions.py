"""The server's sessions of this process that hold a claim or the slot, so that a later attempt can end them.

A connection that is lost on this side may live on at the server: a firewall that drops packets tells nobody, and the
server's own time-outs take minutes, or hours for a session that only holds a lock. Meanwhile its claim and the slot are
taken, by a process that cannot use them any more. So the next attempt of the same process ends its former sessions
first. A session is identified by its process id and its start: another one, also of another run, is never ended.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from cdc_core.errors import CdcError
from cdc_core.postgres.connect import Connection
from cdc_core.postgres.sqlstate import translated

_SELF = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid = %s AND backend_start = %s::timestamptz AND usename = current_user"
)


@dataclass(slots=True)
class Sessions:
    """The sessions of one connector in this process. ``was_accepted``: the slot was claimed at least once."""

    was_accepted: bool = False
    _present: list[tuple[int, str]] = field(default_factory=list)
    _former: list[tuple[int, str]] = field(default_factory=list)

    def note(self, connection: Connection) -> None:
        """Remember a connection that holds a claim or the slot. Raises CdcError."""
        with translated("identifying the connection"):
            row = connection.execute(_SELF).fetchone()
        if row is not None:
            self._present.append((int(row[0]), str(row[1])))

    def forsake(self) -> None:
        """What is remembered belongs to an attempt that has ended."""
        self._former, self._present = self._present, []

    def end_former(self, connection: Connection) -> None:
        """End what the server still has of an attempt that has ended. Without the privilege nothing is ended."""
        former, self._former = self._former, []
        for pid, begun in former:
            with suppress(psycopg.Error, CdcError):
                connection.execute(_END, (pid, begun))

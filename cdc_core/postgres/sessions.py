"""The server's sessions of a connector that hold a claim or the slot, so that a later claim can end them.

A connection that is lost on this side may remain open on the server: a firewall drops packets without notice, and the
server's own time-outs take a minute (``connect``), or end nothing where a proxy between the two still answers.
Meanwhile its claim and the slot are in use by a session without a client. So the next claim ends them first: those of
earlier attempts of the same process, and those of a process that has ended (``SessionFile``). A session is identified
by its process id and its start: another one, also of another run, is never ended. One request is not enough for a
walsender with unsent changes, so it is repeated until the server has ended what is named, for some seconds.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from cdc_core.errors import CdcError
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.settings import is_pooled
from cdc_core.postgres.sqlstate import one_row, translated
from cdc_core.private_files import lock_file

_Session = tuple[int, str]

# The function below pg_stat_activity: to load that view takes a new session five milliseconds.
_SELF = "SELECT pid, backend_start::text FROM pg_stat_get_activity(pg_backend_pid())"
_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_get_activity(%s) "
    "WHERE backend_start = %s::timestamptz AND usesysid = quote_ident(current_user)::regrole"
)
# The first request may leave a walsender waiting to send the error that ends it, on a line that takes nothing more.
_END_SECONDS = 5.0
_END_INTERVAL_SECONDS = 0.1


class SessionFile:
    """The sessions of the process that claimed last, in a file of the connector's state folder.

    It is locked while that process has its claim, by the kernel: who can lock it may end what it names. Of another host
    nothing is ended: its lock may not be visible here. Without the folder there is no file: what the first run of a
    connector leaves ends by the server's time-outs. Errors of the file system are ignored.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    @contextmanager
    def locked(self) -> Iterator[list[_Session]]:
        """Lock the file until the end of the context, and return what it names; nothing if another process has it."""
        lock: int | None = None
        # A refused start must create no files, so the folder is not created for this one.
        with suppress(OSError):
            if self.path.parent.is_dir():
                lock = lock_file(self.path, create=True)
        if lock is None:
            yield []
            return
        try:
            self._lock = lock
            yield _named(lock)
        finally:
            self._lock = None
            os.close(lock)

    def write(self, sessions: list[_Session]) -> None:
        """Replace what it names, if it is locked by this object."""
        if self._lock is not None:
            process = {"host": socket.gethostname(), "pid": os.getpid()}
            content = json.dumps({**process, "sessions": sessions}).encode()
            with suppress(OSError):
                os.ftruncate(self._lock, 0)
                os.pwrite(self._lock, content, 0)


@dataclass(slots=True)
class Sessions:
    """The sessions of one connector in this process. ``was_accepted``: the slot was claimed at least once."""

    file: SessionFile | None = None
    was_accepted: bool = False
    _present: list[_Session] = field(default_factory=list)
    _former: list[_Session] = field(default_factory=list)

    def note(self, connection: Connection) -> None:
        """Remember a connection that holds a claim or the slot. Raises CdcError.

        A session behind a pooler is the pooler's, which gives it to the next run: to end it would end that run.
        """
        if is_pooled(connection):
            return
        with translated("identifying the connection"):
            pid, started = one_row(connection, _SELF)
        self._present.append((int(pid), str(started)))
        if self.file is not None:
            self.file.write(self._present)

    def process_of(self, backend: int) -> str:
        """Return the process that has a session of the server, from the file of the connector; empty if unknown."""
        try:
            found = {} if self.file is None else json.loads(self.file.path.read_bytes())
            if backend in [int(pid) for pid, _ in found["sessions"]]:
                return f"process {int(found['pid'])} on host {found['host']}"
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return ""

    def forsake(self) -> None:
        """Forget the connections of an attempt that has ended."""
        self._former, self._present = self._present, []

    @contextmanager
    def claiming(self, connection: Connection) -> Iterator[None]:
        """End what the server still has of claims that are over; the context is that of the next one.

        Without the privilege nothing is ended.
        """
        if self.file is None:
            self._end(connection, [])
            yield
            return
        with self.file.locked() as named:
            self._end(connection, named)
            yield

    def _end(self, connection: Connection, named: list[_Session]) -> None:
        former, self._former = [*self._former, *named], []
        left = list(dict.fromkeys(former))
        deadline = time.monotonic() + _END_SECONDS
        with suppress(psycopg.Error, CdcError):
            while left := [one for one in left if connection.execute(_END, one).fetchone() is not None]:
                if time.monotonic() > deadline:
                    return
                time.sleep(_END_INTERVAL_SECONDS)


def _named(lock: int) -> list[_Session]:
    try:
        found = json.loads(os.pread(lock, os.fstat(lock).st_size, 0) or b"{}")
        if found.get("host") != socket.gethostname():
            return []
        return [(int(pid), str(begun)) for pid, begun in found["sessions"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []

"""What a run notes of itself in its state folder: what it is waiting for, and which server it has reached.

    <state path>/waiting-<topic.prefix>-<slot>.json     exists while a run waits; of the process that it names
    <state path>/rereads-<topic.prefix>-<slot>.json     exists while a run reads tables again; likewise
    <state path>/reached-<topic.prefix>-<slot>.json     the address that a run of this connector has read from last
    <state path>/sessions-<topic.prefix>-<slot>.json    the server's sessions of the last claim (``postgres/sessions``)

``wal2lake status`` shows the first two. A process that was killed leaves it behind: it counts only while that process
exists, which is recognised by its id and the time of its start; a file of another host counts as long as it is there.

By the address a run that starts while its server is away (``supervise/service``) knows that the connector file is
right.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cdc_core.private_files import private_folder, write_private
from cdc_core.schema import TableId
from cdc_core.snapshot import IncrementalProgress, SnapshotProgress

_NOTE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run that waits after a fault that passes. ``retries``: attempts since then, in a row. ``since``: UTC."""

    cause: str
    remedy: str
    since: datetime
    retries: int


class _OwnFile:
    """A file of one connector that counts while the process that wrote it exists.

    Errors of the file system are ignored: it only informs.
    """

    kind = ""

    def __init__(self, state: Path, name: str, slot: str) -> None:
        self._state = state
        self.path = state_file(state, self.kind, name, slot)

    def clear(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _write(self, content: Mapping[str, object]) -> None:
        pid = os.getpid()
        own = {"host": socket.gethostname(), "pid": pid, "started": process_start(pid)}
        with suppress(OSError):
            private_folder(self._state)
            write_private(self.path, json.dumps({**own, **content}).encode())

    def _read(self) -> dict[str, Any]:
        """Return the content; empty if there is none that counts. Raises OSError, ValueError, KeyError, TypeError."""
        content: dict[str, Any] = json.loads(self.path.read_bytes())
        is_here = content["host"] == socket.gethostname()
        return {} if is_here and process_start(int(content["pid"])) != content["started"] else content


class WaitingFile(_OwnFile):
    """What a run waits for."""

    kind = "waiting"

    def write(self, waiting: WaitingRun) -> None:
        """Record that this process waits."""
        self._write({**asdict(waiting), "since": waiting.since.isoformat()})

    def read(self) -> WaitingRun | None:
        """Return what a run is waiting for now; None if none waits, or the file cannot be read."""
        try:
            if not (content := self._read()):
                return None
            since = datetime.fromisoformat(content["since"]).astimezone(UTC)
            return WaitingRun(str(content["cause"]), str(content["remedy"]), since, int(content["retries"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


class RereadsFile(_OwnFile):
    """Which tables a run reads again as a whole, and how far it is. For one thread at a time."""

    kind = "rereads"

    def __init__(self, state: Path, name: str, slot: str) -> None:
        super().__init__(state, name, slot)
        self._tables: dict[TableId, IncrementalProgress] = {}
        self._began: dict[TableId, float] = {}
        self._wrote = float("-inf")

    def note(self, progress: SnapshotProgress) -> None:
        """Record the progress of a table, at most every second; a table that is in the lake is left out."""
        table, now = progress.table, time.monotonic()
        seconds = now - self._began.setdefault(table, now)
        ranges, done = progress.ranges_total, progress.ranges_done
        made = IncrementalProgress(table, progress.rows, done, 0, ranges, seconds, progress.rows_estimated)
        is_other = progress.done == (table in self._tables)
        self._tables[table] = made
        if progress.done:
            del self._tables[table]
        if is_other or now - self._wrote >= _NOTE_SECONDS:
            self._wrote = now
            self._write({"tables": [[*entry.table, *astuple(entry)[1:]] for entry in self._tables.values()]})

    def read(self) -> tuple[IncrementalProgress, ...]:
        """Return the progress of tables that are being read again; none if the file cannot be read."""
        try:
            tables = self._read().get("tables", [])
            return tuple(IncrementalProgress(TableId(schema, name), *rest) for schema, name, *rest in tables)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return ()


class ReachedFile:
    """The address that the runs of one connector have read from. Errors of the file system are ignored.

    ``server`` names host, port and database as the connector file has them. After one of them was changed nothing is
    known of the new ones.
    """

    def __init__(self, state: Path, name: str, slot: str, server: str) -> None:
        self._state, self._server = state, server
        self._is_noted = False
        self.path = state_file(state, "reached", name, slot)

    def note(self) -> None:
        """Record that a run reads from there; once."""
        if self._is_noted:
            return
        self._is_noted = True
        if not self.is_reached():
            with suppress(OSError):
                private_folder(self._state)
                write_private(self.path, json.dumps({"server": self._server}).encode())

    def is_reached(self) -> bool:
        """Whether a run has read from there; False if nothing can be read."""
        try:
            return bool(json.loads(self.path.read_bytes())["server"] == self._server)
        except (OSError, ValueError, KeyError, TypeError):
            return False


def state_file(state: Path, kind: str, name: str, slot: str) -> Path:
    """Return where a connector keeps facts of one kind in its state folder."""
    plain = re.sub(r"[^\w-]", "_", f"{name}-{slot}", flags=re.ASCII)[:120]
    return state / f"{kind}-{plain}.json"


def process_start(pid: int) -> str:
    """Return when a process of this machine started, in the kernel's ticks; empty if there is none, or it is unknown.

    With the id it names a process for good: ids are used again.
    """
    try:
        # The second field is the program's name in parentheses, which may contain anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""

"""What a run notes of itself in its state folder: what it is waiting for, and which server it has reached.

    <state path>/waiting-<topic.prefix>-<slot>.json     exists while a run waits; of the process that it names
    <state path>/reached-<topic.prefix>-<slot>.json     the address that a run of this connector has read from last
    <state path>/sessions-<topic.prefix>-<slot>.json    the server's sessions of the last claim (``postgres/sessions``)

``wal2lake status`` shows the former. A process that was killed leaves it behind: it counts only while that process
exists, which is recognised by its id and the time of its start; a file of another host counts as long as it is there.

By the latter a run that starts while its server is away (``assemble/service``) knows that the connector file is right.
"""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cdc_core.private_files import private_folder, write_private


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run that waits after a fault that passes. ``retries``: attempts since then, in a row. ``since``: UTC."""

    cause: str
    remedy: str
    since: datetime
    retries: int


class WaitingFile:
    """The file of one connector in its state folder. Errors of the file system are ignored: it only informs."""

    def __init__(self, state: Path, name: str, slot: str) -> None:
        self._state = state
        self.path = state_file(state, "waiting", name, slot)

    def write(self, waiting: WaitingRun) -> None:
        """Record that this process waits."""
        content = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": process_start(os.getpid()),
            "cause": waiting.cause,
            "remedy": waiting.remedy,
            "since": waiting.since.isoformat(),
            "retries": waiting.retries,
        }
        with suppress(OSError):
            private_folder(self._state)
            write_private(self.path, json.dumps(content).encode())

    def clear(self) -> None:
        """Record that no run waits."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def read(self) -> WaitingRun | None:
        """Return what a run is waiting for now; None if none waits, or the file cannot be read."""
        try:
            found = json.loads(self.path.read_bytes())
            here = found["host"] == socket.gethostname()
            if here and process_start(int(found["pid"])) != found["started"]:
                return None
            since = datetime.fromisoformat(found["since"]).astimezone(UTC)
            return WaitingRun(str(found["cause"]), str(found["remedy"]), since, int(found["retries"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


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

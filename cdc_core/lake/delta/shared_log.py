"""Log entries that the workers of one run on one machine have made: each follows the others without asking the store.

Which worker merges a table's next slice is not known, and to ask a store for an entry that does not exist is a request
a round. An entry that is missing here was made elsewhere: by another program, on another machine, or it could not be
written. A worker that then commits on an older version than the newest learns it from the log, whose next entry exists.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress

from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.machine_folder import MachineFolder
from cdc_core.lake.delta.storage import copies_for
from cdc_core.lake.delta.vector_log import entry_name

_ASK_SECONDS = 60.0


class SharedLog:
    """The entries of one table: ``identity`` is its id in Delta, ``run`` the run's, for no other knows this table."""

    def __init__(self, folder: MachineFolder, run: str, identity: str) -> None:
        self._folder = folder
        self._name = f"{run}-{identity}"

    @classmethod
    def of(cls, path: str, identity: str, run: str = "") -> SharedLog | None:
        """Return that of the table at ``path``; None where its files have no copies on this machine.

        Without a ``run`` only who has the object knows its entries.
        """
        copies = copies_for(path)
        return None if copies is None else cls(copies, run or uuid.uuid4().hex, identity)

    def put(self, version: int, content: bytes) -> None:
        """Show the others an entry that the log has."""
        self._folder.save(f"{self._name}-{version}", lambda target: target.write(content))
        self._folder.keep_bound()

    def put_checkpoint(self, version: int, content: bytes, before: int) -> None:
        """Show the others the newest checkpoint. Entries that the one ``before`` has go: whoever needs one asks."""
        head = f"{version:020}".encode()
        self._folder.save(f"{self._name}-checkpoint", lambda target: target.write(head + content))
        for number in range(max(0, 2 * before - version), before + 1):
            self._folder.remove(f"{self._name}-{number}")
        self._folder.keep_bound()

    def checkpoint(self) -> tuple[int, bytes]:
        """Return the newest checkpoint that a worker has written: its version and content. Raises FileNotFoundError."""
        content = self._folder.of(f"{self._name}-checkpoint").read_bytes()
        return int(content[:20]), content[20:]

    def get(self, version: int) -> bytes:
        """Return an entry. Raises FileNotFoundError."""
        return self._folder.of(f"{self._name}-{version}").read_bytes()

    def has(self, version: int) -> bool:
        """Whether a worker of this run has made the entry."""
        return self._folder.of(f"{self._name}-{version}").exists()

    def lacks(self, folder: Folder, version: int) -> bool:
        """Whether the log in ``folder`` has no such entry. The store is asked if no worker has done it for a minute."""
        with suppress(FileNotFoundError):
            if time.time() - self._folder.of(f"{self._name}-asked").stat().st_mtime <= _ASK_SECONDS:
                return False
        self.note_asked()
        return bool(folder.missing([entry_name(version)]))

    def note_asked(self) -> None:
        """Tell the others that the store was asked for the table just now."""
        if not self._folder.touch(f"{self._name}-asked"):
            self._folder.save(f"{self._name}-asked", lambda target: target.write(b""))


def entry_content(folder: Folder, shared: SharedLog | None, version: int) -> bytes:
    """Return an entry that the log has: its copy if there is one. Raises FileNotFoundError."""
    if shared is not None:
        with suppress(FileNotFoundError):
            return shared.get(version)
    return folder.content(entry_name(version))

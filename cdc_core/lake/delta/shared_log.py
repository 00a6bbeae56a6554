"""Log entries that the workers of one run on one machine have made: each follows the others without asking the store.

Which worker merges a table's next slice is not known, and to ask a store for an entry that does not exist is a request
a round. An entry that is missing here was made elsewhere: by another program, on another machine, or it could not be
written. A worker that then commits on an older version than the newest learns it from the log, whose next entry exists.
"""

from __future__ import annotations

from cdc_core.lake.delta.machine_folder import MachineFolder


class SharedLog:
    """The entries of one table: ``identity`` is its id in Delta, ``run`` the run's, for no other knows this table."""

    def __init__(self, folder: MachineFolder, run: str, identity: str) -> None:
        self._folder = folder
        self._name = f"{run}-{identity}"

    def put(self, version: int, content: bytes) -> None:
        """Show the others an entry that the log has."""
        self._folder.save(f"{self._name}-{version}", lambda target: target.write(content))
        self._folder.keep_bound()

    def put_checkpoint(self, version: int, content: bytes) -> None:
        """Show the others the newest checkpoint."""
        head = f"{version:020}".encode()
        self._folder.save(f"{self._name}-checkpoint", lambda target: target.write(head + content))
        self._folder.keep_bound()

    def checkpoint(self) -> tuple[int, bytes]:
        """Return the newest checkpoint that a worker has written: its version and content. Raises FileNotFoundError."""
        content = self._folder.of(f"{self._name}-checkpoint").read_bytes()
        return int(content[:20]), content[20:]

    def get(self, version: int) -> bytes:
        """Return an entry. Raises FileNotFoundError."""
        return self._folder.of(f"{self._name}-{version}").read_bytes()

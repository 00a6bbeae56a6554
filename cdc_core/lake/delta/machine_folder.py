"""A folder of files that save work on one machine, bounded in bytes: those that were not used longest are removed.

Indexes of keys are such files (``lake/index``), and copies of objects of a store (``objects``).
Also removed is what was not used for a week.

Processes of one machine share it without locks. A file is written under a name of its own and renamed, so it is there
as a whole or not at all; two processes that write the same one write the same content; a removed file stays readable
for those who have mapped it. Its modification time is the time of its last use.

Nothing here is an error: a file that cannot be written or was removed is made or read again.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from cdc_core.private_files import create_private, private_folder

_TEMPORARY = ".new"
# What a killed process left; no index takes as long to write.
_LEFT_SECONDS = 3_600.0
# Other processes write too, so the folder is read again after so many files of this one.
_EVERY = 256
_ROOM = 0.9
_SOON_SECONDS = 600.0
# Of data files that no longer exist, and whose removal no process saw.
_UNUSED_SECONDS = 7 * 86_400.0

_log = logging.getLogger(__name__)


class MachineFolder:
    """Files by name, which end with ``suffix``; ``content`` says in messages what they are.

    ``max_bytes`` bounds their sum; a single larger file is removed as soon as it is written.
    """

    def __init__(self, path: Path, max_bytes: int, suffix: str, content: str) -> None:
        self.path = path
        self._max = max_bytes
        self._suffix = suffix
        self._content = content
        self._bytes: int | None = None
        self._written = 0
        self._told: set[str] = set()

    def of(self, name: str) -> Path:
        """Return the path of a file, which may not exist."""
        return self.path / f"{name}{self._suffix}"

    def save(self, name: str, write: Callable[[BinaryIO], object]) -> bool:
        """Write a file; returns whether it is there. A failure is logged once."""
        new = self.path / f"{name}.{uuid.uuid4().hex}{_TEMPORARY}"
        try:
            private_folder(self.path)
            create_private(new)
            with new.open("wb") as target:
                write(target)
            size = new.stat().st_size
            os.replace(new, self.of(name))
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            self._tell(
                "write",
                "The folder %s for %s cannot be written (%s): every round does their work again.",
                self.path,
                self._content,
                error.strerror,
            )
            return False
        self._written += 1
        self._bytes = None if self._bytes is None or self._written % _EVERY == 0 else self._bytes + size
        return True

    def touch(self, name: str) -> bool:
        """Note that a file was used; returns whether it is still there."""
        try:
            os.utime(self.of(name))
        except OSError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file that is no longer needed."""
        with suppress(OSError):
            self.of(name).unlink(missing_ok=True)

    def keep_bound(self) -> None:
        """Remove the files that were not used longest, if there are more bytes than allowed."""
        if self._bytes is not None and self._bytes <= self._max:
            return
        files = self._found()
        octets = sum(size for _, size, _ in files)
        if octets > self._max:
            now = time.time()
            for used, size, path in sorted(files):
                if octets <= self._max * _ROOM:
                    break
                with suppress(OSError):
                    path.unlink()
                octets -= size
                if now - used < _SOON_SECONDS:
                    self._tell(
                        "bound",
                        "%s need more than %s bytes: some are removed and made again while they are in use, which "
                        "makes rounds slower.",
                        self._content.capitalize(),
                        self._max,
                    )
        self._bytes = octets

    def _found(self) -> list[tuple[float, int, Path]]:
        """Return the last use, size and path of each file; removes old ones, and what killed processes left."""
        files, now = [], time.time()
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(OSError):
                    facts = entry.stat()
                    if entry.name.endswith(self._suffix) and now - facts.st_mtime > _UNUSED_SECONDS:
                        os.unlink(entry.path)
                    elif entry.name.endswith(self._suffix):
                        files.append((facts.st_mtime, facts.st_size, Path(entry.path)))
                    elif entry.name.endswith(_TEMPORARY) and now - facts.st_mtime > _LEFT_SECONDS:
                        os.unlink(entry.path)
        return files

    def _tell(self, what: str, text: str, *values: object) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning(text, *values)

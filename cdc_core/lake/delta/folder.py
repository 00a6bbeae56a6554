"""A Delta table's folder: on the local disk, or in an object store as delta-rs accesses it."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core.errors import LakeError, UnreadableError
from cdc_core.lake.delta.objects import Objects
from cdc_core.lake.delta.storage import copies_for, options_for
from cdc_core.lake.object_stores import for_delta_rs

# Errors of one file or folder; others (network, full disk) concern more than one table.
NO_ACCESS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_RETRIES_OF_A_TRIAL = 3
# Of a link: vfat, exFAT and FUSE; SMB and Azure Files.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def delta_uri(path: str) -> str:
    """Convert a lake path for delta-rs: a plain local path, or a URI of one of its object stores."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return for_delta_rs(path)


class Folder:
    """The files of one table, by their paths relative to its folder. ``storage``: as for ``DeltaTable``."""

    def __init__(self, path: str, storage: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.uri = delta_uri(path)
        self._remote: Objects | None = None
        if "://" in self.uri:
            self._remote = Objects(self.uri, options_for(path, storage) or {}, copies_for(path))

    @classmethod
    def refuses_second_entry(cls, path: str) -> bool:
        """Whether a log entry is created only where there is none, in an object store. Leaves nothing behind.

        Raises FileNotFoundError if there is no such bucket or container, OSError of the store otherwise.
        """
        trial = Objects(delta_uri(path), options_for(path) or {}, retries=_RETRIES_OF_A_TRIAL)
        return trial.creates_only_absent(f"__trial/{uuid.uuid4()}.json")

    @property
    def is_local(self) -> bool:
        """Whether the folder is on the local disk."""
        return self._remote is None

    def make(self, under: str) -> None:
        """Make a folder in this folder, and this one, if they do not exist."""
        if self._remote is None:
            (Path(self.uri) / under).mkdir(parents=True, exist_ok=True)

    def open_input(self, name: str, size: int | None = None) -> Any:
        """Open a file to be read, by pyarrow. ``size``: its bytes, if they are known."""
        if self._remote is None:
            return pa.memory_map(str(Path(self.uri) / name))
        return self._remote.open_input(name, size)

    def open_output(self, name: str) -> Any:
        """Open a new file to be written, by pyarrow. Raises UnreadableError if the folder does not allow it."""
        if self._remote is not None:
            return self._remote.open_output(name)
        try:
            if "/" in name:
                (Path(self.uri) / name).parent.mkdir(exist_ok=True)
            return pa.OSFile(str(Path(self.uri) / name), "wb")
        except NO_ACCESS as error:
            raise UnreadableError(
                f"No file can be written to the folder of the Delta table {self.path} ({type(error).__name__}).",
                "Restore the folder and its permissions.",
                self.path,
            ) from None

    def content(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of a file, or ``size`` of them. Raises FileNotFoundError."""
        if self._remote is not None:
            return self._remote.get(name, offset, size)
        with open(Path(self.uri) / name, "rb") as source:
            source.seek(offset)
            return source.read() if size is None else source.read(size)

    def write(self, name: str, content: bytes) -> None:
        """Write a new file, whose name nobody else has."""
        if self._remote is not None:
            self._remote.put(name, content)
            self._remote.keep(name, content)
            return
        with self.open_output(name) as target:
            target.write(content)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file of an object store, in place of one of this name if there is one. No copy of it is kept."""
        assert self._remote is not None
        self._remote.put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file if there is none of this name; returns whether it was written. It is complete or not there.

        A file that exists with this content was written by this call: its content is no other writer's, and the answer
        of an attempt that was carried out may be lost, on NFS and in object stores.

        Raises LakeError on storage without hard links: to rename would replace what another writer has created.
        """
        if self._remote is not None:
            return self._remote.create(name, content) or self._has(name, content)
        target = Path(self.uri) / name
        # Not beside the target: who lists the log may fail at a file that disappears meanwhile. Readers of a table
        # leave out what begins with an underscore.
        made = Path(self.uri) / f"_commit_{uuid.uuid4()}.json.tmp"
        try:
            made.write_bytes(content)
            os.link(made, target)
        except FileExistsError:
            return self._has(name, content)
        except OSError as error:
            if error.errno in _NO_LINKS and made.exists():
                raise LakeError(
                    f"The storage of {self.path} has no hard links, by which a commit is made without replacing that "
                    "of another writer.",
                    "Keep the lake on a local disk, on NFS, or in an object store; SMB, Azure Files, FAT and exFAT "
                    "have none.",
                ) from None
            raise
        finally:
            made.unlink(missing_ok=True)
        return True

    def _has(self, name: str, content: bytes) -> bool:
        try:
            return self.content(name) == content
        except FileNotFoundError:
            return False

    def size(self, name: str) -> int:
        """Return a file's bytes. Raises FileNotFoundError if it does not exist."""
        if self._remote is not None:
            return self._remote.size(name)
        return (Path(self.uri) / name).stat().st_size

    def has(self, name: str, size: int) -> bool:
        """Whether a file exists and has this size."""
        try:
            return self.size(name) == size
        except OSError:
            return False

    def names(self, under: str) -> list[str]:
        """Return the names of the files in a folder of this folder (``""``: itself), without their folder."""
        return [name for name, _, _ in self.listed(under)]

    def listed(self, under: str) -> list[tuple[str, float, int]]:
        """As ``names``, each with the time of its last change in seconds since 1970, and its bytes."""
        if self._remote is not None:
            return self._remote.listed(under)
        files = list[tuple[str, float, int]]()
        with os.scandir(Path(self.uri) / under) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed since it was listed
                    if entry.is_file():
                        facts = entry.stat()
                        files.append((entry.name, facts.st_mtime, facts.st_size))
        return files

    def missing(self, names: list[str]) -> list[str]:
        """Return the files that do not exist; checks each of them."""
        if self._remote is not None:
            return self._remote.missing(names)
        return [name for name in names if not (Path(self.uri) / name).exists()]

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; some may be gone already."""
        if self._remote is not None:
            self._remote.delete(names)
            return
        for name in names:
            (Path(self.uri) / name).unlink(missing_ok=True)

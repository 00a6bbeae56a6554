"""A Delta table's folder: on the local disk, or in an object store as delta-rs accesses it."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core.errors import LakeError, UnreadableError
from cdc_core.lake.delta.storage import options_for

# Errors of one file or folder; others (network, full disk) concern more than one table.
NO_ACCESS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
# Of a link: vfat, exFAT and FUSE; SMB and Azure Files.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def delta_uri(path: str) -> str:
    """Convert a lake path for delta-rs: a plain local path, or a URI of one of its object stores."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return "s3://" + path[len("s3a://") :] if path.startswith("s3a://") else path


class Folder:
    """The files of one table, by their paths relative to its folder. ``storage``: as for ``DeltaTable``."""

    def __init__(self, path: str, storage: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.uri = delta_uri(path)
        self._storage = options_for(path, storage) or {}

    @property
    def is_local(self) -> bool:
        """Whether the folder is on the local disk."""
        return "://" not in self.uri

    def open_input(self, name: str) -> Any:
        """Open a file to be read, by pyarrow."""
        if self.is_local:
            return pa.memory_map(str(Path(self.uri) / name))
        return self._filesystem().open_input_file(name)

    def open_output(self, name: str) -> Any:
        """Open a new file to be written, by pyarrow. Raises UnreadableError if the folder does not allow it."""
        if not self.is_local:
            return self._filesystem().open_output_stream(name)
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
        if self.is_local:
            with open(Path(self.uri) / name, "rb") as source:
                source.seek(offset)
                return source.read() if size is None else source.read(size)
        with self._filesystem().open_input_file(name) as source:
            source.seek(offset)
            return bytes(source.read() if size is None else source.read(size))

    def write(self, name: str, content: bytes) -> None:
        """Write a new file, whose name nobody else has."""
        if not self.is_local:
            self._put(name, content, "overwrite")
            return
        with self.open_output(name) as target:
            target.write(content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file if there is none of this name; returns whether there was none. It is complete or not there.

        Raises LakeError on storage without hard links: to rename would replace what another writer has created.
        """
        if not self.is_local:
            return self._put(name, content, "create")
        target = Path(self.uri) / name
        # Not beside the target: who lists the log may fail at a file that disappears meanwhile. Readers of a table
        # leave out what begins with an underscore.
        made = Path(self.uri) / f"_commit_{uuid.uuid4()}.json.tmp"
        try:
            made.write_bytes(content)
            os.link(made, target)
        except FileExistsError:
            return False
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

    def size(self, name: str) -> int:
        """Return a file's bytes. Raises FileNotFoundError if it does not exist."""
        if self.is_local:
            return (Path(self.uri) / name).stat().st_size
        size = self._filesystem().get_file_info(name).size
        if size is None:
            raise FileNotFoundError(name)
        return int(size)

    def names(self, under: str) -> list[str]:
        """Return the names of the files in a folder of this folder (``""``: itself), without their folder."""
        return [name for name, _, _ in self.listed(under)]

    def listed(self, under: str) -> list[tuple[str, float, int]]:
        """As ``names``, each with the time of its last change in seconds since 1970, and its bytes."""
        if self.is_local:
            files = list[tuple[str, float, int]]()
            with os.scandir(Path(self.uri) / under) as found:
                for each in found:
                    with suppress(FileNotFoundError):  # removed since it was listed
                        if each.is_file():
                            facts = each.stat()
                            files.append((each.name, facts.st_mtime, facts.st_size))
            return files
        import pyarrow.fs

        infos = self._filesystem().get_file_info(pyarrow.fs.FileSelector(under, allow_not_found=True))
        objects = [info for info in infos if info.type is pyarrow.fs.FileType.File]
        return [(info.base_name, info.mtime_ns / 1e9, info.size) for info in objects]

    def missing(self, names: list[str]) -> list[str]:
        """Return the files that do not exist; checks each file of a local table."""
        if self.is_local:
            return [name for name in names if not (Path(self.uri) / name).exists()]
        import pyarrow.fs

        infos = self._filesystem().get_file_info(names) if names else []
        return [info.path for info in infos if info.type is pyarrow.fs.FileType.NotFound]

    def delete(self, name: str) -> None:
        """Delete a file; a local one may be gone already."""
        if self.is_local:
            (Path(self.uri) / name).unlink(missing_ok=True)
        else:
            self._filesystem().delete_file(name)

    def _put(self, name: str, content: bytes, mode: str) -> bool:
        """Write an object; ``create``: by a conditional PUT, as delta-rs does, which has no such function for others.

        Returns False if the condition does not hold.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError
        from obstore.store import from_url

        config = {key: value for key, value in self._storage.items() if key != "aws_allow_http"}
        client = {"allow_http": True} if "aws_allow_http" in self._storage else {}
        store: Any = from_url(self.uri, config=config, client_options=client)
        try:
            obstore.put(store, name, content, mode=mode)
        except AlreadyExistsError:
            return False
        return True

    def _filesystem(self) -> Any:
        import pyarrow.fs
        from deltalake.fs import DeltaStorageHandler

        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.uri, self._storage))

"""The objects of one folder in an object store, by obstore: each read and each write is one request where it can be.

A file that is written or read is kept as a copy on this machine (``Storage.copies``), because the next round reads what
this one wrote, often in another process. A data file never changes and its name is used once, so a copy needs no check.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from cdc_core.lake.delta.machine_folder import MachineFolder
from cdc_core.lake.delta.side_by_side import giving_way

# Read as a whole, because each range of a file is a request; written in one request up to here.
WHOLE_BYTES = 8 << 20
_STORES = 16
_THREADS = 16


class Objects:
    """The objects under ``uri``, by names relative to it. ``options``: as for deltalake. For any thread.

    Errors are those of files: FileNotFoundError; OSError, with the store's text, for all others.
    """

    def __init__(self, uri: str, options: Mapping[str, str], copies: MachineFolder | None = None) -> None:
        told = urlsplit(uri)
        self._store = _store(f"{told.scheme}://{told.netloc}", tuple(sorted(options.items())))
        self._prefix = unquote(uri.partition("://")[2].partition("/")[2]).strip("/")
        self._copies = copies

    def put(self, name: str, content: bytes) -> None:
        """Write an object; replaces one of the same name."""
        import obstore

        with _request():
            obstore.put(self._store, self._key(name), content, use_multipart=len(content) > WHOLE_BYTES)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object by a conditional PUT; returns False if there is one of this name, which may be this one."""
        import obstore

        try:
            with _request():
                obstore.put(self._store, self._key(name), content, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        return True

    def get(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of an object from ``offset`` on, or ``size`` of them."""
        import obstore

        if (copy := self._copy_of(name)) is not None:
            return bytes(copy[offset:] if size is None else copy[offset : offset + size])
        with _request():
            if size is not None:
                return bytes(obstore.get_range(self._store, self._key(name), start=offset, length=size))
            return bytes(obstore.get(self._store, self._key(name)).bytes())[offset:]

    def size(self, name: str) -> int:
        """Return an object's bytes."""
        import obstore

        with _request():
            return int(obstore.head(self._store, self._key(name))["size"])

    def listed(self, under: str) -> list[tuple[str, float, int]]:
        """Return the objects right in a folder: name without it, seconds since 1970 of the last change, bytes."""
        import obstore

        with _request():
            entries = obstore.list_with_delimiter(self._store, f"{self._key(under)}/")["objects"]
        return [
            (entry["path"].rpartition("/")[2], entry["last_modified"].timestamp(), entry["size"]) for entry in entries
        ]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the names of which there is no object."""

        def is_missing(name: str) -> bool:
            try:
                self.size(name)
            except FileNotFoundError:
                return True
            return False

        all_names = list(names)
        with ThreadPoolExecutor(_THREADS) as pool:
            return [name for name, gone in zip(all_names, pool.map(is_missing, all_names), strict=True) if gone]

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; some may be gone already."""
        import obstore

        keys = [self._key(name) for name in names]
        if keys:
            with _request():
                obstore.delete(self._store, keys)

    def open_input(self, name: str, size: int | None = None) -> Any:
        """Open an object to be read, by pyarrow. ``size``: its bytes; without it, it is read as a whole."""
        if (copy := self._copy_of(name)) is not None:
            return pa.BufferReader(copy)
        if size is not None and size > WHOLE_BYTES:
            return pa.PythonFile(_ObjectReader(self, name, size), mode="r")
        content = self.get(name)
        if size is not None:
            self.keep(name, content)
        return pa.BufferReader(content)

    def open_output(self, name: str) -> Any:
        """Open a new object to be written, by pyarrow. It is there once the file is closed without an error."""
        return _ObjectOutput(self, name)

    def writer(self, name: str) -> Any:
        """Return obstore's writer of an object in parts."""
        import obstore

        return obstore.open_writer(self._store, self._key(name), buffer_size=WHOLE_BYTES)

    def keep(self, name: str, content: bytes) -> None:
        """Keep a copy of an object that never changes."""
        if self._copies is not None:
            self._copies.save(self._copy_name(name), lambda target: target.write(content))
            self._copies.keep_bound()

    def _copy_of(self, name: str) -> memoryview | None:
        """Return a copy's bytes, mapped into memory, so that they stay if another process removes the file."""
        if self._copies is None or not self._copies.touch(self._copy_name(name)):
            return None
        try:
            with pa.memory_map(str(self._copies.of(self._copy_name(name)))) as source:
                return memoryview(source.read_buffer())
        except FileNotFoundError:
            return None  # removed since, to keep the bound

    def _copy_name(self, name: str) -> str:
        # A data file's name is a UUID, and the paths of tables differ.
        return f"{self._prefix}/{name}".replace("/", "~")[-200:]

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._prefix, name) if part)


class _ObjectReader(io.RawIOBase):
    """A file whose reads are ranges of an object."""

    def __init__(self, objects: Objects, name: str, size: int) -> None:
        self._objects, self._name, self._size, self._at = objects, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (self._at if whence == os.SEEK_CUR else self._size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = self._size - self._at
        count = left if size < 0 else min(size, left)
        content = self._objects.get(self._name, self._at, count) if count > 0 else b""
        self._at += len(content)
        return content


class _ObjectOutput:
    """What pyarrow writes to: one PUT when it is closed, or an upload in parts once it is large."""

    def __init__(self, objects: Objects, name: str) -> None:
        self._objects, self._name = objects, name
        self._parts: list[bytes] = []
        self._held = self._size = 0
        self._upload: Any = None

    def __enter__(self) -> Any:
        self._file = pa.PythonFile(self, mode="w")
        return self._file

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            return  # neither an object nor the end of an upload
        with _request():
            if self._upload is not None:
                self._flush()
                self._upload.close()
                return
        content = b"".join(self._parts)
        self._objects.put(self._name, content)
        self._objects.keep(self._name, content)

    closed = False

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing: the object is there when it is closed."""

    def close(self) -> None:
        """Nothing: it may be closed after an error."""

    def write(self, content: Any) -> int:
        taken = bytes(content)
        self._parts.append(taken)
        self._held += len(taken)
        self._size += len(taken)
        if self._held > WHOLE_BYTES:
            with _request():
                self._upload = self._upload or self._objects.writer(self._name)
                self._flush()
        return len(taken)

    def _flush(self) -> None:
        self._upload.write(b"".join(self._parts))
        self._parts, self._held = [], 0


@lru_cache(maxsize=_STORES)
def _store(root: str, options: tuple[tuple[str, str], ...]) -> Any:
    """Return the store of a bucket, whose connections all tables in it use."""
    from obstore.store import from_url

    config: Any = {key: value for key, value in options if key != "aws_allow_http"}
    client: Any = {"allow_http": True} if "aws_allow_http" in dict(options) else {}
    return from_url(root, config=config, client_options=client)


@contextmanager
def _request() -> Iterator[None]:
    """The block asks the store: others may work meanwhile, and its errors are those of files."""
    from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

    try:
        with giving_way():
            yield
    except NotFoundError as error:
        raise FileNotFoundError(str(error)) from None
    except AlreadyExistsError as error:
        raise FileExistsError(str(error)) from None
    except BaseError as error:
        raise OSError(str(error)) from None

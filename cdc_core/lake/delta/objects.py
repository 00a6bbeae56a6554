"""The objects of one folder in an object store, by obstore: each read and each write is one request where it can be.

A file that is written or read is kept as a copy on this machine (``Storage.copies``), because the next round reads what
this one wrote, often in another process. A data file never changes and its name is used once, so a copy needs no check.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from queue import Full, Queue
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from cdc_core.lake.delta.machine_folder import MachineFolder
from cdc_core.lake.delta.side_by_side import giving_way

# Read as a whole, because each range of a file is a request; written in one request up to here.
WHOLE_BYTES = 8 << 20
_STORES = 16
_THREADS = 16
_PARTS_AT_A_TIME = 4
_RETRIES = 10


class Objects:
    """The objects under ``uri``, by names relative to it. ``options``: as for deltalake. For any thread.

    Errors are those of files: FileNotFoundError; OSError, with the store's text, for all others. ``retries``: how often
    a request is tried again.
    """

    def __init__(
        self, uri: str, options: Mapping[str, str], copies: MachineFolder | None = None, retries: int = _RETRIES
    ) -> None:
        told = urlsplit(uri)
        self._store = _store(f"{told.scheme}://{told.netloc}", tuple(sorted(options.items())), retries)
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

    def creates_only_absent(self, name: str) -> bool:
        """Whether the store refuses a second object of a name that nobody has; leaves none. Raises OSError."""
        first = uuid.uuid4().bytes
        try:
            self.create(name, first)
            return not self.create(name, b"") and self.get(name) == first
        finally:
            self.delete([name])

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
        if not keys:
            return
        try:
            with _request():
                obstore.delete(self._store, keys)
        except FileNotFoundError:  # Google and Azure tell of one that is gone, and the others may be there
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(self._delete_if_there, keys))

    def _delete_if_there(self, key: str) -> None:
        import obstore

        with suppress(FileNotFoundError), _request():
            obstore.delete(self._store, key)

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

    def upload(self, name: str, parts: Iterator[bytes]) -> None:
        """Write an object in parts; aborted, so that the store keeps none of them, if ``parts`` or a request fails."""
        import obstore

        with _request():
            obstore.put(self._store, self._key(name), parts, chunk_size=WHOLE_BYTES, max_concurrency=_PARTS_AT_A_TIME)

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
        self._upload: _Upload | None = None

    def __enter__(self) -> Any:
        self._file = pa.PythonFile(self, mode="w")
        return self._file

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._upload is not None:
            self._end(self._upload, is_complete=error is None)
        elif error is None:
            content = b"".join(self._parts)
            self._objects.put(self._name, content)
            self._objects.keep(self._name, content)

    def _end(self, upload: _Upload, *, is_complete: bool) -> None:
        try:
            if is_complete:
                self._flush(upload)
            upload.end(is_complete=is_complete)
        except OSError:
            # A store refuses to complete an upload again: then the answer to its completion was lost.
            if not self._is_there():
                raise

    def _is_there(self) -> bool:
        try:
            return self._objects.size(self._name) == self._size
        except OSError:
            return False

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
            self._upload = self._upload or _Upload(self._objects, self._name)
            self._flush(self._upload)
        return len(taken)

    def _flush(self, upload: _Upload) -> None:
        upload.add(b"".join(self._parts))
        self._parts, self._held = [], 0


class _Upload:
    """An upload in parts by a thread of its own, as obstore asks for the parts, and only so aborts what has failed."""

    def __init__(self, objects: Objects, name: str) -> None:
        self._parts: Queue[bytes | None] = Queue(1)
        self._is_complete = False
        self._pool = ThreadPoolExecutor(1, "wal2lake-upload")
        self._uploaded = self._pool.submit(objects.upload, name, self._given())

    def add(self, part: bytes | None) -> None:
        """Upload a part, once the one before it is taken; None ends them. Raises the error of the upload."""
        with giving_way():
            while not self._uploaded.done():
                with suppress(Full):
                    return self._parts.put(part, timeout=0.2)
            return self._uploaded.result()

    def end(self, *, is_complete: bool) -> None:
        """Make the object of the parts, or abort the upload, which then has no error."""
        self._is_complete = is_complete
        try:
            self.add(None)
            with giving_way():
                self._uploaded.result()
        except Exception:
            if is_complete:
                raise
        finally:
            self._pool.shutdown()

    def _given(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            yield part
        if not self._is_complete:
            raise OSError("the writer of the object has failed")


@lru_cache(maxsize=_STORES)
def _store(root: str, options: tuple[tuple[str, str], ...], retries: int) -> Any:
    """Return the store of a bucket, whose connections all tables in it use."""
    from obstore.store import from_url

    config: Any = {key: value for key, value in options if key != "allow_http"}
    client: Any = {"allow_http": True} if "allow_http" in dict(options) else {}
    return from_url(root, config=config, client_options=client, retry_config={"max_retries": retries})


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

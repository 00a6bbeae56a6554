"""Files and folders that only their owner may read: what a run spools contains rows of the source. Locks on files."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

_FOLDER, _FILE = 0o700, 0o600
_LOCK_NAP_SECONDS = 0.01


def private_folder(path: Path) -> Path:
    """Create a folder with mode 0700, or narrow an existing one to it; returns it. Raises OSError.

    A folder that others are meant to use is left as it is: with the sticky bit (``/tmp``), of another owner, the home
    or working directory, or above one of them. Its folders for wal2lake's files are narrowed themselves.
    """
    missing = []
    above = path
    while not above.exists():
        missing.append(above)
        above = above.parent
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(_FOLDER)
    if not missing:
        _narrow(path)
    return path


def create_private(path: Path | str) -> None:
    """Create an empty file with mode 0600, so that whoever writes it next keeps the mode. Raises OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, _FILE))


def write_private(path: Path, content: bytes) -> None:
    """Replace a file as a whole by one with mode 0600. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    create_private(partial)
    partial.write_bytes(content)
    partial.replace(path)


def lock_file(path: Path, *, create: bool = False, waits: bool = False) -> int | None:
    """Lock a file for this process by the kernel, which releases it when the process ends and not before.

    Returns the descriptor, open for reading and writing; its close releases the lock. None if another process has the
    lock (``waits``: waits for it), the storage has no locks, or (not ``create``) there is no such file.
    Raises OSError if the file cannot be opened.
    """
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), _FILE)
        except FileNotFoundError:
            if create:
                raise
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            if not waits:
                return None
            time.sleep(_LOCK_NAP_SECONDS)
            continue
        except OSError:
            os.close(lock)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        # Removed by another process between opening and locking: the lock protects nothing.
        os.close(lock)
        if not create:
            return None


def _narrow(path: Path) -> None:
    with suppress(OSError):
        found = path.stat()
        is_own = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
        if is_own and found.st_mode & 0o077 and not _is_for_others(path.resolve()):
            path.chmod(_FOLDER)


def _is_for_others(path: Path) -> bool:
    return any(place == path or path in place.parents for place in (Path.home().resolve(), Path.cwd().resolve()))

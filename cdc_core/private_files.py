"""Files and folders that only their owner may read: what a run spools contains rows of the source."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_FOLDER, _FILE = 0o700, 0o600


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


def _narrow(path: Path) -> None:
    with suppress(OSError):
        found = path.stat()
        is_own = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
        if is_own and found.st_mode & 0o077 and not _is_for_others(path.resolve()):
            path.chmod(_FOLDER)


def _is_for_others(path: Path) -> bool:
    return any(place == path or path in place.parents for place in (Path.home().resolve(), Path.cwd().resolve()))

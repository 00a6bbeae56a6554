"""Temporary files that belong to one run: each contains its owner, and readers check it before they use the rows.

A path alone does not prove whose rows a file has: folders are shared, cleared and copied. The owner is stored in the
metadata of the file's schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from cdc_core.errors import LostFolderError

_OWNER_KEY = b"wal2lake.owner"
_TABLE_KEY = b"wal2lake.of"


@dataclass(frozen=True, slots=True)
class Owner:
    """The run that writes temporary files. ``run`` is unique; the others describe it in messages.

    ``server`` is host, port and database, ``lake`` the lake's path and ``topic.prefix``.
    """

    run: str = ""
    slot: str = ""
    server: str = ""
    lake: str = ""

    def metadata(self, table: str) -> dict[bytes, bytes]:
        """Return the metadata of a file with rows of ``table`` (``schema.table``)."""
        return {_OWNER_KEY: json.dumps(asdict(self)).encode(), _TABLE_KEY: table.encode()}

    def check(self, metadata: Mapping[bytes, bytes] | None, path: str, table: str | None = None) -> None:
        """Raise LostFolderError unless a file's metadata names this run, and ``table`` if it is given."""
        entries = metadata or {}
        owner = entries.get(_OWNER_KEY)
        if owner is None or json.loads(owner) != asdict(self):
            said = "no run" if owner is None else f"another run ({_described(json.loads(owner))})"
            raise LostFolderError(
                f"The temporary file {path} belongs to {said}, not to this one ({_described(asdict(self))}).",
                "Nothing of it was used. Run again, and let no other program write to wal2lake.state.path.",
            )
        if table is not None and entries.get(_TABLE_KEY) != table.encode():
            raise LostFolderError(
                f"The temporary file {path} contains rows of another table than {table}.",
                "Nothing of it was used. Run again, and let no other program write to wal2lake.state.path.",
            )


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Raise LostFolderError where a temporary file cannot be written because its folder was removed."""
    try:
        yield
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        raise _lost_file(path) from None


@contextmanager
def opening(path: object) -> Iterator[None]:
    """Raise LostFolderError where a temporary file cannot be opened or measured, as it no longer exists."""
    try:
        yield
    except OSError:
        raise _lost_file(path) from None


def _lost_file(path: object) -> LostFolderError:
    """Return the error for a temporary file, or its folder, that was removed while its run was using it."""
    return LostFolderError(
        f"The temporary file {path} of this run cannot be used: it, or its folder, was removed or is not accessible.",
        "Run again: no position of its changes was confirmed. Files under wal2lake.state.path must not be removed "
        "while a run uses them.",
    )


def _described(owner: Mapping[str, str]) -> str:
    told = [f"{name} {owner[name]}" for name in ("slot", "server", "lake") if owner.get(name)]
    return ", ".join([f"run {owner.get('run', '')[:8] or '?'}", *told])

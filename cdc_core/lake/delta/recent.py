"""delta-rs' objects of local tables that were opened a moment ago.

While a run starts, it looks at each table of the lake several times: what it holds, whether its epoch is the present
one, its rounds. To load a log takes delta-rs milliseconds; to see that it has not changed takes three calls of the file
system. An object that is handed out again is shared: who wants to change it, or to load another version into it, takes
it for itself (``claim``) or opens one of its own. What breaks otherwise: another reader of the table is at a version
that it has not asked for.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_core.lake.delta.vector_log import LOG, entry_name

# What nobody asks for any more would only take memory: a table of many files has a large object.
_TABLES = 512
_SECONDS = 60.0

_Stamp = tuple[int, int, int, int]


@dataclass(slots=True, eq=False)
class RecentTable:
    """A table's object at the ``version`` that was its newest.

    ``txns``: the positions that were asked of it. ``stamps`` identify the log's folder and its newest entry, each with
    its last change. ``readers``: how often it was handed out, ``at`` when last.
    """

    raw: Any
    version: int = field(init=False)
    stamps: tuple[_Stamp, ...] = ()
    txns: dict[str, int | None] = field(default_factory=dict)
    readers: int = 1
    at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # Not asked of the object later: somebody who has claimed it may be changing it.
        self.version = int(self.raw.version())


_lock = threading.Lock()
_recent: OrderedDict[str, RecentTable] = OrderedDict()


def open_newest(uri: str, options: dict[str, str] | None) -> RecentTable:
    """Return the table at its newest version. Raises delta-rs' errors."""
    import deltalake

    if "://" in uri:
        return RecentTable(deltalake.DeltaTable(uri, storage_options=options))
    log = Path(uri) / LOG
    if (known := _recent.get(uri)) is not None and _is_as_it_was(log, known) and _handed_out(uri, known):
        return known
    before = _stamps(log)
    table = RecentTable(deltalake.DeltaTable(uri, storage_options=options))
    table.stamps = _stamps(log, _entry(log, table))
    # Otherwise a commit was made, or the table replaced, while it was loaded: it is not known which version is whose.
    if before and table.stamps[:1] == before:
        with _lock:
            _recent[uri] = table
            _forget_old()
    return table


def claim(uri: str, recent: RecentTable) -> bool:
    """Whether nobody else was given the object; then nobody will be, and the caller may change it."""
    with _lock:
        if recent.readers > 1:
            return False
        if _recent.get(uri) is recent:
            del _recent[uri]
        return True


def _is_as_it_was(log: Path, known: RecentTable) -> bool:
    # Two commits within the resolution of the clock give the folder the same time.
    return _stamps(log, _entry(log, known)) == known.stamps and not _entry(log, known, 1).exists()


def _handed_out(uri: str, known: RecentTable) -> bool:
    with _lock:
        if _recent.get(uri) is not known:
            return False
        known.readers += 1
        known.at = time.monotonic()
        _recent.move_to_end(uri)
        return True


def _entry(log: Path, recent: RecentTable, later: int = 0) -> Path:
    return log.parent / entry_name(recent.version + later)


def _stamps(*paths: Path) -> tuple[_Stamp, ...]:
    """Return what identifies each path and its last change; nothing if one of them does not exist."""
    try:
        statuses = [os.stat(path) for path in paths]
    except OSError:
        return ()
    return tuple((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) for status in statuses)


def _forget_old() -> None:
    oldest = time.monotonic() - _SECONDS
    while len(_recent) > _TABLES or next(iter(_recent.values())).at < oldest:
        _recent.popitem(last=False)

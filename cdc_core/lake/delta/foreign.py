"""Commits of other programs that changed rows of a lake table.

Every commit of wal2lake that changes rows has one of its positions (``txn``, ``lake/positions``). Maintenance by
whomever (OPTIMIZE) changes no row, and marks its files so.
"""

from __future__ import annotations

import re

from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.shared_log import SharedLog
from cdc_core.lake.delta.storage import options_for
from cdc_core.lake.delta.vector_log import entry_name

# Within a text of the log, such as a statistic with a value of the table, quotes are escaped.
_CHANGES_ROWS = re.compile(rb'"dataChange"\s*:\s*true')
_IS_OURS = re.compile(rb'"appId"\s*:\s*"wal2lake:')


def foreign_commit(path: str, since: int, upto: int, own: SharedLog | None = None) -> int | None:
    """Return the first version after ``since``, up to ``upto``, in which another program changed rows; None for none.

    Versions that the log no longer has are skipped, and those that are known to be the run's ``own``.
    """
    versions = [version for version in range(since + 1, upto + 1) if own is None or not own.has(version)]
    folder = Folder(path, options_for(path, None)) if versions else None
    for version in versions:
        try:
            entry = b"" if folder is None else folder.content(entry_name(version))
        except OSError:
            continue
        if _CHANGES_ROWS.search(entry) and not _IS_OURS.search(entry):
            return version
    return None

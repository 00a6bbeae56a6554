"""A commit's entry in the log, written here instead of by delta-rs: its removals cannot name a deletion vector.

The entry is created only if the log has none of its version, as delta-rs does it: by a hard link, or a conditional PUT.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.log_text import stats_json, texts
from cdc_core.version import __version__

_FEATURE = "deletionVectors"
# The features that a table of this writer version or a later one has.
_LEGACY = {
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {"changeDataFeed", "generatedColumns"},
    5: {"columnMapping"},
    6: {"identityColumns"},
}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What a commit does: files added and removed, positions (``txns``), and the program's own ``metadata``.

    ``actions``: others, as in the log. ``made``: when, in milliseconds since 1970.

    A file with another vector than before is removed with the old and added with the new one.
    """

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    data_change: bool = True
    actions: Sequence[dict[str, Any]] = ()

    made: int = field(default_factory=lambda: int(time.time() * 1000))

    def content(self) -> bytes:
        """Return the entry's lines."""
        return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in self._actions(self.made))

    def applied_to(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return a table's files after the commit, from those before it."""
        gone = {file.path for file in self.removed}
        return [*(file for file in files if file.path not in gone), *self.added]

    def _actions(self, now: int) -> Iterable[dict[str, Any]]:
        yield {
            "commitInfo": {
                "timestamp": now,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append", "partitionBy": "[]"},
                "engineInfo": f"wal2lake/{__version__}",
                **(texts(self.metadata) or {}),
            }
        }
        yield from self.actions
        for app, version in self.txns.items():
            yield {"txn": {"appId": app, "version": version, "lastUpdated": now}}
        for file in self.removed:
            gone = {"deletionTimestamp": now, "dataChange": self.data_change, "extendedFileMetadata": True}
            yield {"remove": {**_facts(file), **gone}}
        for file in self.added:
            yield {
                "add": {
                    **_facts(file),
                    "modificationTime": now,
                    "dataChange": self.data_change,
                    "stats": stats_json(file),
                }
            }


def with_vectors(versions: tuple[int, int], reader: Iterable[str], writer: Iterable[str]) -> dict[str, Any]:
    """Return the log's ``protocol`` with deletion vectors, from the versions (reader, writer) and features before it.

    Versions before features stand for features, which must be named from then on.
    """
    readers, writers = {*reader, _FEATURE}, {*writer, _FEATURE}
    if versions[0] == 2:
        readers.add("columnMapping")
    for version, features in _LEGACY.items():
        if version <= versions[1] < 7:
            writers |= features
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(readers),
        "writerFeatures": sorted(writers),
    }


def _facts(file: DataFile) -> dict[str, Any]:
    found: dict[str, Any] = {"path": file.path, "partitionValues": {}, "size": file.size}
    return found if file.vector is None else {**found, "deletionVector": file.vector.for_log}

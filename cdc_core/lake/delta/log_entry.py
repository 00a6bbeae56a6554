"""A commit's entry in the log, written here: delta-rs knows neither deletion vectors nor most features.

The entry is created only if the log has none of its version, as delta-rs does it: by a hard link, or a conditional PUT.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_core.lake.delta import row_tracking
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.log_text import stats_json, texts
from cdc_core.version import __version__

CLUSTERING_DOMAIN = "delta.clustering"
_PRESERVED = "delta.rowTracking.preserved"
ENGINE = f"wal2lake/{__version__}"
"""The writer that a commit of ours names."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What a commit does: files added and removed, positions (``txns``), and the program's own ``metadata``.

    ``actions``: ``protocol`` and ``metaData``, as in the log. ``names``: the physical name of each column, with column
    mapping. ``clustered_by``: physical names of the columns by which the table is clustered from now on; None for no
    change. ``replaces``: the files removed are all that the table had. ``made``: when, in milliseconds since 1970.
    ``committed``: the commit's own time, later than those before it, if ``has_commit_time``. ``assigns_row_ids``: the
    table has row tracking; ``keeps_row_ids``: rows that were updated or moved have the ids that they had;
    ``highest_row_id``: of the table after the commit, None for no change. ``changes``: files of its change data feed.
    ``attempt``: no other entry has it, so that a writer knows its own.

    A file with another vector than before is removed with the old and added with the new one.
    """

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    data_change: bool = True
    actions: Sequence[dict[str, Any]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    clustered_by: Sequence[str] | None = None
    has_commit_time: bool = False
    replaces: bool = False
    made: int = field(default_factory=lambda: int(time.time() * 1000))
    committed: int = 0
    assigns_row_ids: bool = False
    keeps_row_ids: bool = True
    highest_row_id: int | None = None
    changes: Sequence[DataFile] = ()
    attempt: str = field(default_factory=lambda: str(uuid.uuid4()))

    def at(self, made: int) -> LogEntry:
        """Return the entry made at a time, in milliseconds since 1970."""
        return replace(self, made=made)

    def after(self, last: int) -> LogEntry:
        """Return the entry with a commit time after ``last``, that of the version before it."""
        return replace(self, committed=max(self.made, last + 1))

    def numbered(self, highest: int, version: int) -> LogEntry:
        """Return the entry of a version with row ids above ``highest`` for files that no commit has added."""
        added, last = row_tracking.numbered(self.added, highest, version)
        return replace(self, added=added, highest_row_id=None if last == highest else last)

    def content(self) -> bytes:
        """Return the entry's lines."""
        return b"".join(
            json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in self._actions(self.made)
        )

    def applied_to(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return a table's files after the commit, from those before it."""
        gone = {file.path for file in (*self.removed, *self.added)}
        return [*(file for file in files if file.path not in gone), *self.added]

    def _actions(self, now: int) -> Iterable[dict[str, Any]]:
        yield {
            "commitInfo": {
                "timestamp": now,
                **({"inCommitTimestamp": self.committed} if self.has_commit_time else {}),
                "operation": "WRITE",
                "operationParameters": {"mode": "Overwrite" if self.replaces else "Append", "partitionBy": "[]"},
                "engineInfo": ENGINE,
                "txnId": self.attempt,
                **({"tags": {_PRESERVED: str(self.keeps_row_ids).lower()}} if self.assigns_row_ids else {}),
                **(texts(self.metadata) or {}),
            }
        }
        yield from self.actions
        if self.clustered_by is not None:
            yield {"domainMetadata": clustering_domain(self.clustered_by)}
        if self.highest_row_id is not None:
            yield {"domainMetadata": row_tracking.domain(self.highest_row_id)}
        for app, version in self.txns.items():
            yield {"txn": {"appId": app, "version": version, "lastUpdated": now}}
        for file in self.removed:
            gone = {"deletionTimestamp": now, "dataChange": self.data_change, "extendedFileMetadata": True}
            yield {"remove": {**_facts(file), **gone}}
        for file in self.changes:
            yield {"cdc": {**_facts(file), "dataChange": False}}
        for file in self.added:
            yield {
                "add": {
                    **_facts(file),
                    "modificationTime": now,
                    "dataChange": self.data_change,
                    "stats": stats_json(file, self.names),
                }
            }


def clustering_domain(columns: Sequence[str]) -> dict[str, Any]:
    """Return the log's ``domainMetadata`` of a table that is clustered by these columns (physical names)."""
    told = {"clusteringColumns": [[column] for column in columns], "domainName": CLUSTERING_DOMAIN}
    return {"domain": CLUSTERING_DOMAIN, "configuration": json.dumps(told), "removed": False}


def _facts(file: DataFile) -> dict[str, Any]:
    facts: dict[str, Any] = {"path": file.path, "partitionValues": {}, "size": file.size}
    if file.base_row_id is not None:
        facts |= {"baseRowId": file.base_row_id, "defaultRowCommitVersion": file.commit_version}
    return facts if file.vector is None else {**facts, "deletionVector": file.vector.for_log}

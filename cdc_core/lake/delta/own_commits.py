"""Commits that another worker of wal2lake made, taken over from their log entries: delta-rs takes ten times as long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core.lake.delta import row_tracking
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.deletion_vectors import DeletionVector
from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.log_entry import ENGINE, LogEntry
from cdc_core.lake.delta.shared_log import SharedLog
from cdc_core.lake.delta.vector_log import entry_name

_FILES_ONLY = {"commitInfo", "txn", "add", "remove", "cdc", "domainMetadata"}
_MOST = 100


def is_newest(folder: Folder, version: int) -> bool:
    """Whether a local log shows that nothing was committed since a version; cheaper than listing it."""
    if not folder.is_local:
        return False
    root = Path(folder.uri)
    return (root / entry_name(version)).exists() and not (root / entry_name(version + 1)).exists()


def newer_commits(
    source: Folder | SharedLog, version: int, schema: pa.Schema, names: Mapping[str, str]
) -> tuple[list[LogEntry], bool]:
    """Return the commits after a version, and whether they are all; else delta-rs has to load the log.

    They are not if one of them is another program's or changed more than files, or if the log lacks entries. Of a
    SharedLog they are all that it has.
    """
    entries = list[LogEntry]()
    try:
        while len(entries) < _MOST:
            number = version + len(entries) + 1
            try:
                content = source.get(number) if isinstance(source, SharedLog) else source.content(entry_name(number))
            except FileNotFoundError:
                if isinstance(source, Folder):
                    # Entries are removed from the oldest on: the log has all later ones if it has the last.
                    source.size(entry_name(number - 1))
                return entries, True
            entry = _own_entry(content, schema, names)
            if entry is None:
                break
            entries.append(entry)
    except (OSError, ValueError, KeyError):
        return [], False
    return entries, False


def _own_entry(content: bytes, schema: pa.Schema, names: Mapping[str, str]) -> LogEntry | None:
    """Return what an entry of the log does, if a commit of this version of wal2lake that changed only files made it.

    None for any other: what its statistics mean, or what else it changed, is for delta-rs to say. ``schema`` are the
    table's columns, ``names`` their physical names, where these differ. Raises ValueError, KeyError if it is damaged.
    """
    actions = [json.loads(line) for line in content.splitlines()]
    kinds = {kind for action in actions for kind in action}
    info = actions[0].get("commitInfo", {}) if actions else {}
    if info.get("engineInfo") != ENGINE or not kinds <= _FILES_ONLY:
        return None
    highest = None
    for action in actions:
        domain = action.get("domainMetadata")
        if domain is not None and domain["domain"] != row_tracking.DOMAIN:
            return None
        highest = highest if domain is None else row_tracking.highest_in(domain)
    types = {names.get(field.name, field.name): field for field in schema}
    return LogEntry(
        [_file_of(action["add"], types) for action in actions if "add" in action],
        [_file_of(action["remove"], types) for action in actions if "remove" in action],
        {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action},
        has_commit_time="inCommitTimestamp" in info,
        made=int(info["timestamp"]),
        committed=int(info.get("inCommitTimestamp", 0)),
        highest_row_id=highest,
    )


def _file_of(told: Mapping[str, Any], types: Mapping[str, pa.Field]) -> DataFile:
    stats = json.loads(told["stats"]) if told.get("stats") else {}
    vector = told.get("deletionVector")
    return DataFile(
        told["path"],
        int(told.get("size") or 0),
        int(stats.get("numRecords", 0)),
        _values(stats.get("minValues", {}), types),
        _values(stats.get("maxValues", {}), types),
        {types[name].name: count for name, count in stats.get("nullCount", {}).items() if name in types},
        None if vector is None else DeletionVector.of_log(vector),
        told.get("baseRowId"),
        told.get("defaultRowCommitVersion"),
    )


def _values(told: Mapping[str, Any], types: Mapping[str, pa.Field]) -> dict[str, Any]:
    """Return bounds as they were before ``stats_json`` wrote them: integers, texts and dates."""
    return {
        types[name].name: date.fromisoformat(value) if pa.types.is_date(types[name].type) else value
        for name, value in told.items()
        if name in types
    }

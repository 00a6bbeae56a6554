"""Asks a running stream to replay or to re-read tables, and waits for its answers."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc_core.engine.stream.requests import answer_file
from cdc_core.errors import InUseError, TableError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId
from cdc_core.snapshot import SnapshotReport, append_signal, withdraw_signal

_log = logging.getLogger(__name__)

# A request is taken between two rounds, after a snapshot of the same run.
_TAKEN_SECONDS = 120.0
_DONE_SECONDS = 6 * 3600.0
_NAP_SECONDS = 0.2
_LOOK_SECONDS = 10.0


def ask_stream(
    signals: Path,
    is_running: Callable[[], bool],
    kind: str,
    asked: Mapping[TableId, Mapping[str, object]],
    in_use: InUseError,
) -> dict[TableId, dict[str, Any]]:
    """Send one request for each table to the run that has the slot, by the file ``signals``; returns its answers.

    ``is_running`` asks the server whether a run has the slot.

    Raises TableError with the first refusal, and InUseError if that run does not take requests from this state folder.
    """
    if not is_running():
        raise in_use  # of the lake, by a run with another slot
    ids = {table: str(uuid.uuid4()) for table in asked}
    files = {table: answer_file(signals.parent, ids[table]) for table in asked}
    try:
        for table, data in asked.items():
            signals.parent.mkdir(0o700, parents=True, exist_ok=True)
            os.close(os.open(files[table], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            line = {"id": ids[table], "type": kind, "data": {"table": _quoted(table), **data}}
            append_signal(signals, json.dumps(line))
        _log.info("A stream is running: it is asked, and does this between two of its rounds.")
        _await_taken(signals, list(ids.values()), in_use)
        return {table: _answer(is_running, files[table], table) for table in asked}
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)


def snapshot_of(table: TableId, answer: Mapping[str, Any]) -> SnapshotReport | None:
    """Return the report of the table's re-read in an answer; None if it was not read."""
    snapshot = answer["snapshot"]
    return None if snapshot is None else SnapshotReport(**{**snapshot, "table": table, "lsn": Lsn(snapshot["lsn"])})


def _quoted(table: TableId) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.table))


def _await_taken(signals: Path, ids: Sequence[str], in_use: InUseError) -> None:
    deadline = time.monotonic() + _TAKEN_SECONDS
    while any(withdraw_signal(signals, signal_id, only_look=True) for signal_id in ids):
        if time.monotonic() >= deadline:
            for signal_id in ids:
                withdraw_signal(signals, signal_id)
            raise InUseError(
                f"{in_use.message} It did not take the request within {_TAKEN_SECONDS:g} s.",
                "Run the command where that run has its state folder (wal2lake.state.path), once it is streaming.",
            )
        time.sleep(_NAP_SECONDS)


def _answer(is_running: Callable[[], bool], file: Path, table: TableId) -> dict[str, Any]:
    deadline, looked, absent = time.monotonic() + _DONE_SECONDS, time.monotonic(), 0
    while time.monotonic() < deadline:
        if time.monotonic() - looked >= _LOOK_SECONDS:
            # A run that begins anew after a fault is away for a moment.
            looked, absent = time.monotonic(), 0 if is_running() else absent + 1
        if absent > 1:
            raise TransientError(
                f"The run ended before the request for {table} was finished.", "Run the command again."
            )
        text = file.read_text(encoding="utf-8")
        if text.endswith("\n"):
            answer: dict[str, Any] = json.loads(text)
            if "error" in answer:
                raise TableError(answer["error"], answer["remedy"], str(table))
            return answer
        time.sleep(_NAP_SECONDS)
    raise TransientError(
        f"The running stream has not finished the request for {table} within {_DONE_SECONDS / 3600:g} hours.",
        "wal2lake status shows whether the table is being read.",
    )

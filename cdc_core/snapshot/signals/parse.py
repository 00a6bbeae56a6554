"""Converts a signal's type and data to an action. A signal that is not unambiguous is refused as a whole.

Error texts contain names of fields, never their values: a signal comes from a table of the user.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cdc_core.schema import TableId
from cdc_core.selection import table_matcher
from cdc_core.snapshot.incremental.watermarks import WINDOW_CLOSE, WINDOW_OPEN


class MalformedSignalError(ValueError):
    """A signal that cannot be processed; the text is the reason, as a clause within a sentence."""


class SnapshotKind(StrEnum):
    """``incremental``: in chunks while streaming. ``blocking``: while streaming is paused."""

    INCREMENTAL = "incremental"
    BLOCKING = "blocking"


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal as received. ``data`` is the decoded JSON object, empty if there was none."""

    id: str
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """Read the captured tables that match a pattern. ``conditions`` are (pattern, SQL condition) in order."""

    collections: tuple[str, ...]
    kind: SnapshotKind = SnapshotKind.INCREMENTAL
    conditions: tuple[tuple[str, str], ...] = ()
    surrogate_key: str = ""

    def condition_of(self, table: TableId) -> str:
        """Return the condition for the table, empty for all of its rows."""
        return next((text for entry, text in self.conditions if table_matcher(entry)(table)), "")


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """Stop the incremental snapshot of the tables that match a pattern; of all tables without a pattern."""

    collections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    """Pause the reading of chunks until a ResumeSnapshot."""


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    """Resume the reading of chunks."""


@dataclass(frozen=True, slots=True)
class Log:
    """Write a message to the log, with ``{}`` replaced by the position."""

    message: str


Action = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | Log

# Requests about one table: of wal2lake's own, for runs into a lake (``engine/stream/requests``).
REPLAY_TABLE, REREAD_TABLE = "replay-table", "reread-table"
# Written by the connector itself.
WATERMARKS = (WINDOW_OPEN, WINDOW_CLOSE)


def read_signal(signal_id: str | None, kind: str | None, data: str | None) -> Signal:
    """Create a signal from a row's three texts. Raises MalformedSignalError if ``data`` is not a JSON object."""
    return Signal(signal_id or "", (kind or "").strip(), _object(data))


def read_line(line: str) -> Signal:
    """Create a signal from one line of a file, ``{"id", "type", "data"}``. Raises MalformedSignalError."""
    raw = _object(line)
    data = raw.get("data")
    if not isinstance(raw.get("type"), str):
        raise MalformedSignalError("its type is missing")
    if isinstance(data, str):
        data = _object(data)
    if data is not None and not isinstance(data, dict):
        raise MalformedSignalError("its data is not a JSON object")
    return Signal(str(raw.get("id", "")), raw["type"].strip(), data or {})


def action_of(signal: Signal) -> Action | None:
    """Return the action of a signal; None for a type that is not one of wal2lake's. Raises MalformedSignalError."""
    make = _ACTIONS.get(signal.type)
    return None if make is None else make(signal.data)


def _object(text: str | None) -> dict[str, Any]:
    if text is None or not text.strip():
        return {}
    try:
        data = json.loads(text)
    except ValueError:
        raise MalformedSignalError("its data is not JSON") from None
    if not isinstance(data, dict):
        raise MalformedSignalError("its data is not a JSON object")
    return data


def _execute(data: Mapping[str, Any]) -> ExecuteSnapshot:
    patterns = _patterns(data)
    conditions = [*_conditions(data)]
    older = data.get("additional-condition")
    if isinstance(older, str) and older.strip():
        conditions += [(pattern, _trimmed(older)) for pattern in patterns]
    key = data.get("surrogate-key")
    if key is not None and not isinstance(key, str):
        raise MalformedSignalError("its surrogate-key is not a string")
    return ExecuteSnapshot(patterns, _kind(data), tuple(conditions), _trimmed(key or ""))


def _stop(data: Mapping[str, Any]) -> StopSnapshot:
    _only_incremental(data)
    return StopSnapshot(_patterns(data) if data.get("data-collections") is not None else ())


def _pause(data: Mapping[str, Any]) -> PauseSnapshot:
    _only_incremental(data)
    return PauseSnapshot()


def _resume(data: Mapping[str, Any]) -> ResumeSnapshot:
    _only_incremental(data)
    return ResumeSnapshot()


def _log(data: Mapping[str, Any]) -> Log:
    return Log(_text(data, "message"))


_ACTIONS: dict[str, Callable[[Mapping[str, Any]], Action]] = {
    "execute-snapshot": _execute,
    "stop-snapshot": _stop,
    "pause-snapshot": _pause,
    "resume-snapshot": _resume,
    "log": _log,
}


def _patterns(data: Mapping[str, Any]) -> tuple[str, ...]:
    listed = data.get("data-collections")
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise MalformedSignalError("its data-collections is not a list of strings")
    patterns = tuple(_trimmed(name) for name in listed if name.strip())
    if not patterns:
        raise MalformedSignalError("its data-collections names no table")
    for pattern in patterns:
        _check_pattern(pattern)
    return patterns


def _conditions(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    listed = data.get("additional-conditions")
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise MalformedSignalError("its additional-conditions is not a list of objects")
    conditions = []
    for entry in listed:
        pattern = _trimmed(_text(entry, "data-collection"))
        _check_pattern(pattern)
        conditions.append((pattern, _trimmed(_text(entry, "filter"))))
    return conditions


def _kind(data: Mapping[str, Any]) -> SnapshotKind:
    kind = data.get("type")
    if kind is None or kind == "":
        return SnapshotKind.INCREMENTAL
    try:
        return SnapshotKind(str(kind).strip().lower())
    except ValueError:
        raise MalformedSignalError("its data's type is neither incremental nor blocking") from None


def _only_incremental(data: Mapping[str, Any]) -> None:
    if _kind(data) is not SnapshotKind.INCREMENTAL:
        raise MalformedSignalError(
            "its data's type is blocking, but only incremental snapshots can be stopped, paused and resumed"
        )


def _text(data: Mapping[str, Any], name: str) -> str:
    text = data.get(name)
    if not isinstance(text, str) or not text.strip():
        raise MalformedSignalError(f"its {name} is missing")
    return text


def _check_pattern(pattern: str) -> None:
    try:
        table_matcher(pattern)
    except ValueError:
        raise MalformedSignalError("a name in it is not a regular expression") from None


def _trimmed(text: str) -> str:
    return text.strip()

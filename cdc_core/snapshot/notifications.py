"""Word of snapshots: that one began, how far it is, how it ended. One record each, for whoever listens.

Keys of tables, which Debezium's notifications hold, are left out: they are values of rows.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cdc_core import clock

_log = logging.getLogger(__name__)

INITIAL = "Initial Snapshot"
INCREMENTAL = "Incremental Snapshot"
BLOCKING = "Blocking Snapshot"


class Happening(StrEnum):
    """What there is to tell."""

    STARTED = "STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    TABLE_SCAN_COMPLETED = "TABLE_SCAN_COMPLETED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    ABORTED = "ABORTED"
    COMPLETED = "COMPLETED"


class ScanStatus(StrEnum):
    """How the reading of one table ended."""

    SUCCEEDED = "SUCCEEDED"
    EMPTY = "EMPTY"
    NO_PRIMARY_KEY = "NO_PRIMARY_KEY"
    SKIPPED = "SKIPPED"
    SQL_EXCEPTION = "SQL_EXCEPTION"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class Notification:
    """One record. ``timestamp_ms``: milliseconds since 1970-01-01T00:00:00Z."""

    aggregate_type: str
    type: Happening
    additional_data: Mapping[str, str]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    timestamp_ms: int = field(default_factory=lambda: clock.now_ns() // 1_000_000)


class Notifier:
    """Hands one connector's notifications to the channels of ``notification.enabled.channels`` and to ``listener``."""

    def __init__(
        self, connector: str, channels: tuple[str, ...], listener: Callable[[Notification], None] | None = None
    ) -> None:
        self._connector = connector
        self._channels = channels
        self._listener = listener

    def tell(self, aggregate: str, happening: Happening, **data: object) -> None:
        """Make a notification and hand it out. ``data``: names with underscores; values are written as text."""
        given = {"connector_name": self._connector, **{name: str(value) for name, value in data.items()}}
        made = Notification(aggregate, happening, given)
        if "log" in self._channels:
            told = ", ".join(f"{name}={value}" for name, value in given.items())
            _log.info("%s %s: %s", aggregate, happening.value, told)
        if self._listener is not None:
            self._listener(made)

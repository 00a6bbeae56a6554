"""What the metrics of a connector are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_core.observe.health import RunState

if TYPE_CHECKING:
    from cdc_core.observe.lag import LagCounts


@dataclass(slots=True)
class SnapshotState:
    """The last snapshot since the process started, or the one in progress. Times are in seconds of ``clock``."""

    tables: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None
    paused_since: float | None = None
    paused_seconds: float = 0.0
    is_aborted: bool = False
    last_event: float | None = None
    last_table: str | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """Changes that were received and are not durable, and the bounds of their number and their bytes."""

    rows: int
    most_rows: int
    bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """What one connection has received. ``table`` is that of the last change, ``position`` where that is.

    ``filtered``: changes of tables, and messages, that are not captured. ``queue`` is None where changes do not wait in
    this process.
    """

    transactions: int = 0
    filtered: int = 0
    transaction_id: int | None = None
    table: str | None = None
    position: Mapping[str, int] = field(default_factory=dict)
    queue: Queue | None = None


@dataclass(slots=True)
class StreamMetrics:
    """The stream since the process started. ``seen`` are the facts of the connections that have ended.

    ``stopped`` is how the run has ended while the process continues, ``cause`` why it waits or failed.
    """

    is_connected: bool = False
    tables: set[str] = field(default_factory=set)
    events: int = 0
    last_event: float | None = None
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    rounds: int = 0
    round_seconds: float = 0.0
    waiting_since: float | None = None
    cause: str = ""
    stopped: RunState | None = None
    faults: dict[str, int] = field(default_factory=dict)
    merged: dict[str, list[int]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    missing: dict[str, int] = field(default_factory=dict)
    seen: ConnectionCounts = field(default_factory=ConnectionCounts)
    last_round: float | None = None
    quarantined: dict[str, int] = field(default_factory=dict)
    failed_checks: dict[tuple[str, str, str], int] = field(default_factory=dict)
    lags: LagCounts | None = None

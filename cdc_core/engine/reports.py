"""Reports of the engine, for the command line and for Dagster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from cdc_core.engine.run_state import WaitingRun
from cdc_core.lake import QuarantineReport
from cdc_core.lsn import Lsn
from cdc_core.quality import CheckReport
from cdc_core.schema import TableId
from cdc_core.snapshot import IncrementalProgress, SnapshotReport

if TYPE_CHECKING:  # would load Delta's libraries, which not every command needs
    from cdc_core.lake import StreamTable
    from cdc_core.observe import LagCounts


@dataclass(frozen=True, slots=True)
class LakeJudgement:
    """The judgement of a lake table at ``version``; ``report`` is None if it was not judged, for ``reason``."""

    table: TableId
    version: int | None = None
    report: CheckReport | None = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def success(self) -> bool:
        """Whether all rows were judged, and no expectation of severity critical failed."""
        return self.report is not None and self.report.success


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One micro-batch made durable in the changelog tables, or in Kafka. ``events``: the number of rows of each table.

    ``own_rows``: the number of logical messages, and of rows of other tables of the stream's own.
    ``behind_seconds``: since the commit of its last transaction, at the time at which it was durable; None if no
    transaction ended in it.
    """

    number: int
    events: dict[TableId, int]
    commit_lsn: Lsn
    lag_bytes: int
    seconds: float
    behind_seconds: float | None = None
    own_rows: Mapping[StreamTable, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MergeReport:
    """One table merged up to the round's LSN. ``waiting`` changes are in its quarantine after that.

    ``committed_us``: when its lake table was committed, in microseconds since 1970; 0 if unknown.
    """

    table: TableId
    lsn: Lsn
    lake_version: int
    events: int
    inserted: int
    updated: int
    deleted: int
    seconds: float
    check: CheckReport | None = None
    waiting: int = 0
    committed_us: int = 0


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round: every table with changes merged up to one commit LSN. ``failed`` maps a table to its error's text.

    ``parts`` are the CPU-seconds of the round's tasks by part (decode, append, check, apply, compact). ``replays``
    contains the tables whose quarantined changes were replayed. ``has_rest``: changes up to ``lsn`` are left that later
    rounds merge. ``missing``: how many rows that changes update or delete were not in the lake table. ``refused``: the
    judgements of tables that were judged and have no merge. ``lags``: the time from their commits in the source to the
    round's commits, of the changes that the round has received and merged.
    """

    lsn: Lsn
    merges: tuple[MergeReport, ...]
    failed: dict[TableId, str] = field(default_factory=dict)
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    replays: dict[TableId, QuarantineReport] = field(default_factory=dict)
    has_rest: bool = False
    missing: dict[TableId, int] = field(default_factory=dict)
    refused: tuple[CheckReport, ...] = ()
    lags: LagCounts | None = None

    @property
    def judgements(self) -> list[CheckReport]:
        """The judgements of merged tables, and of tables whose changes were not merged."""
        return [*(merge.check for merge in self.merges if merge.check is not None), *self.refused]


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A paused table that was resumed, and the replay of its quarantined changes.

    ``events`` is the number of changes of its changelog that were merged; ``snapshot`` is set if the table was re-read.
    """

    table: TableId
    events: int
    snapshot: SnapshotReport | None = None
    quarantine: QuarantineReport = field(default_factory=QuarantineReport)


RENEWAL = "renewal"
"""Why a stream ended that is begun anew (``cdc_core.snapshot.sender_renewal``)."""


@dataclass(frozen=True, slots=True)
class StreamReport:
    """A bounded run of the stream. ``stopped_by`` is lsn, idle, time, rows, request or renewal.

    ``failed`` maps each table that is not merged at the end, also a paused one without changes, to the reason.
    """

    batches: int
    events: int
    lsn: Lsn
    rounds: tuple[RoundReport, ...]
    seconds: float
    stopped_by: str
    failed: dict[TableId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Paused:
    """A paused table: the reason, the remedy, since when (UTC), and the number of changes not merged.

    Its changes are kept in its changelog. ``by_rules``: quality rules, or a limit of refused changes, keep them there.
    """

    reason: str
    remedy: str
    since: datetime
    waiting: int
    by_rules: bool = False

    def resuming(self, file: object, table: TableId) -> str:
        """Return the remedy with the command that resumes the table: complete, for the connector of ``file``."""
        named = re.sub(
            rf"wal2lake (replay|snapshot) with {re.escape(str(table))}",
            lambda match: f"wal2lake {match[1]} {file} {table.argument}",
            self.remedy,
        )
        return named if named != self.remedy else f"{self.remedy} Then: wal2lake replay {file} {table.argument}"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One captured table in the source and in the lake. None if a side cannot be queried or has no value yet.

    ``quarantined`` is the number of changes in its quarantine table, ``reasons`` how many of them have each reason (the
    name of a rule, or that they wait for an earlier change). ``reread`` is why the table is to be re-read by a run;
    empty if it is not. ``error`` is why its Delta tables cannot be read, empty if they can; its positions are then
    unknown. ``up_to`` (UTC) is when the source committed the last change that the lake table has; for a table without
    changes, when it was read. ``path`` is the folder of the lake table, whether or not it exists yet.
    """

    table: TableId
    key: tuple[str, ...]
    snapshot_lsn: Lsn | None
    changelog_lsn: Lsn | None
    lake_lsn: Lsn | None
    lake_version: int | None
    lake_rows: int | None
    source_rows: int | None
    paused: Paused | None = None
    quarantined: int = 0
    error: str = ""
    reasons: dict[str, int] = field(default_factory=dict)
    reread: str = ""
    up_to: datetime | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class OwnTableStatus:
    """A table of the stream's own (``__messages``, ``__transactions``) that has rows, and the last one that it has.

    ``up_to`` (UTC) is the time of that row. ``error`` is why the table cannot be read, empty if it can.
    """

    table: str
    lsn: Lsn | None = None
    up_to: datetime | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """What the lake's stream is, as recorded in the lake, and whether the server's slot continues it.

    ``confirmed``: the highest LSN that the lake may have confirmed to the slot. ``mismatch``: why the stream cannot go
    on, empty if it can; None if the server could not be compared. ``gap``: changes that a user accepted as missing.
    """

    system_id: str
    timeline: int
    database: str
    slot: str
    confirmed: Lsn
    epoch: int
    gap: str
    mismatch: str | None
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """The topic of a captured table's events, before transforms, which may change it."""

    table: TableId
    topic: str


@dataclass(frozen=True, slots=True)
class KafkaStatus:
    """The sink kafka: the topic of the connector's positions, and the LSN up to which Kafka has the stream.

    ``lsn`` is None if there is no position, 0 before the first transaction. ``in_snapshot``: a snapshot has begun and
    not ended. ``error`` is why Kafka could not be asked. ``topics`` is empty if the server could not be.
    """

    servers: str
    topic: str = ""
    lsn: Lsn | None = None
    in_snapshot: bool = False
    error: str = ""
    topics: tuple[KafkaTopic, ...] = ()

    def with_topics(self, topics: Mapping[TableId, str]) -> KafkaStatus:
        """Return the status with the topics of tables."""
        return replace(self, topics=tuple(KafkaTopic(*each) for each in topics.items()))


@dataclass(frozen=True, slots=True)
class Status:
    """Status of the connector. ``lag_bytes``: WAL that the server retains for the slot and that is not confirmed.

    ``lag_seconds``: the age of what is not confirmed, None unless a run is active (``postgres/replication/slot``).

    ``stream`` is None for a lake that has no record yet. ``waiting``: what the running process waits for.
    ``server_error`` is why the server could not be queried, empty if it could; everything about the slot is then None.
    ``lake_error`` is why the lake's own records could not be read. ``incremental`` are the incremental snapshots that
    are under way: as the lake has them, which may be a range behind. ``rereads`` are the tables that a run of this host
    reads again as a whole.
    """

    slot: str
    slot_exists: bool | None
    slot_active: bool | None
    wal_status: str | None
    restart_lsn: Lsn | None
    confirmed_lsn: Lsn | None
    wal_end_lsn: Lsn | None
    lag_bytes: int | None
    tables: tuple[TableStatus, ...]
    stream: StreamStatus | None = None
    server_error: str = ""
    lake_error: str = ""
    kafka: KafkaStatus | None = None
    waiting: WaitingRun | None = None
    lag_seconds: float | None = None
    own_tables: tuple[OwnTableStatus, ...] = ()
    incremental: tuple[IncrementalProgress, ...] = ()
    rereads: tuple[IncrementalProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class Until:
    """When a run of the stream stops: at the first bound reached; if all are None, when it is asked to stop.

    ``lsn``: the first commit at or past it is durable and merged. ``idle_seconds``: no change was received for this
    time, and the server has sent everything up to the end that its WAL had then. ``max_seconds``,
    ``max_rows``: bounds of this run.
    """

    lsn: Lsn | None = None
    idle_seconds: float | None = None
    max_seconds: float | None = None
    max_rows: int | None = None

    def after(self, seconds: float, rows: int) -> Until:
        """Return the limits that are left after some seconds and rows."""
        left = None if self.max_seconds is None else max(0.1, self.max_seconds - seconds)
        more = None if self.max_rows is None else max(1, self.max_rows - rows)
        return replace(self, max_seconds=left, max_rows=more)


@dataclass(frozen=True, slots=True)
class SlotBacklog:
    """State of the slot. ``has_changes``: WAL was written after the confirmed position; None means unknown.

    ``is_claimed``: a run of wal2lake is using the slot, on any machine. ``has_signals``: the signal file that the next
    run reads is not empty. ``lag_seconds`` and ``inactive_seconds`` are as in ``postgres/replication/slot.SlotAges``.
    """

    slot_exists: bool
    slot_active: bool = False
    confirmed_lsn: Lsn | None = None
    wal_end_lsn: Lsn | None = None
    wal_status: str | None = None
    is_claimed: bool = False
    has_signals: bool = False
    lag_seconds: float | None = None
    inactive_seconds: float | None = None

    @property
    def lag_bytes(self) -> int | None:
        """Bytes of WAL between the confirmed position and the end of the WAL."""
        if self.confirmed_lsn is None or self.wal_end_lsn is None:
            return None
        return max(0, self.wal_end_lsn - self.confirmed_lsn)

    @property
    def has_changes(self) -> bool:
        """Whether there may be changes to read or signals to process. An idle server writes some WAL too."""
        return self.slot_exists and (self.has_signals or (self.lag_bytes or 0) > 0)

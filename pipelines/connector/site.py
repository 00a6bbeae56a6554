"""One connector's data for Dagster's definitions: names, known tables, and a function to open the engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cdc_core.engine import BatchReport, LakeJudgement, ReplayReport, RoundReport, Status, StreamReport, Until
from cdc_core.lake import LakePaths, Storage, StreamTable
from cdc_core.lsn import Lsn
from cdc_core.observe import CheckLevel, FreshnessWindow
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import IncrementalProgress, KeyRange, Notification, RangeReport, SnapshotProgress, SnapshotReport
from cdc_core.spark import GivenSession, StartSession
from wal2lake.pipelines.connector.key_parts import part, table_parts


class SlotFacts(Protocol):
    """The state of a slot according to the server."""

    @property
    def slot_exists(self) -> bool:
        """Whether the slot exists."""

    @property
    def slot_active(self) -> bool:
        """Whether the slot is active."""

    @property
    def lag_bytes(self) -> int | None:
        """Bytes of WAL between the confirmed position and the end of the WAL."""

    @property
    def confirmed_lsn(self) -> Lsn | None:
        """The confirmed position."""

    @property
    def wal_end_lsn(self) -> Lsn | None:
        """The end of the server's WAL."""

    @property
    def is_claimed(self) -> bool:
        """Whether a run is using the slot."""

    @property
    def wal_status(self) -> str | None:
        """``pg_replication_slots.wal_status``: reserved, extended, unreserved, lost; None if unknown."""

    @property
    def lag_seconds(self) -> float | None:
        """Lag in seconds while the slot is active; None if unknown."""

    @property
    def inactive_seconds(self) -> float | None:
        """Time since the slot became inactive; None if unknown."""

    @property
    def has_changes(self) -> bool:
        """Whether the slot has a backlog."""


class MaintainedTable(Protocol):
    """One Delta table of a captured table (``MaintainReport`` of the lake)."""

    @property
    def table(self) -> TableId | None:
        """The captured table; None for the connector's own."""

    @property
    def kind(self) -> str:
        """lake, changelog or quarantine."""

    @property
    def done(self) -> Any:
        """The result (``cdc_core.lake.write.maintain.MaintenanceResult``)."""


class ComparedTable(Protocol):
    """The comparison of one table (``cdc_core.reconcile.reports.TableResult``)."""

    @property
    def table(self) -> TableId:
        """The table."""

    @property
    def is_error(self) -> bool:
        """Whether it could not be read."""

    def to_plain(self) -> dict[str, Any]:
        """As ``wal2lake reconcile --json`` prints it."""


class ReconcileSummary(Protocol):
    """A comparison (``cdc_core.reconcile.reports.ReconcileReport``)."""

    @property
    def lsn(self) -> Lsn:
        """The LSN of the source."""

    @property
    def tables(self) -> Sequence[ComparedTable]:
        """One result a table."""


class Engine(Protocol):
    """The part of ``cdc_core.assemble.Connector`` that assets, sensors and checks call."""

    def tables(self) -> list[TableSchema]:
        """The captured tables, read from the server."""

    @property
    def streams(self) -> bool:
        """Whether ``snapshot.mode`` streams changes."""

    def initial_snapshot(
        self,
        spark: GivenSession = None,
        on_progress: Callable[[SnapshotProgress], None] | None = None,
        on_notification: Callable[[Notification], None] | None = None,
        *,
        only: Sequence[TableId] | None = None,
    ) -> list[SnapshotReport]:
        """Read those of the tables that ``snapshot.mode`` requires, if any. Creates the slot if it does not exist."""

    def snapshot(
        self,
        tables: Sequence[TableId] | None = None,
        spark: GivenSession = None,
        on_progress: Callable[[SnapshotProgress], None] | None = None,
        on_notification: Callable[[Notification], None] | None = None,
    ) -> list[SnapshotReport]:
        """Copy tables into the lake at one consistent point, in any snapshot mode and also if they are there."""

    def plan_incremental(self, tables: Sequence[TableId] | None = None) -> Sequence[KeyRange]:
        """The ranges of the tables' keys, as planned first; of all tables that can be read so if None is given."""

    def incremental_snapshot(
        self,
        ranges: Sequence[str | KeyRange],
        spark: GivenSession = None,
        on_progress: Callable[[IncrementalProgress], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        *,
        on_range: Callable[[RangeReport], None] | None = None,
    ) -> Sequence[RangeReport]:
        """Read ranges, and wait until they are in the lake: by the run that streams, else by streaming itself."""

    def stream(
        self,
        until: Until,
        spark: GivenSession = None,
        on_batch: Callable[[BatchReport], None] | None = None,
        on_round: Callable[[RoundReport], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        *,
        on_notification: Callable[[Notification], None] | None = None,
    ) -> StreamReport:
        """Stream changes from the slot until a limit of ``until`` is reached."""

    def signal(self, kind: str, data: str = "") -> str:
        """Send a signal to the running connector. Returns the channel that was used."""

    def replay(
        self,
        table: TableId,
        spark: GivenSession = None,
        on_progress: Callable[[SnapshotProgress], None] | None = None,
        accept: Sequence[str] = (),
        accept_all: bool = False,
        drop: bool = False,
    ) -> ReplayReport:
        """Resume a paused table, and replay its quarantined changes."""

    def status(self) -> Status:
        """The state of each table: whether it is paused, and the number of changes in quarantine."""

    def quality_test(self, tables: Sequence[TableId] | None = None) -> Sequence[LakeJudgement]:
        """Have the rules judge lake tables as they are; None for all captured ones."""

    def maintain(
        self,
        tables: Sequence[TableId] | None = None,
        spark: StartSession | None = None,
        on_table: Callable[[MaintainedTable], None] | None = None,
    ) -> Sequence[MaintainedTable]:
        """Optimize and vacuum the Delta tables of captured tables; None for all in the lake."""

    def pending(self) -> SlotFacts:
        """The backlog of the slot; one fast query."""

    def reconcile(
        self, tables: Sequence[TableId] | None = None, limit: int = 1000, repair: bool = False
    ) -> ReconcileSummary:
        """Compare lake tables with their source, and repair rows; None for all captured tables."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A captured table. ``schema`` is None while only its name is known, from the include list."""

    id: TableId
    schema: TableSchema | None = None


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Schedule of incremental snapshots: ``cron`` is empty for none, ``tables`` for those that ``Site.reads`` names."""

    cron: str = ""
    timezone: str = "UTC"
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Labels:
    """Asset keys and groups that differ from the usual ones.

    ``prefix`` stands in place of the connector's name in every key, ``lake_prefix`` in place of the name and ``lake``
    in the keys of lake tables; ``group`` in place of the connector's name in the names of groups. Empty: the usual.
    """

    prefix: tuple[str, ...] = ()
    lake_prefix: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """One connector file. ``open`` returns the engine, which connects when it is used."""

    name: str
    slot: str
    state_path: Path
    tables: tuple[KnownTable, ...]
    open: Callable[[], Engine]
    lake_path: str = ""
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    # By the name of a job without the connector's: stream, snapshot, incremental_snapshot, replay, maintenance.
    job_spark_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file: Path | None = None
    snapshot_plan: SnapshotPlan = field(default_factory=SnapshotPlan)
    # Whether a snapshot that names no tables reads the table (snapshot.include.collection.list, a custom mode).
    reads: Callable[[TableId], bool] = lambda table: True
    maintenance_cron: str = ""
    reconcile_cron: str = ""
    storage: Storage = field(default_factory=Storage)
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    freshness: tuple[FreshnessWindow, ...] = ()
    labels: Labels = field(default_factory=Labels)
    check_levels: Mapping[str, CheckLevel] = field(default_factory=dict)
    # The fields (Arrow) of the lake table of a source table; None if they are not known without the table.
    lake_fields: Callable[[TableSchema], Sequence[Any]] | None = None
    sinks: tuple[str, ...] = ("lake",)
    # The tables of the stream's own that a run may write.
    own_tables: tuple[StreamTable, ...] = ()
    # The URL of the data docs; empty if they are not served.
    data_docs_url: str = ""
    _parts: Mapping[TableId, tuple[str, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parts", table_parts(table.id for table in self.tables))

    def key_parts(self, table: TableId, suffix: str = "") -> tuple[str, str]:
        """The parts of an asset key for a table's schema and name; also for a table that is not known (any more)."""
        schema, name = self._parts.get(table) or table_parts([table])[table]
        return schema, name + suffix

    def paths(self) -> LakePaths:
        """Paths and storage of the lake's tables."""
        return LakePaths(self.lake_path, self.name, self.storage)

    @property
    def is_kafka_only(self) -> bool:
        """Whether events go to Kafka, and nothing into a lake."""
        return "kafka" in self.sinks and "lake" not in self.sinks

    @property
    def typed_file(self) -> str:
        """The connector file as an argument of wal2lake in a shell."""
        return "CONFIG" if self.file is None else shlex.quote(str(self.file))

    @property
    def safe_name(self) -> str:
        """The name for jobs, sensors and resources: letters, digits and underscores."""
        return re.sub(r"\W", "_", self.name, flags=re.ASCII)

    @property
    def key_prefix(self) -> tuple[str, ...]:
        """How the keys of the connector's assets begin."""
        return tuple(part(name) for name in self.labels.prefix) or (part(self.name),)

    @property
    def unique_name(self) -> str:
        """The name for what an instance has once, whatever its code locations: it differs as the assets' keys do."""
        return "_".join(self.key_prefix)

    def group(self, kind: str = "") -> str:
        """The group of the assets of a kind: ``source``, ``lake``, ``maintenance``; else of snapshot and changes."""
        name = self.labels.group or self.safe_name
        return f"{name}_{kind}" if kind else name

    @property
    def pool(self) -> str:
        """The pool that allows one run at a time to consume the slot.

        Slots of two servers may have the same name, which often is Debezium's default.
        """
        return f"slot_{self.unique_name}_{re.sub(r'[^A-Za-z0-9_]', '_', self.slot)}"

    @property
    def ranges_pool(self) -> str:
        """The pool of incremental snapshots, which run beside the stream: one run at a time, unless it is widened."""
        return f"{self.pool}_ranges"

    def table_id(self, key: str) -> TableId:
        """Return the table of a partition key. Raises ValueError for a key without a dot."""
        for table in self.tables:
            if str(table.id) == key:
                return table.id
        schema, dot, name = key.partition(".")
        if not dot:
            raise ValueError(f"expected schema.table, found {key!r}")
        return TableId(schema, name)

"""An engine without server, Spark or lake, that plays back what a test gives it."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cdc_core.engine.reports import (
    BatchReport,
    LakeJudgement,
    MergeReport,
    ReplayReport,
    RoundReport,
    Status,
    StreamReport,
    TableStatus,
)
from cdc_core.lsn import Lsn
from cdc_core.quality.check_report import CheckReport, RuleResult
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.snapshot.incremental.reports import IncrementalProgress, KeyRange, RangeReport
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport
from wal2lake.pipelines.connector.site import KnownTable, Site, SnapshotPlan

ORDERS, PEOPLE, WEIRD = TableId("public", "orders"), TableId("public", "people"), TableId("my schema", "täb-le.x")

# Removed with the process, as are the state folders in it.
_STATES = tempfile.TemporaryDirectory(prefix="w2l-sites-")
FIRST, WAL_END = Lsn(100), Lsn(5000)


@dataclass
class Backlog:
    slot_exists: bool = True
    confirmed_lsn: Lsn | None = FIRST
    has_changes: bool = True
    slot_active: bool = False
    lag_bytes: int | None = 1
    wal_status: str | None = "reserved"
    is_claimed: bool = False
    lag_seconds: float | None = None
    inactive_seconds: float | None = None
    wal_end_lsn: Lsn | None = WAL_END


def table(id_):
    columns = (Column("id", PgType(20, "int8"), optional=False), Column("name", PgType(1043, "varchar"), modifier=24))
    return TableSchema(id_, 1, columns, primary_key=("id",))


@dataclass
class FakeEngine:
    captured: tuple = (ORDERS, PEOPLE, WEIRD)
    backlog: Backlog = field(default_factory=Backlog)
    rounds: tuple = ()
    error: Exception | None = None
    script: Callable | None = None
    snapshots: Callable | None = None
    notifications: tuple = ()
    statuses: tuple = ()
    refusals: dict = field(default_factory=dict)
    held: tuple = ()
    judgements: dict = field(default_factory=dict)
    ranges: int = 0
    streams: bool = True
    calls: list = field(default_factory=list)

    def tables(self):
        if self.error:
            raise self.error
        return [table(id_) for id_ in self.captured]

    def snapshot(self, tables=None, spark=None, on_progress=None, on_notification=None):
        self.calls.append(("snapshot", tuple(tables)))
        reports = [SnapshotReport(one, 10 + n, Lsn(4096), 0.5, n) for n, one in enumerate(tables)]
        for report in reports[:-1]:
            on_progress(SnapshotProgress(report.table, report.rows, 12, True, report=report))
        if self.snapshots:
            self.snapshots(tables, on_progress, on_notification)
        if self.error:
            raise self.error
        return reports

    def initial_snapshot(self, spark=None, on_progress=None, on_notification=None, *, only=None):
        return self.snapshot([one for one in only if one not in self.held], spark, on_progress, on_notification)

    def plan_incremental(self, tables=None):
        if self.error:
            raise self.error
        wanted = self.captured if tables is None else tables
        return [KeyRange(one, number, self.ranges) for one in wanted for number in range(1, self.ranges + 1)]

    def incremental_snapshot(self, ranges, spark=None, on_progress=None, should_stop=None, *, on_range=None):
        self.calls.append(("incremental", tuple(one.name for one in ranges)))
        reports = []
        for number, one in enumerate(ranges, 1):
            on_progress(IncrementalProgress(one.table, 100 * number, number, number - 1, len(ranges), 10.0, 500))
            if self.snapshots:
                self.snapshots(one, on_progress)
            if self.error and number == len(ranges):
                raise self.error
            reports.append(RangeReport(one, 100, one.name not in self.refusals, self.refusals.get(one.name, ""), 2.0))
            if reports[-1].is_applied:
                on_range(reports[-1])
        return reports

    def stream(self, until, spark=None, on_batch=None, on_round=None, should_stop=None, *, on_notification=None):
        self.calls.append(("stream", until))
        on_batch(BatchReport(1, {ORDERS: 5}, Lsn(5000), 77, 0.25))
        for report in self.rounds:
            on_round(report)
        for notification in self.notifications:
            on_notification(notification)
        if self.script:
            self.script(on_batch, on_round, should_stop)
        if self.error:
            raise self.error
        return StreamReport(1, 5, Lsn(5000), tuple(self.rounds), 1.5, "idle")

    def signal(self, kind, data=""):
        if self.error:
            raise self.error
        self.calls.append(("signal", kind, data))
        return "source"

    def pending(self):
        if self.error:
            raise self.error
        return self.backlog

    def status(self):
        if self.error:
            raise self.error
        return status_of(*self.statuses)

    def quality_test(self, tables=None):
        self.calls.append(("quality_test", tuple(tables)))
        if isinstance(self.judgements, Exception):
            raise self.judgements
        return [self.judgements.get(one, LakeJudgement(one, 7, CheckReport(one, 3, 0, True))) for one in tables]

    def replay(self, table, spark=None, on_progress=None, accept=(), accept_all=False, drop=False):
        self.calls.append(("replay", table, tuple(accept), accept_all, drop))
        if table in self.refusals:
            raise self.refusals[table]
        return ReplayReport(table, 2)


def table_status(id_, lsn=5000, changelog=None, paused=None, quarantined=0, reasons=None):
    """A table of the lake merged up to ``lsn``; None where it is not in the lake."""
    at = None if lsn is None else Lsn(lsn)
    changes = None if changelog is None else Lsn(changelog)
    version = None if lsn is None else 7
    return TableStatus(id_, ("id",), at, changes, at, version, None, None, paused, quarantined, reasons=reasons or {})


def status_of(*tables):
    return Status("slot_a", True, False, "reserved", None, FIRST, FIRST, 0, tuple(tables))


def merge(id_, events=5, failed=0, lsn=5000):
    rules = (RuleResult("not_null:name", "name", "error", events, failed, success=not failed),)
    check = CheckReport(id_, events, failed, failed == 0, rules)
    return MergeReport(id_, Lsn(lsn), 3, events, 3, 1, 1, 0.2, check)


def round_of(*merges, failed=None, lsn=5000):
    return RoundReport(Lsn(lsn), tuple(merges), failed or {}, 12, 0.5)


def site(
    engine, state: Path | None = None, name="shop", known=(ORDERS, PEOPLE, WEIRD), slot="slot_a", plan=None, **more
):
    return Site(
        name,
        slot,
        # Data docs go there at the end of a run.
        state or Path(tempfile.mkdtemp(dir=_STATES.name)),
        tuple(KnownTable(id_, table(id_)) for id_ in known),
        lambda: engine,
        spark_settings={"spark.master": "local[1]"},
        snapshot_plan=plan or SnapshotPlan(),
        **more,
    )

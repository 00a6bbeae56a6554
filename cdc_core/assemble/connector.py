"""One connector and its operations, each of which opens and closes its own resources."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_core.assemble.at_commit import at_commit_if_too_large
from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import SnapshotCall, StreamCall
from cdc_core.assemble.observed import observed_run
from cdc_core.assemble.operations import (
    incremental,
    maintain,
    quality,
    replay,
    reset,
    signal,
    snapshot,
    status,
)
from cdc_core.config import ConnectorConfig, ExplainRow, explain, load
from cdc_core.engine import (
    BatchReport,
    Handover,
    Hooks,
    JobCallbacks,
    LakeJudgement,
    ReplayReport,
    RoundReport,
    SlotBacklog,
    Status,
    StreamReport,
    Until,
)
from cdc_core.errors import ConfigError
from cdc_core.lake import MaintainReport
from cdc_core.lsn import Lsn
from cdc_core.offsets import AdoptReport, HandBack
from cdc_core.postgres import Finding
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import (
    Inbox,
    IncrementalProgress,
    KeyRange,
    Notification,
    OnNotification,
    OnProgress,
    RangeReport,
    SnapshotReport,
    mode_actions,
)
from cdc_core.spark import GivenSession, Session, StartSession

if TYPE_CHECKING:  # loads Arrow, which most callers do not need
    from cdc_core.lake import Cut, OpenedLake
    from cdc_core.quality import SuiteReport
    from cdc_core.reconcile import ReconcileReport, TableResult

_log = logging.getLogger(__name__)


class Connector:
    """One connector. Every method opens and closes its own resources; only one of them can use the slot at a time.

    Methods raise CdcError, with a message and a remedy.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self.config = config
        self._context = RunContext(config)
        self._keeps_slot = False

    @property
    def context(self) -> RunContext:
        """The dependencies that its operations share."""
        return self._context

    @classmethod
    def from_file(
        cls, path: Path | str, *, needs_lake: bool = True, overrides: Sequence[tuple[str, str]] = ()
    ) -> Connector:
        """Read a connector file; ``overrides`` as for ``load``. Raises ConfigError if it is not valid."""
        config = load(path, overrides)
        if needs_lake:
            config.require_lake()
        return cls(config)

    @classmethod
    def of_runs(cls, config: ConnectorConfig) -> Connector:
        """For schedulers that restart runs: ``slot.drop.on.stop`` is ignored.

        Raises ConfigError.
        """
        config.require_lake()
        made = cls(replace(config, postgres=replace(config.postgres, slot_drop_on_stop=False)))
        made._keeps_slot = config.postgres.slot_drop_on_stop
        return made

    @property
    def name(self) -> str:
        """``topic.prefix``."""
        return self._context.name

    @property
    def slot(self) -> str:
        """``slot.name``."""
        return self._context.slot

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the connector file."""
        return self.config.warnings

    @property
    def streams(self) -> bool:
        """Whether the snapshot mode streams after the snapshot."""
        return mode_actions(self.config.snapshot).stream

    def explain(self, everything: bool = False) -> tuple[ExplainRow, ...]:
        """Each property with its value and how it is used."""
        return explain(self.config, everything)

    def check(self, administrator: str | None = None) -> list[Finding]:
        """Check the server and the lake's folder. Changes nothing.

        ``administrator``: libpq's connection string of a role that asks the server where the connector's cannot
        connect, as before it exists.
        """
        return status.check(self._context, administrator)

    def spark(self) -> Session:
        """The process's Spark session; it is started with the connector's settings if none is running."""
        return self._context.spark()

    def tables(self) -> list[TableSchema]:
        """The captured tables, read from the server's catalogue, under the names that the stream has for them."""
        with self._context.source() as source:
            return self._context.captured(source)

    def pending(self) -> SlotBacklog:
        """The backlog of the slot. Queries only the server."""
        return status.pending(self._context)

    def initial_snapshot(
        self,
        spark: GivenSession = None,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        handover: Handover | None = None,
        only: Sequence[TableId] | None = None,
    ) -> list[SnapshotReport]:
        """Take the initial snapshot that ``snapshot.mode`` requires, if any. Creates the slot if it does not exist.

        ``only`` are the tables that may be read into the lake; None for all captured ones. A log line names those of
        them that are not read, and why.
        ``handover`` keeps the claim for ``stream`` and, where nothing has to be read, what was checked.
        """
        with self.observed():
            progress = self._context.observers.progress(on_progress)
            call = SnapshotCall(spark, progress, on_notification, handover, only)
            # Events before tables: they are read with the snapshot that the slot's creation exports, as Debezium's are.
            return [
                report
                for destination in reversed(self._context.destinations)
                for report in destination.initial_snapshot(call)
            ]

    def snapshot(
        self,
        tables: Sequence[TableId] | None = None,
        spark: GivenSession = None,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
    ) -> list[SnapshotReport]:
        """Read tables into the lake at one consistent point, replacing existing lake tables.

        Tables that are named are read in any snapshot mode. None: those of ``snapshot.include.collection.list``; the
        first time, before the lake has a stream, none in a mode that reads no rows.
        """
        self._require_lake("snapshot")
        is_first = tables is None and self._context.lake.record is None
        if is_first and not mode_actions(self.config.snapshot).reads:
            return self.initial_snapshot(spark, on_progress, on_notification, only=[t.id for t in self.tables()])
        for destination in self._context.destinations:
            if destination.begins_with_slot and not self._context.has_slot():
                destination.initial_snapshot(SnapshotCall(on_notification=on_notification))
        with self.observed():
            progress = self._context.observers.progress(on_progress)
            return snapshot.snapshot(self._context, SnapshotCall(spark, progress, on_notification, only=tables))

    def plan_incremental(self, tables: Sequence[TableId] | None = None, *, renew: bool = False) -> list[KeyRange]:
        """Return the ranges of tables' keys that an incremental snapshot reads (None: of all tables that it can read).

        They are planned once and stored in the lake: the same number means the same keys, in every process, until
        ``renew``, another key, another table of that name, or twice as many rows. Needs neither the slot nor Spark.
        Raises TableError for a named table that cannot be read so: it has no key, is not captured or not published.
        """
        self._require_lake("snapshot --incremental")
        return incremental.plan_incremental(self._context, tables, renew=renew)

    def incremental_snapshot(
        self,
        ranges: Sequence[str | TableId | KeyRange] | None = None,
        spark: GivenSession = None,
        on_progress: Callable[[IncrementalProgress], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        wait_seconds: float = 600.0,
        on_range: Callable[[RangeReport], None] | None = None,
    ) -> list[RangeReport]:
        """Read ranges of tables again, in parallel Spark tasks, while the stream continues; returns the result of each.

        ``ranges`` are ranges or names: ``public.orders|0007``, or ``public.orders`` for all of a table's. None: all
        tables of ``snapshot.include.collection.list`` that can be read so. A range is staged in the lake once it is
        read, in one commit, and is written to its lake table by the run that streams, in this process or another, as
        soon as that has passed the range's position. If another process has the slot, that is waited for; otherwise
        this call streams until its own ranges are written. So what is reported as applied is in the lake table; what is
        not (for ``wait_seconds`` the stream came no nearer, or ``should_stop``) is staged and is written by the run
        that streams next. Raises CdcError; ranges that were staged before stay.

        ``spark`` is a session, or a function that returns one; None: the process's own. ``on_progress`` is called about
        once a second with each table, ``on_range`` for each range that is no longer staged.
        """
        self._require_lake("snapshot --incremental")
        # This is no stop of the stream at which the slot is to be dropped.
        runs = Connector(replace(self.config, postgres=replace(self.config.postgres, slot_drop_on_stop=False)))
        session = self._context.session(spark, when_asked=True)

        def stream(is_over: Callable[[], bool]) -> None:
            runs.stream(Until(), session, should_stop=is_over)

        callbacks = JobCallbacks(on_progress, on_range, should_stop)
        return incremental.incremental_snapshot(self._context, ranges, session, stream, callbacks, wait_seconds)

    def _require_lake(self, command: str) -> None:
        """Raise ConfigError unless a destination has tables, at a path that is configured."""
        if not any(destination.has_tables for destination in self._context.destinations):
            raise ConfigError(
                f"wal2lake {command} needs a lake, and wal2lake.sinks is {','.join(self.config.engine.sinks)}.",
                "Add lake to wal2lake.sinks. Rows are read into Kafka by the signal execute-snapshot: wal2lake signal.",
            )
        self.config.require_lake()

    def stream(
        self,
        until: Until,
        spark: GivenSession = None,
        on_batch: Callable[[BatchReport], None] | None = None,
        on_round: Callable[[RoundReport], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        inbox: Inbox | None = None,
        on_notification: Callable[[Notification], None] | None = None,
        on_start: Callable[[], None] | None = None,
        handover: Handover | None = None,
    ) -> StreamReport:
        """Stream changes from the slot to the sink until a limit of ``until`` is reached; they are merged by then.

        ``inbox`` supplies signals of this process; ``on_notification`` is called in the calling thread with
        notifications of the snapshots that signals request, ``on_start`` once when the stream begins. ``handover`` is
        that of ``initial_snapshot``.
        """
        if self._keeps_slot:
            _log.warning("slot.drop.on.stop is ignored: a scheduler's runs end and start again with the same slot.")
        call = StreamCall(spark, inbox, on_notification, handover)

        def once(context: RunContext, until: Until, hooks: Hooks) -> StreamReport:
            return context.destinations[0].stream(until, hooks, call)

        with self.observed():
            hooks = self._context.observers.hooks(Hooks(on_batch, on_round, should_stop, on_start))
            return at_commit_if_too_large(once, self._context, until, hooks)

    def observed(self) -> AbstractContextManager[None]:
        """Let lineage take the operations inside of the context for one run, as a supervisor's attempts are.

        Each operation that writes tables opens it, too. Raises ConfigError if an observer is not configured correctly.
        """
        return observed_run(self._context)

    def replay(
        self,
        table: TableId,
        spark: GivenSession = None,
        on_progress: OnProgress | None = None,
        accept: Sequence[str] = (),
        accept_all: bool = False,
        drop: bool = False,
    ) -> ReplayReport:
        """Resume a paused table: its changes are merged in order; the table is re-read first if necessary.

        Its quarantined changes are checked with the current rules, and those that pass are merged in their original
        order. Failures of the rules named in ``accept`` (or of all rules with ``accept_all``) are ignored; with
        ``drop`` the quarantined changes are discarded instead. Raises TableError if the cause of the pause persists or
        the table is not captured.
        """
        from cdc_core.lake import Replay  # loads Arrow

        self._require_lake("replay")

        return replay.replay(self._context, table, spark, on_progress, Replay(tuple(accept), accept_all, drop))

    def envelopes(
        self,
        output: Path,
        until: Until,
        should_stop: Callable[[], bool] | None = None,
        inbox: Inbox | None = None,
        on_notification: Callable[[Notification], None] | None = None,
    ) -> int:
        """Write Debezium's records to ``output``, first the snapshot, then the stream; returns their number.

        ``inbox`` supplies signals of this process if ``signal.enabled.channels`` includes in-process;
        ``on_notification`` is called with notifications of snapshots, in the thread that reads the stream.
        """
        from cdc_core.assemble.operations import envelopes

        return envelopes.envelopes(self._context, output, until, should_stop, inbox, on_notification)

    def signal(self, kind: str, data: str = "") -> str:
        """Send a signal to the running connector; ``data`` is a JSON object. Returns the channel that was used."""
        return signal.signal(self._context, kind, data)

    def status(self, count_rows: bool = False) -> Status:
        """The state of the slot, and each table's positions according to the commits of its Delta tables."""
        return status.status(self._context, count_rows)

    def leftovers(self, *, with_lake: bool = False) -> reset.Leftovers:
        """What ``reset`` would remove: slot, publication and state, and with ``with_lake`` the lake's tables."""
        return reset.leftovers(self._context, with_lake=with_lake)

    def reset(self, found: reset.Leftovers) -> None:
        """Remove what the connector has made. Cannot be undone."""
        reset.reset(self._context, found)

    def lake(self) -> OpenedLake:
        """The lake, to read its tables (``OpenedLake.read``). Does not need the server."""
        from cdc_core.lake import OpenedLake

        self._require_lake("versions")
        return OpenedLake(self._context.lake.paths, self._context.lake.scope)

    def versions(self, at: Lsn | datetime | None = None, tables: Sequence[TableId] = ()) -> Cut:
        """The Delta versions of the given lake tables (default: all) that correspond to one LSN of the source.

        The newest round at or before ``at`` is used. Raises LakeError if there is none, if ``at`` is after the newest
        round, or if a given table cannot be read at it. Reads the lake only, not the server.
        """
        return self.lake().versions(at, tables)

    def reconcile(
        self,
        tables: Sequence[TableId] | None = None,
        limit: int = 1000,
        repair: bool = False,
        on_table: Callable[[TableResult], None] | None = None,
        sample: int | None = None,
        since: Lsn | datetime | str | None = None,
        resume: bool = False,
    ) -> ReconcileReport:
        """Compare lake tables (None: all captured ones) with their source at one LSN; at most ``limit`` keys are named.

        With ``repair`` rows that differ are read again and written. ``sample`` and ``since`` restrict the rows
        (``Asked``). Can run while another process streams. ``on_table`` is called with each table's result, and again
        after its repair.
        """
        from cdc_core.assemble.operations import reconcile  # loads what only comparisons need
        from cdc_core.reconcile import ReconcileRequest

        self._require_lake("reconcile")
        asked = ReconcileRequest(limit, repair, sample, since, resume)
        return reconcile.reconcile(self._context, tables, asked, on_table)

    def quality_init(self) -> list[SuiteReport]:
        """Make the Great Expectations project in ``wal2lake.quality.rules.path``, or bring its suites up to date.

        Raises ConfigError without that property, and LakeError if the folder cannot be written.
        """
        return quality.init(self._context)

    def quality_test(
        self, tables: Sequence[TableId] | None = None, on_table: Callable[[LakeJudgement], None] | None = None
    ) -> list[LakeJudgement]:
        """Have the rules judge lake tables (None: all captured ones) as they are; ``on_table`` gets each result.

        Changes nothing, and needs no Spark. Raises ConfigError or TableError if a rule is not valid.
        """
        self._require_lake("quality test")
        return quality.test(self._context, tables, on_table)

    def dbt_source(self, tables: Sequence[TableId] | None = None, freshness_minutes: int = 60) -> dict[str, Any]:
        """The lake tables (None: all captured ones) as a dbt source: the content of a YAML file.

        ``freshness_minutes``: the age of the newest row at which dbt warns, 0 for no test.
        """
        from cdc_core.assemble.operations import dbt

        self._require_lake("dbt")
        return dbt.source(self._context, tables, freshness_minutes)

    def adopt(
        self,
        offsets: str = "",
        *,
        fills: bool = True,
        accepts_gap: bool = False,
        bootstrap_servers: str = "",
        writes: bool = True,
    ) -> AdoptReport:
        """Take the slot over from Debezium's connector at its stored offset; the next run continues from there.

        Parameters as in ``adopt.AdoptRequest``.
        """
        from cdc_core.assemble.operations import adopt

        asked = adopt.AdoptRequest(offsets, bootstrap_servers, fills, accepts_gap, writes)
        return adopt.adopt(self._context, asked)

    def offsets(self, connector: str = "") -> HandBack:
        """The offset at which Debezium's connector can continue. ``connector``: its name in Connect."""
        from cdc_core.assemble.operations import offsets

        return offsets.offsets(self._context, connector)

    def maintain(
        self,
        tables: Sequence[TableId] | None = None,
        spark: StartSession | None = None,
        on_table: Callable[[MaintainReport], None] | None = None,
    ) -> list[MaintainReport]:
        """Optimize and vacuum the Delta tables of captured tables (None: all in the lake, and the connector's own).

        Can run while another process streams; needs no server. ``spark`` is called if a table needs Spark.
        """
        self._require_lake("maintain")
        return maintain.maintain(self._context, tables, spark, on_table)

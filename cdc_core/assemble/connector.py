"""One connector: each verb opens what it needs, and closes it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from cdc_core.assemble.beforehand import chosen_tables, folder_finding, raise_bad
from cdc_core.assemble.news import SlotNews, starting
from cdc_core.config.connector import ConnectorConfig, load
from cdc_core.config.explain import ExplainRow, explain
from cdc_core.engine.checks import TableChecks
from cdc_core.engine.describe_now import DescribeNow
from cdc_core.engine.envelope_output import EnvelopeOutput
from cdc_core.engine.envelope_run import EnvelopeRun
from cdc_core.engine.lake import LakeSink, SourceWatch
from cdc_core.engine.noop import NoopSink
from cdc_core.engine.read import BatchBounds, SlotReader
from cdc_core.engine.reports import (
    BatchReport,
    ReplayReport,
    RoundReport,
    SnapshotProgress,
    SnapshotReport,
    Status,
    StreamReport,
    TableStatus,
    Until,
)
from cdc_core.engine.reread import Rereads
from cdc_core.engine.shapes import Shapes, streamed
from cdc_core.engine.snapshot_run import SnapshotRun, SnapshotSettings
from cdc_core.engine.source import Source, is_claimed
from cdc_core.engine.spool import Spool
from cdc_core.engine.stream import Hooks, Sink, StreamRun
from cdc_core.engine.tables import TableBook
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.envelope.context import EnvelopeContext
from cdc_core.errors import SourceError, TableError
from cdc_core.lsn import Lsn
from cdc_core.postgres import slot as slots
from cdc_core.postgres.connect import connect, connection_string
from cdc_core.postgres.preflight.check import run_checks
from cdc_core.postgres.preflight.finding import Finding
from cdc_core.postgres.server import wal_end
from cdc_core.postgres.stream import ReplicationStream
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.columns import lake_key_conflicts, plan_columns
from cdc_core.selection.tables import TableSelection
from cdc_core.sink.delta.features import FeaturePolicy
from cdc_core.snapshot.modes import answers

OnProgress = Callable[[SnapshotProgress], None]


class Connector:
    """One connector. Every method opens what it needs and closes it again; one of them at a time per slot.

    Methods raise CdcError: one sentence with what was found, one with what to do.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self.config = config

    @classmethod
    def from_file(cls, path: Path | str, *, needs_lake: bool = True) -> Connector:
        """Read a connector file; ConfigError where it cannot be obeyed."""
        config = load(path)
        if needs_lake:
            config.require_lake()
        return cls(config)

    @property
    def name(self) -> str:
        """``topic.prefix``."""
        return self.config.schema.topic_prefix

    @property
    def slot(self) -> str:
        """``slot.name``."""
        return self.config.postgres.slot_name

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is to be said about the file."""
        return self.config.warnings

    @property
    def streams(self) -> bool:
        """Whether the snapshot mode goes on to stream."""
        return answers(self.config.snapshot.snapshot_mode).stream

    def explain(self, everything: bool = False) -> tuple[ExplainRow, ...]:
        """What becomes of each property."""
        return explain(self.config, everything)

    def check(self) -> list[Finding]:
        """Look at the server (and the lake's folder); changes nothing."""
        config = self.config
        findings = run_checks(
            config.postgres,
            TableSelection(config.selection).includes,
            config.selection.table_include_list,
            config.selection.skipped_operations,
        )
        if "lake" in config.engine.sinks and config.sink.lake_path:
            findings.append(folder_finding("lake", "wal2lake.lake.path", config.sink.lake_path))
        return findings

    def spark(self) -> Any:
        """The process's Spark session, started with the connector's settings unless one runs (its context alone)."""
        from cdc_core.spark.session import get_context

        return get_context(dict(self.config.engine.spark))

    def _session(self, given: Any) -> Callable[[], Any]:
        """What gives the session: the one given, or one that a thread of its own is starting meanwhile.

        ``given`` may be a function that starts it.
        """
        if given is None or callable(given):
            return starting(given or self.spark)

        def session() -> Any:
            return given

        return session

    def tables(self) -> list[TableSchema]:
        """The captured tables, as the server has them now."""
        with self._source() as source:
            return source.tables()

    def pending(self) -> SlotNews:
        """Whether the slot has something. Asks the server only."""
        with connect(self.config.postgres) as connection:
            found = slots.inspect(connection, self.slot)
            return SlotNews(
                found.exists,
                found.active,
                found.confirmed_lsn,
                wal_end(connection),
                found.wal_status,
                is_claimed(connection, self.slot),
            )

    def initial_snapshot(self, spark: Any = None, on_progress: OnProgress | None = None) -> list[SnapshotReport]:
        """Read what ``snapshot.mode`` asks for at start; nothing where all is there. Makes the slot in any case."""
        self.config.require_carried()
        mode = answers(self.config.snapshot.snapshot_mode)
        with self._claimed() as source:
            tables, found = self._checked(source, renews_slot=mode.slot_lost)
            wanted = [table for table in tables if source.selection.includes_in_snapshot(table.id)]
            if self._has_lake and (mode.all or mode.missing or not found.exists):
                known = set() if mode.all else self._known_tables(tables)
                if known and not found.exists and not mode.slot_lost:
                    raise self._slot_gone()
                if mode.all or not found.exists or any(table.id not in known for table in wanted):
                    # Before anything is made at the source: without Java nothing is left behind.
                    spark = spark or self.spark()
                published = source.publish(tables, always=self._needed)
                # A new slot knows nothing of what came before it, and a table that joins the publication (again) has
                # changes that never come: both are read again.
                known = known - published.added if found.exists else set()
                unread = [table for table in wanted if table.id not in known and table in published.live]
                if unread and (mode.all or mode.missing):
                    return self._take(source, spark or self.spark(), unread, on_progress)
            else:
                source.publish(tables, always=self._needed)
            if not found.exists:
                source.make_slot()
            return []

    def snapshot(
        self, tables: Sequence[TableId] | None = None, spark: Any = None, on_progress: OnProgress | None = None
    ) -> list[SnapshotReport]:
        """Read tables (None: all captured) into the lake at one consistent point, whatever the lake has of them."""
        self.config.require_carried()
        self.config.require_lake()
        with self._claimed() as source:
            captured, found = self._checked(source)
            chosen = captured if tables is None else chosen_tables(captured, tables)
            others = [table for table in captured if table not in chosen]
            if others and not found.exists and self._known_tables(others):
                raise self._slot_gone()
            spark = spark or self.spark()
            published = source.publish(captured, always=self._needed)
            # A table that joins the publication again has changes that never come: it is read again too.
            again = [table for table in others if table.id in published.added]
            again = [table for table in again if table.id in self._known_tables(again)]
            chosen = [table for table in [*chosen, *again] if table in published.live]
            return self._take(source, spark, chosen, on_progress)

    def stream(
        self,
        until: Until,
        spark: Any = None,
        on_batch: Callable[[BatchReport], None] | None = None,
        on_round: Callable[[RoundReport], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> StreamReport:
        """Drain the slot into the sink until a bound of ``until`` is met; what was read by then is merged."""
        self.config.require_carried()
        # Spark takes seconds to start: it does so while the server is asked and the first changes are read.
        session = self._session(spark)
        with self._claimed() as source:
            tables, found = self._checked(source)
            if not found.exists or found.confirmed_lsn is None:
                raise SourceError(
                    f"There is no slot {self.slot}: nothing was captured so far.", "Take the first snapshot."
                )
            source.require_publication()
            # The publication stays as the last snapshot made it: a table that joined it here would have a gap.
            report = self._stream(
                source,
                tables,
                found.confirmed_lsn,
                until,
                session,
                Hooks(on_batch, on_round, should_stop),
            )
            if report.stopped_by != "time":
                source.drop_on_stop()
            return report

    def replay(self, table: TableId, spark: Any = None, on_progress: OnProgress | None = None) -> ReplayReport:
        """Let a paused table go on: its changes are merged, in order, after reading it again where that is needed.

        Raises TableError where what it was paused for is still so, or the table is not captured.
        """
        self.config.require_carried()
        self.config.require_lake()
        session = self._session(spark)
        with self._claimed() as source:
            captured, _ = self._checked(source)
            chosen = chosen_tables(captured, [table])
            book = TableBook(source.describing(), source.includes(), [streamed(each) for each in captured])
            sink, positions = self._sink(source, book, session, captured)
            assert isinstance(sink, LakeSink)
            with closing(sink):
                reached = Lsn(positions[table].commit_lsn) if table in positions else Lsn(0)
                snapshot = None
                if not sink.resume(table, reached):
                    snapshot = self._take(source, session(), chosen, on_progress)[0]
                    sink.reopen(table)
                merged = sink.apply(None, reached, lambda: None)
            failed = merged.failed.get(table)
            if failed is not None:
                raise TableError(failed, f"Mend the cause and run wal2lake replay again with {table}.", str(table))
            events = sum(merge.events for merge in merged.merges if merge.table == table)
            return ReplayReport(table, events, snapshot)

    def envelopes(self, output: Path, until: Until, should_stop: Callable[[], bool] | None = None) -> int:
        """Write Debezium's records to ``output``, snapshot then stream; how many."""
        self.config.require_carried()
        config, mode = self.config, answers(self.config.snapshot.snapshot_mode)
        with self._claimed() as source, EnvelopeOutput(output, self.slot) as written_to:
            self._renew_lost_slot(source, mode.slot_lost)
            tables = source.tables()
            source.publish(tables)
            context = EnvelopeContext.of(
                config.schema,
                config.postgres.database_dbname,
                config.envelope,
                skipped=config.selection.skipped_operations,
                binary=config.types.binary_handling_mode,
            )
            run = EnvelopeRun(source, context, config.types, config.selection, config.snapshot)
            if run.resume(written_to):
                source.drop_slot()
            found = source.check_slot()
            written = 0
            if mode.all or (mode.missing and not found.exists):
                chosen = [table for table in tables if source.selection.includes_in_snapshot(table.id)]
                written = run.snapshot(chosen, written_to)
            elif not found.exists:
                source.make_slot()
            if mode.stream:
                goes_on = should_stop or (lambda: False)
                written += run.stream(tables, written_to, until, goes_on, found.confirmed_lsn)
            source.drop_on_stop()
            return written

    def status(self, count_rows: bool = False) -> Status:
        """The slot, and where each table stands by the Delta tables' own commits."""
        from cdc_core.engine.status import lake_status, source_rows

        with self._source() as source:
            found = source.slot()
            tables = source.tables()
            rows = source_rows(self.config.postgres, tables) if count_rows else {}
            news = self.pending()
        lake: dict[TableId, TableStatus] = {}
        if "lake" in self.config.engine.sinks and self.config.sink.lake_path:
            includes = TableSelection(self.config.selection).includes
            lake = lake_status(self._paths(), self.slot, tables, rows, count_rows, includes)
        return Status(
            self.slot,
            found.exists,
            found.active,
            found.wal_status,
            found.restart_lsn,
            found.confirmed_lsn,
            news.wal_end_lsn,
            news.lag_bytes,
            tuple(lake.values()),
        )

    def _source(self) -> Source:
        config = self.config
        return Source(config.postgres, config.selection, config.snapshot.snapshot_include_collection_list)

    @property
    def _needed(self) -> str:
        """Operations that a lake needs although Debezium skips them unless it is told otherwise."""
        told = any(setting.name == "skipped.operations" for setting in self.config.settings)
        return "t" if "lake" in self.config.engine.sinks and not told else ""

    @contextmanager
    def _claimed(self) -> Iterator[Source]:
        with self._source() as source:
            source.claim()
            yield source

    def _paths(self) -> Any:
        from cdc_core.sink.delta.paths import LakePaths

        return LakePaths(self.config.sink.lake_path, self.name)

    def _plan(self) -> TypingPlan:
        config = self.config
        return TypingPlan(config.types, config.selection, config.envelope.event_converting_failure_handling_mode)

    @property
    def _spool_folder(self) -> Path:
        return self.config.state_path.resolve() / "spool"

    @property
    def _has_lake(self) -> bool:
        return "lake" in self.config.engine.sinks

    def _checked(self, source: Source, *, renews_slot: bool = False) -> tuple[list[TableSchema], slots.SlotInfo]:
        """The captured tables and the slot, once all is found well that can be looked at before anything is made."""
        if self._has_lake:
            raise_bad(folder_finding("lake", "wal2lake.lake.path", self.config.sink.lake_path))
        raise_bad(folder_finding("state", "wal2lake.state.path", str(self.config.state_path)))
        tables = self._lake_tables(source, source.tables())
        if not tables:
            raise SourceError(
                f"No table of database {self.config.postgres.database_dbname} is captured.",
                "Check table.include.list, schema.include.list and the exclude lists; entries match schema.table.",
            )
        source.check_publication(tables)
        self._renew_lost_slot(source, renews_slot)
        return tables, source.check_slot()

    def _slot_gone(self) -> SourceError:
        return SourceError(
            f"Slot {self.slot} is gone, and the lake holds tables that followed it: their changes since are lost.",
            "Read all tables again with wal2lake snapshot, or set snapshot.mode=when_needed, which does so by itself.",
        )

    def _renew_lost_slot(self, source: Source, allowed: bool) -> None:
        if allowed and source.slot().is_lost:
            source.drop_slot()

    def _lake_tables(self, source: Source, tables: list[TableSchema]) -> list[TableSchema]:
        """The tables a lake can have. Raises TableError where masking took away what tells rows apart."""
        for table in tables:
            lost = lake_key_conflicts(table, plan_columns(table, self.config.selection))
            if lost and "lake" in self.config.engine.sinks:
                raise TableError(
                    f"{table.id} is told apart by {', '.join(lost)}, which the file leaves out, cuts or masks.",
                    "Keep key columns whole (a hash is fine), or leave the table out.",
                    str(table.id),
                )
        return tables

    def _known_tables(self, tables: list[TableSchema]) -> set[TableId]:
        """The tables whose snapshot is in the lake."""
        from cdc_core.sink.delta.positions import lake_position
        from cdc_core.sink.delta.table import DeltaTable

        paths = self._paths()
        return {
            t.id for t in tables if lake_position(DeltaTable.open(paths.lake(t.id)), self.slot, t.id).token is not None
        }

    @property
    def _snapshot_settings(self) -> SnapshotSettings:
        engine = self.config.engine
        return SnapshotSettings(
            self.config.snapshot,
            engine.snapshot_rows_per_partition,
            engine.snapshot_threads,
            self.config.sink.changelog_reads,
            self.config.sink.lake_history_minutes,
            FeaturePolicy(self.config.sink.lake_features, self.config.sink.merge_rewrite_max_bytes),
        )

    def _read_again(self, table: TableId, shape: int, spark: Callable[[], Any]) -> SnapshotReport:
        """Read one table into the lake while the stream goes on, under the number of the shape that it brings."""
        from cdc_core.sink.delta.positions import lake_position
        from cdc_core.sink.delta.table import DeltaTable
        from cdc_core.spark.errors import received

        with self._source() as source:
            found = source.catalog.tables(lambda name: name == table)
            if not found:
                raise TableError(
                    f"{table} is gone from the source.", f"Create it again, or leave {table} out.", str(table)
                )
            merged = lake_position(DeltaTable.open(self._paths().lake(table)), self.slot, table).lsn
            with received(f"reading {table} again"):
                run = SnapshotRun(source, spark(), self._paths(), self._plan(), self._snapshot_settings)
                return run.take_again(streamed(found[0]), None if merged is None else Lsn(merged), shape)

    def _take(
        self, source: Source, spark: Any, tables: list[TableSchema], on_progress: OnProgress | None
    ) -> list[SnapshotReport]:
        from cdc_core.spark.errors import received

        settings = self._snapshot_settings
        # Described anew: the publication may have been made or changed since, and it belongs to a table's marks.
        wanted = {table.id for table in tables}
        now = {table.id: streamed(table) for table in source.catalog.tables(wanted.__contains__)}
        tables = [now.get(table.id, table) for table in tables]
        with received("reading tables into the lake"):
            return SnapshotRun(source, spark, self._paths(), self._plan(), settings).take(tables, on_progress)

    def _stream(
        self,
        source: Source,
        tables: list[TableSchema],
        start: Lsn,
        until: Until,
        spark: Callable[[], Any],
        hooks: Hooks,
    ) -> StreamReport:
        engine = self.config.engine
        book = TableBook(source.describing(), source.includes(), [streamed(table) for table in tables])
        sink, positions = self._sink(source, book, spark, tables)
        bounds = BatchBounds(engine.batch_max_rows, engine.batch_max_bytes, engine.spool_max_bytes)
        with (
            closing(sink),
            closing(ReplicationStream(self.config.postgres)) as stream,
            closing(Spool(self._spool_folder)) as spool,
            SlotReader(stream, book.describe, positions, spool, self._plan(), bounds) as reader,
        ):
            return StreamRun(reader, sink, stream.confirm, engine.freshness_seconds / 2, start, hooks).run(until)

    def _sink(
        self, source: Source, book: TableBook, spark: Callable[[], Any], tables: list[TableSchema]
    ) -> tuple[Sink, dict[TableId, Any]]:
        plan = self._plan()
        if "noop" in self.config.engine.sinks:
            return NoopSink(spark, plan), {}
        from cdc_core.sink.delta.shape import lake_properties
        from cdc_core.sink.delta.shape_log import ShapeLog
        from cdc_core.sink.delta.table import DeltaTable

        checks = TableChecks(self.config.quality, plan, DescribeNow(connection_string(self.config.postgres)))
        config, paths = self.config, self._paths()
        shapes = Shapes(
            ShapeLog(paths.shapes, lake_properties(config.sink.lake_history_minutes)),
            source.describing(),
            plan,
            config.sink.schema_policy,
            lambda table: None if (lake := DeltaTable.open(paths.lake(table))) is None else lake.schema,
            reads_new_tables=answers(config.snapshot.snapshot_mode).missing,
        )
        watch = SourceWatch(shapes, Rereads(lambda table, shape: self._read_again(table, shape, spark)), source.wal_lsn)
        sink = LakeSink(
            spark, paths, self.slot, plan, book, checks, watch, config.sink, config.engine, self._spool_folder
        )
        return sink, sink.positions(table.id for table in tables)

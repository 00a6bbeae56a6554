"""Shared by the operations of one connector: configuration, server connection and claim, lake, destinations."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cdc_core.assemble.destination import Destination, destinations_of
from cdc_core.assemble.observers import Observers
from cdc_core.assemble.signals.channels import require_channels
from cdc_core.config import ConnectorConfig, say_effects
from cdc_core.engine import (
    ConnectorLake,
    RereadsFile,
    RunFolder,
    TableSnapshots,
    concerned,
    folder_finding,
    spark_scratch,
    state_file,
)
from cdc_core.lake import Owner, Storage, StreamReader, TypingPlan
from cdc_core.observe import ConnectorMetrics
from cdc_core.postgres import OUTDATED_CATALOGUE, SessionFile, Sessions, SlotInfo, Source, place
from cdc_core.schema import TableSchema
from cdc_core.snapshot import SenderRenewal
from cdc_core.spark import GivenSession, Session, SessionStart, start_workers
from cdc_core.worker_memory import new_run

_log = logging.getLogger(__name__)

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@dataclass(frozen=True, slots=True)
class RunContext:
    """One connector's configuration and the resources that an operation opens with it. Holds no open resource itself.

    ``told`` are the warnings about the source that were logged (``Source``), ``sessions`` the server's sessions that
    hold its claims, ``recorded`` reads the lake's record of the stream, ``renewal`` says when it is begun anew.
    ``observers`` are those of the run in progress, ``counted`` are its metrics, once something counts.

    Methods raise CdcError, with a message and a remedy.
    """

    config: ConnectorConfig
    told: set[str] = field(default_factory=set, compare=False, repr=False)
    sessions: Sessions = field(default_factory=Sessions, compare=False, repr=False)
    recorded: StreamReader = field(default_factory=StreamReader, compare=False, repr=False)
    renewal: SenderRenewal = field(default_factory=SenderRenewal, compare=False, repr=False)
    observers: Observers = field(default_factory=Observers, compare=False, repr=False)
    counted: list[ConnectorMetrics] = field(default_factory=list, compare=False, repr=False)

    @property
    def name(self) -> str:
        """``topic.prefix``."""
        return self.config.schema.topic_prefix

    @property
    def slot(self) -> str:
        """``slot.name``."""
        return self.config.postgres.slot_name

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """Where changes are written; the first one reads the slot, the others write beside it."""
        return destinations_of(self.config.engine.sinks, self)

    @property
    def plan(self) -> TypingPlan:
        """The types of a captured table's columns."""
        config = self.config
        return TypingPlan(config.types, config.selection, config.envelope.event_converting_failure_handling_mode)

    @property
    def lake(self) -> ConnectorLake:
        """The connector's lake, also where nothing is written to it: an operation that needs it says so."""
        config = self.config
        copies = str(config.state_path.absolute() / "objects")
        return ConnectorLake(
            config.lake, config.snapshot, config.postgres, self.plan, config.quality, self.name, self.recorded, copies
        )

    @property
    def snapshots(self) -> TableSnapshots:
        """What reads tables into the lake."""
        rereads = RereadsFile(self.config.state_path, self.name, self.slot)
        return TableSnapshots(
            self.lake, self.config.engine, self.source, self.ready, self.renewal_for, rereads, self.published_always
        )

    @property
    def published_always(self) -> str:
        """Operations that a destination needs although Debezium skips them by default."""
        told = any(setting.name == "skipped.operations" for setting in self.config.settings)
        return "" if told else "".join(destination.always_published for destination in self.destinations)

    @property
    def unpublished(self) -> tuple[str, ...]:
        """Operations (c, u, d, t) that need not be published."""
        return tuple(code for code in self.config.selection.skipped_operations if code not in self.published_always)

    def run_folder(self) -> RunFolder:
        """A new folder for a run's temporary files; a context manager."""
        postgres = self.config.postgres
        server = f"{place(postgres)}/{postgres.database_dbname}"
        lake = f"{self.config.lake.lake_path}/{self.name}"
        owner = Owner(new_run(lake), self.slot, server, lake)
        return RunFolder(self.config.state_path.resolve() / "spool", self.name, owner)

    def spark(self) -> Session:
        """The process's Spark session (its context only); started with the connector's settings if none is running."""
        from cdc_core.spark import get_context

        own = Storage.spark_settings(self.config.lake.lake_path) | spark_scratch(self.config.state_path.resolve())
        configured = dict(self.config.engine.spark)
        options = " ".join(settings[_JAVA_OPTIONS] for settings in (own, configured) if _JAVA_OPTIONS in settings)
        made = self.ready(get_context({**own, **configured, **({_JAVA_OPTIONS: options} if options else {})}))
        start_workers(made)
        return made

    def session(self, spark: GivenSession, *, when_asked: bool = False) -> SessionStart:
        """Call the result for the session: the given one, or one that is being started in a background thread.

        ``spark`` may be a function that starts it. ``when_asked``: it is not started before it is called.
        """
        start = SessionStart(lambda: self.ready(spark))
        if not when_asked:
            start.begin()
        return start

    def ready(self, spark: GivenSession) -> Session:
        """A session that is configured for the lake's storage."""
        session = spark() if callable(spark) else spark
        if session is None:
            return self.spark()
        Storage.of(self.config.lake).reach(session, self.config.lake.lake_path)
        return session

    def source(self) -> Source:
        """The source; a context manager that is not entered yet."""
        config = self.config
        if self.sessions.file is None:
            self.sessions.file = SessionFile(state_file(config.state_path, "sessions", self.name, self.slot))
        selection = config.snapshot.selection(config.selection)
        return Source(config.postgres, selection, self.told, self.sessions)

    def has_slot(self) -> bool:
        """Whether the slot exists. Queries the server."""
        with self.source() as source:
            return source.slot().exists

    def is_running(self) -> bool:
        """Whether a run has the slot. Queries the server."""
        with self.source() as source:
            return source.is_in_use(self.slot)

    def renewal_for(self, source: Source) -> SenderRenewal | None:
        """When the stream from this server is begun anew; None if it need not be."""
        return self.renewal if OUTDATED_CATALOGUE.is_in(self.config.postgres, source.server_version) else None

    @contextmanager
    def claimed(self, *, writes_tables: bool = True) -> Iterator[Source]:
        """The opened source, with an exclusive claim on the slot until the end of the context.

        ``writes_tables``: on the tables of the destinations, too.
        """
        claims = [destination.claim for destination in self.destinations if destination.claim and writes_tables]
        with self.source() as source:
            source.claim("".join(claims))
            yield source

    def checked(self, source: Source, *, recreates_slot: bool = False) -> tuple[list[TableSchema], SlotInfo]:
        """The captured tables and the slot, after all checks that can be made before anything is created."""
        destinations = self.destinations
        for finding in (destination.place() for destination in destinations):
            if finding is not None:
                finding.require()
        folder_finding("state", "wal2lake.state.path", str(self.config.state_path)).require()
        tables = self.named_tables(source)
        for destination in destinations:
            for error in destination.misfits(source, tables):
                raise error
        require_channels(self.config)
        say_effects(self.config, source, writes_events=any(destination.writes_events for destination in destinations))
        if not tables:
            source.warn(
                f"No table of database {self.config.postgres.database_dbname} is captured yet. Check "
                "table.include.list, schema.include.list and the exclude lists; entries match schema.table, and a "
                "partitioned table is captured under its own name only if the publication sets "
                "publish_via_partition_root."
            )
        for fault in concerned(source, self.config.selection, tables):
            if fault.reason not in self.told:
                self.told.add(fault.reason)
                _log.warning("%s %s.", fault.reason, fault.action)
        source.check_publication(tables)
        source.drop_lost_slot(recreates_slot)
        return tables, source.check_slot()

    def named_tables(self, source: Source) -> list[TableSchema]:
        """The captured tables under whose names changes are sent, and those that a destination has already.

        A partitioned table is in the lake under its own name or under those of its partitions (``Source.named``). After
        publish_via_partition_root was changed the lake has tables that get no further changes: they are paused.
        """
        tables = source.tables()
        named = {table.id for table in source.named(tables)}
        others = [table for table in tables if table.id not in named]
        for destination in self.destinations if others else ():
            named |= destination.known(others)
        return [table for table in tables if table.id in named]

    def captured(self, source: Source) -> list[TableSchema]:
        """The captured tables under the names that the stream has for them; without the table of signals."""
        return [table for table in self.named_tables(source) if source.selection.is_table(table.id)]

    def has_all(self, tables: Sequence[TableSchema]) -> bool:
        """Whether a destination has the rows of all these tables, so that a run notices what the stream lacks."""
        return any(destination.has_all(tables) for destination in self.destinations)

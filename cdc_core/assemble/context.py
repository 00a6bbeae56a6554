"""Shared by the operations of one connector: configuration, server connection and claim, paths of the lake."""

from __future__ import annotations

import logging
import os
import re
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_core.assemble.effects import say_effects
from cdc_core.assemble.prerequisites import check_delete_mode, folder_finding, lake_finding, raise_bad
from cdc_core.assemble.session_start import SessionStart
from cdc_core.assemble.signal_topic import require_channels
from cdc_core.config import ConnectorConfig
from cdc_core.engine.run_folder import RunFolder
from cdc_core.engine.run_state import state_file
from cdc_core.engine.scratch import spark_scratch
from cdc_core.errors import CdcError, MissingKeyError, TableError, UnreadableError
from cdc_core.lake.rows.row_keys import check_key
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.stores.stream_log import StreamReader
from cdc_core.offsets import Adoption
from cdc_core.postgres.connect import place
from cdc_core.postgres.known_faults import OUTDATED_CATALOGUE, ConcernedTable, concerned_tables
from cdc_core.postgres.replication.slot import SlotInfo
from cdc_core.postgres.sessions import SessionFile, Sessions
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.columns import lake_key_conflicts, plan_columns
from cdc_core.snapshot.copy.plan import order_tables
from cdc_core.snapshot.modes import ModeActions, mode_actions
from cdc_core.snapshot.options import TableOrder
from cdc_core.snapshot.sender_renewal import SenderRenewal

_log = logging.getLogger(__name__)

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@dataclass(frozen=True, slots=True)
class RunContext:
    """One connector's configuration and the resources that an operation opens with it. Holds no open resource itself.

    ``told`` are the warnings about the source that were logged (``Source``), ``sessions`` the server's sessions that
    hold its claims, ``recorded`` reads the lake's record of the stream, ``renewal`` says when it is begun anew.

    Methods raise CdcError, with a message and a remedy.
    """

    config: ConnectorConfig
    told: set[str] = field(default_factory=set, compare=False, repr=False)
    sessions: Sessions = field(default_factory=Sessions, compare=False, repr=False)
    recorded: StreamReader = field(default_factory=StreamReader, compare=False, repr=False)
    renewal: SenderRenewal = field(default_factory=SenderRenewal, compare=False, repr=False)

    @property
    def name(self) -> str:
        """``topic.prefix``."""
        return self.config.schema.topic_prefix

    @property
    def slot(self) -> str:
        """``slot.name``."""
        return self.config.postgres.slot_name

    @property
    def scope(self) -> str:
        """The scope of the lake's positions: the slot, and the epoch of the stream that the lake has recorded."""
        from cdc_core.lake.epochs import scope_of

        record = self.recorded.read(self.paths.stream)
        return scope_of(self.slot, 0 if record is None else record.epoch)

    @property
    def adoption(self) -> Adoption | None:
        """What the lake recorded when it took its stream over from another connector; None if it did not."""
        record = self.recorded.read(self.paths.stream) if self.has_lake else None
        return Adoption.from_json(record.adopted) if record is not None and record.adopted else None

    @property
    def lake_mode(self) -> ModeActions:
        """The actions of ``snapshot.mode`` for the lake's tables, and of an adoption: it fills them, or does not."""
        mode, adoption = mode_actions(self.config.snapshot), self.adoption
        if adoption is None:
            return mode
        return replace(mode, first=adoption.fills, interrupted=adoption.fills, later=mode.later and adoption.fills)

    @property
    def has_lake(self) -> bool:
        """Whether changes are written to a lake."""
        return "lake" in self.config.engine.sinks

    @property
    def has_kafka(self) -> bool:
        """Whether events are written to Kafka."""
        return "kafka" in self.config.engine.sinks

    @property
    def published_always(self) -> str:
        """Operations that a lake needs although Debezium skips them by default."""
        told = any(setting.name == "skipped.operations" for setting in self.config.settings)
        return "t" if self.has_lake and not told else ""

    @property
    def unpublished(self) -> tuple[str, ...]:
        """Operations (c, u, d, t) that need not be published."""
        return tuple(each for each in self.config.selection.skipped_operations if each not in self.published_always)

    @property
    def plan(self) -> TypingPlan:
        """The types of a captured table's columns."""
        config = self.config
        return TypingPlan(config.types, config.selection, config.envelope.event_converting_failure_handling_mode)

    @property
    def paths(self) -> Any:
        """``LakePaths`` of the connector, absolute: Spark's processes may have another working folder."""
        from cdc_core.lake.delta.storage import Storage
        from cdc_core.lake.paths import LakePaths

        root = self.config.lake.lake_path
        if root and ":" not in root.partition("/")[0]:
            root = os.path.abspath(root)
        return LakePaths(root, self.name, Storage.of(self.config.lake))

    def run_folder(self) -> RunFolder:
        """A new folder for a run's temporary files; a context manager."""
        postgres = self.config.postgres
        server = f"{place(postgres)}/{postgres.database_dbname}"
        owner = Owner(uuid.uuid4().hex, self.slot, server, f"{self.config.lake.lake_path}/{self.name}")
        return RunFolder(self.config.state_path.resolve() / "spool", self.name, owner)

    def spark(self) -> Any:
        """The process's Spark session (its context only); started with the connector's settings if none is running."""
        from cdc_core.lake.delta.storage import spark_settings
        from cdc_core.spark import get_context, start_workers

        own = spark_settings(self.config.lake.lake_path) | spark_scratch(self.config.state_path.resolve())
        given = dict(self.config.engine.spark)
        options = " ".join(each[_JAVA_OPTIONS] for each in (own, given) if _JAVA_OPTIONS in each)
        made = self.ready(get_context({**own, **given, **({_JAVA_OPTIONS: options} if options else {})}))
        start_workers(made)
        return made

    def session(self, given: Any, *, when_asked: bool = False) -> SessionStart:
        """Call the result for the session: the given one, or one that is being started in a background thread.

        ``given`` may be a function that starts it. ``when_asked``: it is not started before it is called.
        """
        start = SessionStart(lambda: self.ready(given() if callable(given) else given))
        if not when_asked:
            start.begin()
        return start

    def ready(self, session: Any) -> Any:
        """A session (None: the process's own) that is configured for the lake's storage."""
        from cdc_core.lake.delta.storage import Storage, reach

        if session is None:
            return self.spark()
        reach(session, self.config.lake.lake_path, Storage.of(self.config.lake))
        return session

    def source(self) -> Source:
        """The source; a context manager that is not entered yet."""
        config = self.config
        if self.sessions.file is None:
            self.sessions.file = SessionFile(state_file(config.state_path, "sessions", self.name, self.slot))
        include = config.snapshot.snapshot_include_collection_list
        return Source(config.postgres, config.selection, include, self.told, self.sessions, config.snapshot.skips)

    def renewal_for(self, source: Source) -> SenderRenewal | None:
        """When the stream from this server is begun anew; None if it need not be."""
        return self.renewal if OUTDATED_CATALOGUE.is_in(self.config.postgres, source.server_version) else None

    @contextmanager
    def claimed(self, *, writes_lake: bool = True) -> Iterator[Source]:
        """The opened source, with an exclusive claim on the slot and the lake's tables until the end of the context."""
        with self.source() as source:
            source.claim(self._lake_claim() if self.has_lake and writes_lake else "")
            yield source

    def _lake_claim(self) -> str:
        """The folder of the lake's tables, by its only name; a folder of this machine is no other machine's."""
        base = re.sub(r"^file:/+", "/", self.paths.base)
        return base if "://" in base else f"{socket.gethostname()}:{os.path.realpath(base)}"

    def checked(self, source: Source, *, recreates_slot: bool = False) -> tuple[list[TableSchema], SlotInfo]:
        """The captured tables and the slot, after all checks that can be made before anything is created."""
        if self.has_lake:
            raise_bad(lake_finding(self.config))
        raise_bad(folder_finding("state", "wal2lake.state.path", str(self.config.state_path)))
        tables = self.lake_tables(source)
        for error in self.misfits(source, tables) if self.has_lake else ():
            raise error
        require_channels(self.config)
        say_effects(self.config, source, writes_events=self.has_kafka)
        if not tables:
            source.warn(
                f"No table of database {self.config.postgres.database_dbname} is captured yet. Check "
                "table.include.list, schema.include.list and the exclude lists; entries match schema.table, and a "
                "partitioned table is captured under its own name only if the publication sets "
                "publish_via_partition_root."
            )
        for one in self.concerned(source, tables):
            if one.reason not in self.told:
                self.told.add(one.reason)
                _log.warning("%s %s.", one.reason, one.action)
        source.check_publication(tables)
        recreate_lost_slot(source, recreates_slot)
        return tables, source.check_slot()

    def lake_tables(self, source: Source) -> list[TableSchema]:
        """The captured tables under whose names changes are sent, and those whose snapshot is in the lake already.

        A partitioned table is in the lake under its own name or under those of its partitions (``Source.named``). After
        publish_via_partition_root was changed the lake has tables that get no further changes: they are paused.
        """
        tables = source.tables()
        named = {table.id for table in source.named(tables)}
        others = [table for table in tables if table.id not in named]
        named |= self.known_tables(others) if others and self.has_lake else set()
        return [table for table in tables if table.id in named]

    def known_tables(self, tables: Sequence[TableSchema]) -> set[TableId]:
        """The tables whose snapshot is in the lake; without those whose folder cannot be used."""
        return self.in_lake(tables)[0]

    def in_lake(self, tables: Sequence[TableSchema]) -> tuple[set[TableId], dict[TableId, CdcError]]:
        """The tables whose snapshot is in the lake, and those whose folder cannot be used (``UnreadableError``)."""
        from cdc_core.lake.delta.readable import open_own
        from cdc_core.lake.positions import lake_position

        known, unusable, scope = set(), dict[TableId, CdcError](), self.scope
        for table in tables:
            try:
                lake = open_own(self.paths.lake(table.id))
            except UnreadableError as error:
                unusable[table.id] = error
                continue
            if lake_position(lake, scope, table.id).token is not None:
                known.add(table.id)
        return known, unusable

    def in_reading_order(self, source: Source, tables: Sequence[TableSchema]) -> list[TableSchema]:
        """The tables in the order set by ``snapshot.tables.order.by.row.count``."""
        order = self.config.snapshot.snapshot_tables_order_by_row_count
        if order is TableOrder.DISABLED:
            return list(tables)
        sizes = source.catalog.sizes(tables)
        return order_tables(tables, {name: size.rows for name, size in sizes.items()}, order)

    def misfits(self, source: Source, tables: Iterable[TableSchema]) -> Iterator[TableError]:
        """Yield why tables cannot be written to a lake, one error a table.

        Masking or exclusion removes columns that identify rows, a table does not meet the requirements of its delete
        mode, or the server does not send such columns exactly.
        """
        for table in tables:
            try:
                lost = lake_key_conflicts(table, plan_columns(table, self.config.selection))
                if lost:
                    raise TableError(
                        f"The rows of {table.id} are identified by {', '.join(lost)}, which the connector file "
                        "excludes, truncates or masks.",
                        "Capture key columns in full (a hash is allowed), or exclude the table.",
                        str(table.id),
                    )
                check_delete_mode(self.config.lake.delete_modes, table)
                self._check_key(table)
                refused = self.uncarried(source, table)
                if refused is not None and not self.known_tables([table]):
                    raise TableError(refused.reason, f"{refused.action}.", str(table.id))
            except TableError as error:
                yield error

    def concerned(self, source: Source, tables: Iterable[TableSchema]) -> list[ConcernedTable]:
        """The tables with captured values that this server does not send as they are, once for each fault."""

        def captures(table: TableSchema) -> list[str]:
            return [plan.name for plan in plan_columns(table, self.config.selection) if plan.included]

        return concerned_tables(self.config.postgres, source.server_version, tables, captures)

    def uncarried(self, source: Source, table: TableSchema) -> ConcernedTable | None:
        """Why changes of the table would not find their rows in the lake; None if they do."""
        return next((one for one in self.concerned(source, [table]) if one.identifying), None)

    def _check_key(self, table: TableSchema) -> None:
        try:
            check_key(table, self.config.lake.delete_modes.of(table.id))
        except MissingKeyError:
            # A table of the lake that has lost its key is paused by the stream; the other tables are not delayed.
            if not self.known_tables([table]):
                raise


def recreate_lost_slot(source: Source, allowed: bool) -> None:
    """Drop a slot that the server has invalidated, if the snapshot mode allows creating a new one."""
    if allowed and source.slot().is_lost:
        source.drop_slot()

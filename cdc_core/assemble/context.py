"""What the verbs of one connector share: its configuration, its server opened and claimed, its lake's paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_core.assemble.beforehand import folder_finding, raise_bad
from cdc_core.assemble.news import starting
from cdc_core.config.connector import ConnectorConfig
from cdc_core.engine.source import Source
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.errors import SourceError, TableError
from cdc_core.postgres.slot import SlotInfo
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.columns import lake_key_conflicts, plan_columns
from cdc_core.snapshot.options import TableOrder
from cdc_core.snapshot.plan import order_tables


@dataclass(frozen=True, slots=True)
class RunContext:
    """One connector's configuration and what a verb opens by it. Holds nothing open itself.

    Methods raise CdcError: one sentence with what was found, one with what to do.
    """

    config: ConnectorConfig

    @property
    def name(self) -> str:
        """``topic.prefix``."""
        return self.config.schema.topic_prefix

    @property
    def slot(self) -> str:
        """``slot.name``."""
        return self.config.postgres.slot_name

    @property
    def has_lake(self) -> bool:
        """Whether changes go to a lake."""
        return "lake" in self.config.engine.sinks

    @property
    def published_always(self) -> str:
        """Operations that a lake needs although Debezium skips them unless it is told otherwise."""
        told = any(setting.name == "skipped.operations" for setting in self.config.settings)
        return "t" if self.has_lake and not told else ""

    @property
    def plan(self) -> TypingPlan:
        """How a captured table's columns are typed."""
        config = self.config
        return TypingPlan(config.types, config.selection, config.envelope.event_converting_failure_handling_mode)

    @property
    def paths(self) -> Any:
        """``LakePaths`` of the connector."""
        from cdc_core.sink.delta.paths import LakePaths

        return LakePaths(self.config.sink.lake_path, self.name)

    @property
    def spool_folder(self) -> Path:
        """Where changes wait between the reader and the workers."""
        return self.config.state_path.resolve() / "spool"

    def spark(self) -> Any:
        """The process's Spark session, started with the connector's settings unless one runs (its context alone)."""
        from cdc_core.spark.session import get_context

        return get_context(dict(self.config.engine.spark))

    def session(self, given: Any) -> Callable[[], Any]:
        """What gives the session: the one given, or one that a thread of its own is starting meanwhile.

        ``given`` may be a function that starts it.
        """
        if given is None or callable(given):
            return starting(given or self.spark)

        def session() -> Any:
            return given

        return session

    def source(self) -> Source:
        """The server's side; a context manager that is not entered yet."""
        config = self.config
        return Source(config.postgres, config.selection, config.snapshot.snapshot_include_collection_list)

    @contextmanager
    def claimed(self) -> Iterator[Source]:
        """The server's side, opened, with no other process of ours on the slot until the end."""
        with self.source() as source:
            source.claim()
            yield source

    def checked(self, source: Source, *, renews_slot: bool = False) -> tuple[list[TableSchema], SlotInfo]:
        """The captured tables and the slot, once all is found well that can be looked at before anything is made."""
        if self.has_lake:
            raise_bad(folder_finding("lake", "wal2lake.lake.path", self.config.sink.lake_path))
        raise_bad(folder_finding("state", "wal2lake.state.path", str(self.config.state_path)))
        tables = self._lake_tables(source.tables())
        if not tables:
            raise SourceError(
                f"No table of database {self.config.postgres.database_dbname} is captured.",
                "Check table.include.list, schema.include.list and the exclude lists; entries match schema.table.",
            )
        source.check_publication(tables)
        renew_lost_slot(source, renews_slot)
        return tables, source.check_slot()

    def known_tables(self, tables: Sequence[TableSchema]) -> set[TableId]:
        """The tables whose snapshot is in the lake."""
        from cdc_core.sink.delta.positions import lake_position
        from cdc_core.sink.delta.table import DeltaTable

        paths = self.paths
        return {
            t.id for t in tables if lake_position(DeltaTable.open(paths.lake(t.id)), self.slot, t.id).token is not None
        }

    def in_reading_order(self, source: Source, tables: Sequence[TableSchema]) -> list[TableSchema]:
        """The tables in the order that ``snapshot.tables.order.by.row.count`` asks for."""
        order = self.config.snapshot.snapshot_tables_order_by_row_count
        if order is TableOrder.DISABLED:
            return list(tables)
        sizes = source.catalog.sizes(tables)
        return order_tables(tables, {name: size.rows for name, size in sizes.items()}, order)

    def slot_gone(self) -> SourceError:
        """The error where the lake followed a slot that is no more."""
        return SourceError(
            f"Slot {self.slot} is gone, and the lake holds tables that followed it: their changes since are lost.",
            "Read all tables again with wal2lake snapshot, or set snapshot.mode=when_needed, which does so by itself.",
        )

    def _lake_tables(self, tables: list[TableSchema]) -> list[TableSchema]:
        """The tables a lake can have. Raises TableError where masking took away what tells rows apart."""
        for table in tables:
            lost = lake_key_conflicts(table, plan_columns(table, self.config.selection))
            if lost and self.has_lake:
                raise TableError(
                    f"{table.id} is told apart by {', '.join(lost)}, which the file leaves out, cuts or masks.",
                    "Keep key columns whole (a hash is fine), or leave the table out.",
                    str(table.id),
                )
        return tables


def renew_lost_slot(source: Source, allowed: bool) -> None:
    """Drop a slot that the server has invalidated, where the snapshot mode allows a new one."""
    if allowed and source.slot().is_lost:
        source.drop_slot()

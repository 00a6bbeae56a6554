"""One connector as Dagster needs it at load time: names, known tables, and a way to open the engine later."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cdc_core.engine.reports import (
    BatchReport,
    RoundReport,
    SnapshotProgress,
    SnapshotReport,
    StreamReport,
    Until,
)
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId, TableSchema


class SlotNews(Protocol):
    """What the server says of a slot at one look."""

    @property
    def slot_exists(self) -> bool:
        """Whether the slot was made yet."""

    @property
    def slot_active(self) -> bool:
        """Whether somebody reads it now."""

    @property
    def lag_bytes(self) -> int | None:
        """WAL between what is confirmed and its end."""

    @property
    def confirmed_lsn(self) -> Lsn | None:
        """What the slot was told to be durable."""

    @property
    def is_claimed(self) -> bool:
        """Whether a run is at work on it now."""

    @property
    def has_changes(self) -> bool:
        """Whether the slot holds something we have not confirmed."""


class Engine(Protocol):
    """The part of ``cdc_core.assemble.Connector`` that assets, sensors and checks call."""

    def tables(self) -> list[TableSchema]:
        """The captured tables, asked of the server."""

    def snapshot(
        self,
        tables: Sequence[TableId] | None = None,
        spark: Any = None,
        on_progress: Callable[[SnapshotProgress], None] | None = None,
    ) -> list[SnapshotReport]:
        """Copy tables into the lake at one consistent point."""

    def stream(
        self,
        until: Until,
        spark: Any = None,
        on_batch: Callable[[BatchReport], None] | None = None,
        on_round: Callable[[RoundReport], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> StreamReport:
        """Drain the slot within the bounds of ``until``."""

    def pending(self) -> SlotNews:
        """Whether the slot has something; one cheap query."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A captured table. ``schema`` is None while only its name is known, from the include list."""

    id: TableId
    schema: TableSchema | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """One connector file, read. ``open`` gives the engine; nothing is connected before it is used."""

    name: str
    slot: str
    state_path: Path
    tables: tuple[KnownTable, ...]
    open: Callable[[], Engine]
    lake_path: str = ""
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None

    @property
    def safe_name(self) -> str:
        """The name as jobs, sensors and resources may spell it: letters, digits and underscores."""
        return re.sub(r"\W", "_", self.name, flags=re.ASCII)

    @property
    def pool(self) -> str:
        """The pool that lets one run at a time consume the slot."""
        return f"slot_{re.sub(r'[^A-Za-z0-9_]', '_', self.slot)}"

    def table_id(self, key: str) -> TableId:
        """The table that a partition key names. Raises ValueError for a key without a dot."""
        for table in self.tables:
            if str(table.id) == key:
                return table.id
        schema, dot, name = key.partition(".")
        if not dot:
            raise ValueError(f"expected schema.table, found {key!r}")
        return TableId(schema, name)

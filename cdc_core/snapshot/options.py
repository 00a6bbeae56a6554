"""Options of when and how the tables' existing rows are read."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cdc_core.option import Named, PropertyStatus, at_least, option, parse_list, parse_patterns
from cdc_core.schema import TableId
from cdc_core.selection import SelectionOptions, TableSelection
from cdc_core.snapshot.snapshotter import CustomQueries, Properties, custom_queries


class SnapshotMode(StrEnum):
    """When rows are read at start.

    ``initial``: if nothing is stored yet. ``always``: at each start. ``initial_only``: once, then stop. ``no_data``:
    never; only the stream. ``when_needed``: also if the stored position is lost. ``configuration_based``: by the five
    booleans. ``custom``: by a class.
    """

    ALWAYS = "always"
    INITIAL = "initial"
    INITIAL_ONLY = "initial_only"
    NO_DATA = "no_data"
    WHEN_NEEDED = "when_needed"
    CONFIGURATION_BASED = "configuration_based"
    CUSTOM = "custom"


class SnapshotIsolationMode(StrEnum):
    """Isolation of the reading transactions if the slot exists already; a new slot's snapshot is always imported."""

    SERIALIZABLE = "serializable"
    REPEATABLE_READ = "repeatable_read"
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class SnapshotLockingMode(StrEnum):
    """``none``: no lock. ``shared``: ACCESS SHARE on each table. ``custom``: a class."""

    NONE = "none"
    SHARED = "shared"
    CUSTOM = "custom"


class SnapshotQueryMode(StrEnum):
    """``select_all``: the captured columns of all rows. ``custom``: a class."""

    SELECT_ALL = "select_all"
    CUSTOM = "custom"


class TableOrder(StrEnum):
    """Order of tables by their estimated rows, instead of the include list's order."""

    DISABLED = "disabled"
    ASCENDING = "ascending"
    DESCENDING = "descending"


class WatermarkingStrategy(StrEnum):
    """How a chunk is marked in the stream.

    ``insert_insert`` adds two rows to the signal table, ``insert_delete`` adds one and deletes it again.
    """

    INSERT_INSERT = "insert_insert"
    INSERT_DELETE = "insert_delete"


_NO_HISTORY = "columns are read from the catalogue at each start in every mode: there is no schema history"
_OLDER_MODES = {"never": "no_data", "exported": "initial", "schema_only": "no_data"}


def parse_snapshot_mode(text: str) -> SnapshotMode:
    """Parse a mode, or an older name of one (never, exported)."""
    name = text.strip().lower()
    try:
        return SnapshotMode(_OLDER_MODES.get(name, name))
    except ValueError:
        raise ValueError("one of " + ", ".join(member.value for member in SnapshotMode)) from None


def parse_tables(text: str) -> tuple[str, ...]:
    """Parse names of tables, separated by commas."""
    names = parse_list(text)
    for name in names:
        TableId.of_text(name)
    return names


parse_tables.kind = "list"  # type: ignore[attr-defined]
parse_snapshot_mode.kind = "enum"  # type: ignore[attr-defined]
parse_snapshot_mode.allowed = tuple(member.value for member in SnapshotMode)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Options of snapshots."""

    snapshot_mode: SnapshotMode = option(
        "snapshot.mode", SnapshotMode.INITIAL, "When the tables' rows are read.", parse=parse_snapshot_mode
    )
    snapshot_mode_custom_name: str = option(
        "snapshot.mode.custom.name",
        "",
        "Import path of the Python class used by snapshot.mode=custom (docs/explanation/snapshots.md).",
        aliases=("snapshot.custom.class",),
    )
    snapshot_mode_configuration_based_snapshot_data: bool = option(
        "snapshot.mode.configuration.based.snapshot.data",
        False,
        "With snapshot.mode=configuration_based: whether rows are read at each start.",
    )
    snapshot_mode_configuration_based_snapshot_schema: bool = option(
        "snapshot.mode.configuration.based.snapshot.schema",
        False,
        "With snapshot.mode=configuration_based: whether the tables' columns are read.",
        status=PropertyStatus.IGNORED,
        reason=_NO_HISTORY,
    )
    snapshot_mode_configuration_based_start_stream: bool = option(
        "snapshot.mode.configuration.based.start.stream",
        False,
        "With snapshot.mode=configuration_based: whether changes are streamed after the snapshot.",
    )
    snapshot_mode_configuration_based_snapshot_on_schema_error: bool = option(
        "snapshot.mode.configuration.based.snapshot.on.schema.error",
        False,
        "With snapshot.mode=configuration_based: whether columns are re-read if the schema history is lost.",
        status=PropertyStatus.IGNORED,
        reason=_NO_HISTORY,
    )
    snapshot_mode_configuration_based_snapshot_on_data_error: bool = option(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        False,
        "With snapshot.mode=configuration_based: whether rows are re-read if the stored position is lost.",
    )
    snapshot_include_collection_list: tuple[str, ...] = option(
        "snapshot.include.collection.list",
        (),
        "Captured tables (schema.table) that snapshots read if they name no tables; empty for all captured ones.",
        parse=parse_patterns,
        names=Named.CAPTURED,
    )
    snapshot_select_statement_overrides: tuple[str, ...] = option(
        "snapshot.select.statement.overrides",
        (),
        "Tables that are read with a custom statement, set by snapshot.select.statement.overrides.<schema.table>.",
        parse=parse_tables,
        names=Named.TABLE,
    )
    snapshot_select_statements: tuple[tuple[str, str], ...] = option(
        "snapshot.select.statement.overrides.SCHEMA.TABLE",
        (),
        "The SELECT statement for this table.",
        parse=str,
        pattern=r"snapshot\.select\.statement\.overrides\.(.+)",
    )
    snapshot_isolation_mode: SnapshotIsolationMode = option(
        "snapshot.isolation.mode",
        SnapshotIsolationMode.SERIALIZABLE,
        "Isolation level of snapshot transactions if the slot already exists.",
        status=PropertyStatus.IGNORED,
        reason="all rows are read in one snapshot (repeatable read) in every mode",
    )
    snapshot_locking_mode: SnapshotLockingMode = option(
        "snapshot.locking.mode", SnapshotLockingMode.NONE, "Whether tables are locked while they are read."
    )
    snapshot_lock_timeout_ms: int = option(
        "snapshot.lock.timeout.ms",
        10_000,
        "Maximum time to wait for these locks, and for a table that another session has locked when it is read (0: no "
        "limit). Other tables are read meanwhile.",
        parse=at_least(0),
    )
    snapshot_query_mode: SnapshotQueryMode = option(
        "snapshot.query.mode",
        SnapshotQueryMode.SELECT_ALL,
        "How the statements that read tables are built.",
        status=PropertyStatus.IGNORED,
        reason="custom queries need a Java class; use snapshot.select.statement.overrides instead",
    )
    snapshot_fetch_size: int = option(
        "snapshot.fetch.size",
        10_240,
        "Number of rows per fetch.",
        parse=at_least(1),
        aliases=("rows.fetch.size",),
        status=PropertyStatus.IGNORED,
        reason="rows are read with COPY, which streams them; memory is limited in bytes",
    )
    snapshot_max_threads: int = option(
        "snapshot.max.threads", 1, "Number of tables, or ranges of tables, read in parallel.", parse=at_least(1)
    )
    snapshot_delay_ms: int = option("snapshot.delay.ms", 0, "Wait before the snapshot.", parse=at_least(0))
    streaming_delay_ms: int = option("streaming.delay.ms", 0, "Wait between snapshot and streaming.", parse=at_least(0))
    snapshot_tables_order_by_row_count: TableOrder = option(
        "snapshot.tables.order.by.row.count",
        TableOrder.DISABLED,
        "Order of the tables by their estimated number of rows, instead of the order of the include list.",
    )

    incremental_snapshot_chunk_size: int = option(
        "incremental.snapshot.chunk.size",
        1024,
        "Number of rows per chunk of an incremental snapshot.",
        parse=at_least(1),
    )
    incremental_snapshot_watermarking_strategy: WatermarkingStrategy = option(
        "incremental.snapshot.watermarking.strategy",
        WatermarkingStrategy.INSERT_INSERT,
        "How wal2lake envelopes writes a chunk's watermarks to the signal table; snapshots into the lake need "
        "no watermarks.",
    )
    incremental_snapshot_allow_schema_changes: bool = option(
        "incremental.snapshot.allow.schema.changes",
        False,
        "Whether tables may be altered during an incremental snapshot.",
        status=PropertyStatus.IGNORED,
        reason="they always may: a chunk that was read with other columns is re-read",
    )
    read_only: bool = option(
        "read.only",
        False,
        "Whether incremental snapshots of wal2lake envelopes work without writing to the signal table.",
    )
    properties: Properties = field(default=(), repr=False)
    """All properties of the connector file, for a custom snapshot mode."""

    @property
    def problems(self) -> Iterator[str]:
        """What is missing, a sentence each."""
        if self.snapshot_mode is SnapshotMode.CUSTOM and not self.snapshot_mode_custom_name.strip():
            yield "snapshot.mode.custom.name is missing: snapshot.mode=custom needs the name of a Python class."

    @property
    def unsupported(self) -> Iterator[str]:
        """Values that are not supported, a sentence each."""
        if self.snapshot_locking_mode is SnapshotLockingMode.CUSTOM:
            yield "snapshot.locking.mode=custom is not supported yet."
        if self.snapshot_query_mode is SnapshotQueryMode.CUSTOM:
            yield "snapshot.query.mode=custom is not supported yet."

    def ineffective(self, switches: Sequence[str]) -> Iterator[str]:
        """Yield what has no effect in this mode, a sentence each; ``switches``: properties of a configurable one."""
        if switches and self.snapshot_mode is not SnapshotMode.CONFIGURATION_BASED:
            yield f"{', '.join(switches)}: no effect, because snapshot.mode is not configuration_based."
        if self.snapshot_mode_custom_name and self.snapshot_mode is not SnapshotMode.CUSTOM:
            yield "snapshot.mode.custom.name has no effect, because snapshot.mode is not custom."

    def parallel_ranges(self, threads: int, task_slots: int) -> int:
        """Return how many ranges are read at a time: wal2lake.snapshot.threads (0: one for each task slot of Spark).

        snapshot.max.threads if that is larger.
        """
        return max(threads or task_slots, self.snapshot_max_threads)

    @property
    def select_statements(self) -> dict[TableId, str]:
        """Table → the user's own SELECT. Raises ValueError if the name of a property has no table's name in it."""
        return {TableId.of_text(name): text for name, text in self.snapshot_select_statements}

    def statement_of(self, table: TableId) -> str | None:
        """Return the user's own SELECT for a table: of the overrides, or of a custom snapshot mode; else None."""
        if self._has_override(table):
            return self.select_statements.get(table)
        return None if self.custom is None else self.custom.query_of(table)

    def skips(self, table: TableId) -> bool:
        """Whether a custom snapshot mode does not read the table's rows."""
        return self.custom is not None and not self._has_override(table) and self.custom.skips(table)

    def selection(self, captured: SelectionOptions) -> TableSelection:
        """Return which tables are captured, and which of them a snapshot reads that names none."""
        return TableSelection(captured, self.snapshot_include_collection_list, self.skips)

    @property
    def custom(self) -> CustomQueries | None:
        """The further methods of a custom snapshot mode; None with another mode. Raises ConfigError."""
        if self.snapshot_mode is not SnapshotMode.CUSTOM or not self.snapshot_mode_custom_name.strip():
            return None
        return custom_queries(self.snapshot_mode_custom_name, self.properties)

    def _has_override(self, table: TableId) -> bool:
        return table in map(TableId.of_text, self.snapshot_select_statement_overrides)

"""Whether a table can be compared now, and by which columns: decided from the lake's records before any read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.errors import LakeError, NotComparableError, TableError
from cdc_core.lake.compare.between import LakeVersion
from cdc_core.lake.compare.key_texts import has_text
from cdc_core.lake.compare.rows import Compared, KeyedColumns
from cdc_core.lake.delete_columns import check_mode
from cdc_core.lake.delete_modes import DeleteModes
from cdc_core.lake.delta.readable import open_complete, open_own
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.names import OWN_NAMES, RESCUED
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import is_of_earlier_epoch, lake_position, schema_version_app
from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.stores.schema_log import SchemaLog, TableHistory
from cdc_core.lake.stores.snapshot_log import SnapshotLog, TakenSnapshot
from cdc_core.schema import TableId, TableSchema, same_columns, same_layout
from cdc_core.selection import ROW_OPERATIONS


@dataclass(frozen=True, slots=True)
class Target:
    """A table that is compared: its lake table at the version loaded, and the columns that both sides have.

    ``left_out`` are columns of either side that are not compared. ``changelog`` is None if it has none yet.
    """

    table: TableSchema
    typer: RowTyper
    lake: DeltaTable
    version: LakeVersion
    compared: Compared
    left_out: tuple[str, ...]
    changelog: DeltaTable | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the source to be read, in the table's order."""
        return self.typer.read_columns

    @property
    def lake_version(self) -> int:
        """The lake table's version in Delta, for reports."""
        return self.lake.version

    @property
    def row_count(self) -> int:
        """The number of rows in the lake table's files that are not deleted."""
        return sum(self.lake.row_count(file) for file in self.lake.files)

    @property
    def has_key_texts(self) -> bool:
        """Whether the source's rows can be found by the texts of their keys: not if these are masked, or have none."""
        if not isinstance(self.compared, KeyedColumns):
            return False
        masked = {plan.name for plan in self.typer.plans if plan.mapper is not None}
        names = self.table.row_key
        return not masked & set(names) and all(has_text(self.table.column(name).type) for name in names)


@dataclass(frozen=True, slots=True)
class Records:
    """What the lake has recorded of its tables, and how they are captured.

    ``own_statement`` returns the user's SELECT by which a table is read, None for most. ``skipped`` are operations
    whose changes are not captured. ``histories`` and ``snapshots`` are as of the start; a later snapshot is looked up.
    """

    paths: LakePaths
    scope: str
    plan: TypingPlan
    modes: DeleteModes
    own_statement: Callable[[TableId], str | None]
    skipped: frozenset[str]
    histories: Mapping[TableId, TableHistory]
    snapshots: Mapping[tuple[TableId, int], TakenSnapshot]

    @classmethod
    def read(
        cls,
        paths: LakePaths,
        scope: str,
        plan: TypingPlan,
        modes: DeleteModes,
        own_statement: Callable[[TableId], str | None],
    ) -> Records:
        """Read the records as they are now. Raises UnreadableError."""
        skipped = frozenset(plan.selection.skipped_operations) & ROW_OPERATIONS
        histories = SchemaLog(paths.schema_versions, {}).read()
        snapshots = SnapshotLog(paths.snapshots, epoch_of(scope)).read()
        return cls(paths, scope, plan, modes, own_statement, skipped, histories, snapshots)

    def target(self, table: TableSchema) -> Target:
        """Return the compared columns of a table.

        Raises NotComparableError with the reason why it is left out, LakeError for a lake table that cannot be read.
        """
        history = self.histories.get(table.id)
        if history is not None and history.paused is not None:
            since = f"{history.paused.since:%Y-%m-%d %H:%M:%S} UTC"
            raise NotComparableError(f"it has been paused since {since}: {history.paused.reason}")
        if self.own_statement(table.id) is not None:
            raise NotComparableError("snapshot.select.statement.overrides decides which of its rows are in the lake")
        if self.skipped:
            left = ", ".join(sorted(self.skipped))
            raise NotComparableError(f"skipped.operations leaves out changes of its rows ({left})")
        lake = open_complete(self.paths.lake(table.id))
        place = lake_position(lake, self.scope, table.id)
        if lake is None and history is not None and history.versions:
            raise LakeError(
                f"The lake table of {table.id} no longer exists.", f"Run wal2lake snapshot with {table.id}."
            )
        if lake is None:
            raise NotComparableError("it has no lake table yet")
        if is_of_earlier_epoch(lake, self.scope, table.id):
            raise NotComparableError("its lake table has rows of another server or history and is to be read again")
        if place.token is None:
            raise NotComparableError("no snapshot of it is in the lake, which has only the changes since")
        taken = self.snapshots.get((table.id, place.token)) or self._taken(table.id, place.token)
        if taken is not None and taken.since is not None and place.lsn is None:
            raise NotComparableError("its snapshot was taken in several attempts, and nothing was merged since")
        try:
            check_mode(lake.schema, self.modes.of(table.id), table.id)
        except TableError as error:
            raise NotComparableError(error.message) from None
        number = lake.txn(schema_version_app(self.scope, table.id)) or 0
        self._check_schema_version(table, history, number)
        typer = self.plan.typer(table)
        _check_columns(table.id, typer, lake.schema)
        key = table.row_key
        # The names of objects that the lake has are those of when a row was written.
        named = {column.name for column in table.columns if key and column.type.shows_names}
        captured = pa.schema([field for field in typer.read_schema if field.name not in named])
        compared = Compared.of(captured, lake.schema, key)
        version = LakeVersion(place, number)
        if taken is not None:
            version = LakeVersion(place, number, taken.visible, int(taken.lsn))
        left_out = _left_out(table, compared, lake.schema)
        return Target(table, typer, lake, version, compared, left_out, open_own(self.paths.changelog(table.id)))

    def _taken(self, table: TableId, token: int) -> TakenSnapshot | None:
        return SnapshotLog(self.paths.snapshots, epoch_of(self.scope)).read().get((table, token))

    def _check_schema_version(self, table: TableSchema, history: TableHistory | None, number: int) -> None:
        if history is None:
            return
        if history.reread is not None and number <= history.reread[0]:
            raise NotComparableError(f"it is to be read again: {history.reread[1]}")
        schema_version = history.versions.get(number)
        if schema_version is not None and not (
            same_layout(schema_version.table, table) and same_columns(schema_version.table, table)
        ):
            raise NotComparableError("it was altered, and the lake table does not have its present columns yet")


def _check_columns(table: TableId, typer: RowTyper, lake: pa.Schema) -> None:
    """Raise LakeError for captured columns that the lake table should have, but lacks."""
    lake_names = {name.lower() for name in lake.names} | {name.lower() for name in OWN_NAMES}
    lacks = [name for name in typer.read_schema.names if name.lower() not in lake_names]
    if lacks:
        raise LakeError(
            f"The lake table of {table} lacks columns that are captured: {', '.join(lacks)}.",
            f"If the connector file was changed, wal2lake run adds them; else run wal2lake snapshot with {table}.",
        )


def _left_out(table: TableSchema, compared: Compared, lake: pa.Schema) -> tuple[str, ...]:
    """Return the columns of either side that are not compared, by their names in the source or else in the lake."""
    names = {name.lower() for name in compared.names}
    own = [column.name for column in table.columns if column.name.lower() not in names]
    known = names | {name.lower() for name in own}
    only = [field.name for field in lake if field.name not in OWN_NAMES and field.name.lower() not in known]
    return (*own, *(name for name in only if name != RESCUED))

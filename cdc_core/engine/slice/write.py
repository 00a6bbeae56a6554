"""Writes a slice into its lake table: with the engine that fits its size, in one Delta commit with the LSN reached.

Arrow rewrites the files that contain changed rows, in the task; where they are large it marks the rows in deletion
vectors and appends their new states (``lake/apply/ways``). For a table with Delta features that only Spark writes the
reduced slice is staged and merged by Spark's MERGE (docs/decisions/0004 and 0017). So it is for a table that must not
have deletion vectors, where its files are larger than ``wal2lake.merge.rewrite.max.bytes``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.engine.slice.order import Applied, SliceOrder, Staged
from cdc_core.errors import CommitConflictError, LakeError, TransientError
from cdc_core.lake.apply.changes import Changes, apply, bytes_to_scan, prepare, prepare_placed
from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.apply.staging import remove_staged, staged, staged_files
from cdc_core.lake.apply.strategy import MergeStrategy
from cdc_core.lake.apply.ways import Ways, chosen
from cdc_core.lake.delete_columns import check_mode, mode_of
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import plain_schema
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.opened import keep, opened
from cdc_core.lake.delta.row_count import held_rows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.delta.working_copy import WorkingCopy
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.index.key_positions import positions_in
from cdc_core.lake.options import LakeOptions, MergeEngine
from cdc_core.lake.positions import check_epoch, epoch_app, landings_app, merge_app, shape_app
from cdc_core.lake.reduce.multiset import arrivals
from cdc_core.lake.rows.row_keys import KeyColumns, merge_key
from cdc_core.lake.rows.run_files import Owner, check_parquet, write_parquet
from cdc_core.lake.rows.survey import invisible
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.features import EvolutionMethod, FeaturePolicy, announce, announce_vectors, writer_of
from cdc_core.lake.schema.project import Step, evolve
from cdc_core.lake.schema.shape import ensure_table, lake_properties, lake_schema, merge_schemas
from cdc_core.schema.table import TableId
from cdc_core.spark.errors import received

_SPARK_FILES = 48


class TooLargeError(Exception):
    """The slice is too large for a task and must be merged by Spark's MERGE."""

    def __init__(self, changes: Changes) -> None:
        super().__init__()
        self.changes = changes


class ForDriverError(Exception):
    """The lake table's shape must be changed by Spark, which only the driver can call (``evolve_with_spark``)."""


@dataclass(frozen=True, slots=True)
class LakeWriter:
    """Writes slices into lake tables; picklable. ``staging`` is a folder that the driver can read, too.

    ``index``: a folder of this machine with indexes of keys; empty to read the keys instead.
    """

    engine: MergeEngine
    rewrite_max_bytes: int
    history_minutes: int
    staging: str
    features: FeaturePolicy = field(default_factory=FeaturePolicy)
    modes: DeleteModes = field(default_factory=DeleteModes)
    owner: Owner = field(default_factory=Owner)
    part_max_bytes: int = 64 << 20
    index: str = ""
    index_max_bytes: int = 1 << 30

    @classmethod
    def of(cls, options: LakeOptions, staging: Path, owner: Owner, index: Path) -> LakeWriter:
        """Create the writer from the options; ``owner`` is the run that ``staging`` belongs to.

        ``index``: the folder for indexes of keys, on each machine that merges.
        """
        return cls(
            options.merge_engine,
            options.merge_rewrite_max_bytes,
            options.lake_history_minutes,
            str(staging),
            FeaturePolicy.of(options),
            options.delete_modes,
            owner,
            options.merge_part_max_bytes,
            str(index),
            options.merge_index_max_bytes,
        )

    def prepare(self, run: str, path: str, order: SliceOrder, plan: TypingPlan, scope: str) -> DeltaTable:
        """Return the lake table in the order's shape; creates it if it does not exist.

        Raises TableError if it cannot have the shape, ForDriverError if Spark has to change its shape.
        """
        properties, app = lake_properties(self.history_minutes), shape_app(scope, order.table.id)
        found, mode = opened(run, path), self.modes.of(order.table.id)
        if found is not None:
            check_mode(found.schema, mode, order.table.id)
        if found is not None and order.steps:
            lake = found
            on_conflict(lambda: self._evolve(lake, order, app), lake)
        schema = lake_schema(plan.typer(order.table).row_type, mode)
        if found is not None and not writer_of(found).arrow_adds and _lacks(found, schema, order, app):
            raise ForDriverError()
        made = keep(run, ensure_table(path, schema, order.table.id, properties, found))
        if order.shape and made.txn(app) is None:
            # An empty table begins in this epoch; one with rows has got its epoch with its snapshot.
            begins = epoch_of(scope) and not made.files
            own = {epoch_app(order.table.id): epoch_of(scope)} if begins else {}
            on_conflict(lambda: made.commit(txns={app: order.shape, **own}), made)
        return made

    def write(self, lake: DeltaTable, order: SliceOrder, rows: pa.Table, scope: str) -> Applied | None:
        """Merge change rows into the table in one commit; returns None if they change nothing.

        Raises TooLargeError if the slice must be merged by Spark, CommitConflictError if another commit was made first,
        TableError if the changed rows cannot be identified.
        """
        return self._written(lake, order, prepare(rows, order.table, lake.schema, order.visible), scope)

    def write_placed(self, lake: DeltaTable, order: SliceOrder, rows: pa.Table, scope: str) -> Applied | None:
        """As ``write``, for late change rows of a history table, which become versions between the existing ones."""
        return self._written(lake, order, prepare_placed(rows, order.table, lake), scope)

    def _written(self, lake: DeltaTable, order: SliceOrder, changes: Changes, scope: str) -> Applied | None:
        rewrite = self._effect(lake, order, changes)
        failpoints.hit(failpoints.DURING_MERGE)
        files = self._files(lake, order, rewrite)
        version = _commit(lake, order, scope, files, rewrite.removed, marked=rewrite.marked)
        return Applied(version, changes.events, rewrite.inserted, rewrite.updated, rewrite.deleted)

    def land(self, lake: DeltaTable, order: SliceOrder, changes: Changes, scope: str) -> Applied:
        """Write rows of an incremental snapshot to the table, which is merged up to the order's LSN.

        Raises TooLargeError if they must be merged by Spark, CommitConflictError if another commit was made first.
        """
        rewrite = self._effect(lake, order, changes)
        files = self._files(lake, order, rewrite)
        failpoints.hit(failpoints.DURING_LANDING)
        app = landings_app(scope, order.table.id)
        number = {app: (lake.txn(app) or 0) + 1}
        version = _commit(lake, order, scope, files, rewrite.removed, number, marked=rewrite.marked)
        return Applied(version, changes.events, rewrite.inserted, rewrite.updated, rewrite.deleted)

    def takes_files(self, lake: DeltaTable) -> bool:
        """Whether files with the rows resulting from inserts can simply be added to the table."""
        return writer_of(lake).arrow_adds and mode_of(lake.schema.names) is not DeleteMode.SOFT

    def write_arrivals(self, lake: DeltaTable, rows: pa.Table) -> DataFile:
        """Write the rows resulting from inserts to a new file; ``add_files`` commits it."""
        return lake.write(arrivals(rows, lake.schema))

    def add_files(self, lake: DeltaTable, order: SliceOrder, scope: str) -> Applied:
        """Commit the files of an insert-only slice. Raises CommitConflictError."""
        failpoints.hit(failpoints.DURING_MERGE)
        version = _commit(lake, order, scope, order.arrived, ())
        events = sum(file.rows for file in order.arrived)
        return Applied(version, events, events, 0, 0)

    def commit_files(
        self, lake: DeltaTable, order: SliceOrder, scope: str, files: Sequence[DataFile], replaces: bool
    ) -> Applied:
        """Commit files written before; ``replaces``: they are the table's entire content.

        Raises CommitConflictError.
        """
        gone = held_rows(lake) if replaces else 0
        version = _commit(lake, order, scope, files, (), replace=replaces)
        came = sum(file.rows for file in files)
        return Applied(version, came, came, 0, gone)

    def rewrite(self, lake: DeltaTable, order: SliceOrder, copy: WorkingCopy, changes: Changes) -> None:
        """Apply a part of a slice to a working copy of the table."""
        made = apply(copy, changes, ways=self._ways(lake, order))
        files = self._files(lake, order, made)
        copy.replace(made.removed, files)
        copy.mark(made.marked)
        copy.inserted += made.inserted
        copy.updated += made.updated
        copy.deleted += made.deleted

    def commit_copy(self, lake: DeltaTable, order: SliceOrder, scope: str, copy: WorkingCopy, events: int) -> Applied:
        """Commit a working copy. Raises CommitConflictError if another commit was made first."""
        if copy.marked:
            _allow_marks(lake, order.table.id)
        version = _commit(lake, order, scope, copy.added, copy.removed, marked=copy.marked)
        return Applied(version, events, copy.inserted, copy.updated, copy.deleted)

    def may_stage(self, lake: DeltaTable, order: SliceOrder) -> bool:
        """Whether Spark may merge changes of the table, where they are too many for a task."""
        may = order.engine is MergeEngine.SPARK or (
            order.engine is MergeEngine.AUTO and not self.features.marks_rows(lake)
        )
        return (may and writer_of(lake).spark_rewrites) or self.must_stage(lake)

    def must_stage(self, lake: DeltaTable) -> bool:
        """Whether only Spark can rewrite the table."""
        return not writer_of(lake).arrow_rewrites

    def stage(self, table: TableId, changes: Changes, to_lsn: int) -> Staged:
        """Write the prepared slice to the staging folder for Spark."""
        rows, facts = staged(changes)
        path = f"{self.staging}/{uuid.uuid4()}.staged.parquet"
        write_parquet(rows, path, self.owner, str(table))
        return Staged(path, to_lsn, changes.events, facts)

    def merge_with_spark(self, spark: Any, path: str, scope: str, order: SliceOrder, waiting: Staged) -> Applied:
        """Merge a staged slice with Spark's MERGE. Raises TransientError if another writer's commit conflicts."""
        return self._by_spark(spark, path, scope, order, waiting, (merge_app(scope, order.table.id, order.token), None))

    def land_with_spark(self, spark: Any, path: str, scope: str, order: SliceOrder, waiting: Staged) -> Applied:
        """As ``merge_with_spark``, for staged rows of an incremental snapshot, which do not change the merged LSN."""
        app = landings_app(scope, order.table.id)
        number = (_existing(path).txn(app) or 0) + 1
        return self._by_spark(spark, path, scope, order, waiting, (app, number))

    def _by_spark(
        self, spark: Any, path: str, scope: str, order: SliceOrder, waiting: Staged, txn: tuple[str, int | None]
    ) -> Applied:
        # Spark's Python modules are not needed, nor imported, if every slice fits a task.
        from cdc_core.lake.spark.expressions import Commit, Counts
        from cdc_core.lake.spark.merge import apply_staged
        from cdc_core.lake.spark.optimize import compact

        for file in staged_files(waiting.path, waiting.facts):
            check_parquet(file, self.owner, str(order.table.id))
        app, version = txn[0], waiting.to_lsn if txn[1] is None else txn[1]
        metadata = {"slot": scope, "lsn": str(waiting.to_lsn), "snapshot": str(order.token)}
        commit = Commit(path, app, version, json.dumps(metadata))

        def merge() -> Counts:
            existing = _existing(path)
            check_epoch(existing, scope, order.table.id)
            with received(f"merging changes of {order.table.id}"):
                return apply_staged(spark, waiting.path, waiting.facts, commit, self.features.marks_rows(existing))

        # Compaction (OPTIMIZE) conflicts too. It replaces files and changes no row, so the result is the same.
        counts = on_conflict(merge)
        remove_staged(waiting.path)
        lake = DeltaTable.open(path)
        if lake is None or lake.txn(app) != version:
            raise TransientError(
                f"Spark merged changes of {order.table.id}, but its lake table does not contain them.",
                "The next round merges them again; check for other writers of this lake.",
            )
        if len(lake.files) > _SPARK_FILES:
            # If another compaction conflicts, there are few files, or they are counted again after the next merge.
            with suppress(TransientError), received(f"compacting files of {order.table.id}"):
                compact(spark, path)
        return Applied(lake.version, waiting.events, counts.inserted, counts.updated, counts.deleted)

    def evolve_with_spark(self, spark: Any, path: str, scope: str, order: SliceOrder, plan: TypingPlan) -> None:
        """Change the shape after ForDriverError of ``prepare``. Raises TransientError on another writer's conflict."""
        from cdc_core.lake.spark.commit import cluster
        from cdc_core.lake.spark.evolve import adopt_by_spark, evolve_by_spark

        lake, app = _existing(path), shape_app(scope, order.table.id)
        steps = _not_taken(lake, order, app)
        with received(f"changing the lake table of {order.table.id}"):
            if steps:
                evolution, told = self.features.evolution(lake, steps), {"shape": str(order.shape)}
                enabled = evolve_by_spark(spark, lake, steps, evolution, app, told, Path(self.staging))
                announce(str(order.table.id), enabled)
                failpoints.hit(failpoints.AFTER_EVOLUTION)
                lake.refresh()
            schema = lake_schema(plan.typer(order.table).row_type, self.modes.of(order.table.id))
            if _lacks(lake, schema, order, app):
                grown = merge_schemas(lake.schema, plain_schema(schema), order.table.id)
                txns = {app: order.shape} if order.shape else {}
                announce(str(order.table.id), adopt_by_spark(spark, lake, grown, txns, {"slot": scope}))
            lake.refresh()
            cluster(spark, path, self.features.cluster_by(lake, order.table))

    def enable_with_spark(self, spark: Any, path: str, order: SliceOrder) -> None:
        """Enable the features that the table is to have from the start."""
        from cdc_core.lake.spark.commit import enable_missing

        lake = _existing(path)
        with received(f"setting Delta features of {order.table.id}"):
            enable_missing(spark, lake, self.features, order.table)

    def _evolve(self, lake: DeltaTable, order: SliceOrder, app: str) -> None:
        """Apply the steps that have not been applied to the table yet."""
        steps = _not_taken(lake, order, app)
        if steps:
            if self.features.evolution(lake, steps).method is not EvolutionMethod.ARROW:
                raise ForDriverError()
            failpoints.hit(failpoints.DURING_EVOLUTION)
            evolve(lake, steps, app, {"shape": str(order.shape)})
            failpoints.hit(failpoints.AFTER_EVOLUTION)

    def _effect(self, lake: DeltaTable, order: SliceOrder, changes: Changes) -> Rewrite:
        """Return the slice's effect on the table's files. Raises TooLargeError if Spark must merge the slice."""
        if self._is_for_spark(lake, order, changes):
            raise TooLargeError(changes)
        found = apply(lake, changes, ways=self._ways(lake, order))
        if found.marked:
            _allow_marks(lake, order.table.id)
        return found

    def _ways(self, lake: DeltaTable, order: SliceOrder) -> Ways:
        """Return how rows may leave their files, and by what they are found."""
        positions = positions_in(self.index, self.index_max_bytes) if self.index else None
        return chosen(order.engine, self.rewrite_max_bytes, self.features.marks_rows(lake), positions)

    def _files(self, lake: DeltaTable, order: SliceOrder, effect: Rewrite) -> list[DataFile]:
        """Write an effect's rows to files; where keys are found by an index, they get theirs."""
        files, key = [], merge_key(order.table)
        for rows in effect.rows:
            files.append(lake.write(rows))
            if effect.marked and self.index and key:
                columns = KeyColumns.of(key, lake.schema)
                positions_in(self.index, self.index_max_bytes).add(lake, files[-1], rows.select(columns.read), columns)
        return files

    def _is_for_spark(self, lake: DeltaTable, order: SliceOrder, changes: Changes) -> bool:
        writer = writer_of(lake)
        if changes.strategy is MergeStrategy.APPEND:
            return not writer.arrow_adds
        if not (writer.arrow_rewrites and writer.spark_rewrites):
            return writer.spark_rewrites
        if order.engine is MergeEngine.SPARK:
            return True
        if self.features.marks_rows(lake):
            return False
        return order.engine is MergeEngine.AUTO and bytes_to_scan(lake, changes) > self.rewrite_max_bytes


def unseen(rows: pa.Table, visible: str | None) -> pa.Table:
    """Return the rows that the snapshot does not show; all rows if there is no overlap."""
    return rows if visible is None else invisible(rows, visible)


def _existing(path: str) -> DeltaTable:
    found = DeltaTable.open(path)
    if found is None:
        raise LakeError(f"The Delta table {path} no longer exists.", "Take a new snapshot of the table.")
    return found


def _not_taken(lake: DeltaTable, order: SliceOrder, app: str) -> list[Step]:
    taken = lake.txn(app) or 0
    return [step for step in order.steps if step.number > taken]


def _lacks(lake: DeltaTable, schema: pa.Schema, order: SliceOrder, app: str) -> bool:
    """Whether the order's shape, or columns of a schema, are missing. Raises TableError if they cannot be added."""
    if order.shape and lake.txn(app) is None:
        return True
    wanted = plain_schema(schema)
    return not wanted.equals(lake.schema) and not merge_schemas(lake.schema, wanted, order.table.id).equals(lake.schema)


def _commit(
    lake: DeltaTable,
    order: SliceOrder,
    scope: str,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    more: Mapping[str, int] | None = None,
    replace: bool = False,
    marked: Iterable[MarkedRows] = (),
) -> int:
    assert order.to_lsn is not None
    check_epoch(lake, scope, order.table.id)
    txns = {merge_app(scope, order.table.id, order.token): order.to_lsn, **(more or {})}
    metadata = {"slot": scope, "lsn": order.to_lsn, "snapshot": order.token}
    return lake.commit(added, removed, marked=marked, txns=txns, metadata=metadata, replace=replace)


def _allow_marks(lake: DeltaTable, table: TableId) -> None:
    """Enable deletion vectors before the first commit with marks.

    Raises CommitConflictError if another commit was made first or followed: what was decided may not hold any more.
    """
    before = lake.version
    if lake.enable_vectors():
        announce_vectors(str(table))
        if lake.version != before + 1:
            raise CommitConflictError()

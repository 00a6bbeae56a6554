"""How a slice gets into its lake table: the engine that fits its size, and one Delta commit with the LSN reached.

Arrow rewrites the files that hold changed rows, in the task. Where the files that may hold one are larger than
``wal2lake.merge.rewrite.max.bytes``, or the table has Delta features that only Spark writes, the reduced slice is
staged and Spark's MERGE takes it from there (docs/decisions/0004).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_core import failpoints
from cdc_core.engine.slice_order import Applied, SliceOrder, Staged
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.errors import TransientError
from cdc_core.sink.delta.append import on_conflict
from cdc_core.sink.delta.apply import apply, bytes_to_scan
from cdc_core.sink.delta.changes import Changes, Road, prepare
from cdc_core.sink.delta.multiset import arrivals
from cdc_core.sink.delta.opened import keep, opened
from cdc_core.sink.delta.positions import merge_app, shape_app
from cdc_core.sink.delta.project import evolve
from cdc_core.sink.delta.shape import ensure_table, lake_properties, lake_schema
from cdc_core.sink.delta.staging import staged
from cdc_core.sink.delta.survey import invisible
from cdc_core.sink.delta.table import DataFile, DeltaTable
from cdc_core.sink.options import MergeEngine, SinkOptions
from cdc_core.spark.errors import received

# What delta-rs can commit to by naming files; a deletion vector would be forgotten, a mapped column not found.
_WRITABLE = frozenset({"appendOnly", "invariants", "timestampNtz", "checkConstraints", "v2Checkpoint"})

_SPARK_FILES = 48
# Characters of column names that Delta on Spark takes with column mapping alone, which shuts other readers out.
_SPARK_REFUSES = frozenset(" ,;{}()\n\t=")


class TooLargeError(Exception):
    """The slice is not for a task: Spark's MERGE takes it."""

    def __init__(self, changes: Changes) -> None:
        super().__init__()
        self.changes = changes


@dataclass(frozen=True, slots=True)
class LakeWriter:
    """Writes slices into lake tables; picklable. ``staging`` is a folder that the driver reads too."""

    engine: MergeEngine
    rewrite_max_bytes: int
    history_minutes: int
    staging: str

    @classmethod
    def of(cls, options: SinkOptions, staging: Path) -> LakeWriter:
        """As the options say."""
        return cls(options.merge_engine, options.merge_rewrite_max_bytes, options.lake_history_minutes, str(staging))

    def prepare(self, run: str, path: str, order: SliceOrder, plan: TypingPlan, slot: str) -> DeltaTable:
        """The lake table in the order's shape, made where it is missing. Raises TableError where it cannot hold it."""
        properties, app = lake_properties(self.history_minutes), shape_app(slot, order.table.id)
        found = opened(run, path)
        if found is not None and order.steps:
            lake = found
            on_conflict(lambda: self._evolve(lake, order, app), lake)
        schema = lake_schema(plan.typer(order.table).row_type)
        made = keep(run, ensure_table(path, schema, order.table.id, properties, found))
        if order.shape and made.txn(app) is None:
            on_conflict(lambda: made.commit(txns={app: order.shape}), made)
        return made

    def write(self, lake: DeltaTable, order: SliceOrder, rows: pa.Table, slot: str) -> Applied | None:
        """Bring change rows into the table in one commit; None where they change nothing.

        Raises TooLargeError where the slice is for Spark, CommitConflictError where another commit got in first,
        TableError where the source does not say which rows changed.
        """
        changes = prepare(rows, order.table, lake.schema, order.visible)
        if changes.road is not Road.APPEND and self._is_for_spark(lake, order, changes):
            raise TooLargeError(changes)
        rewrite = apply(lake, changes)
        failpoints.hit(failpoints.DURING_MERGE)
        files = [lake.write(part) for part in rewrite.rows]
        version = _commit(lake, order, slot, files, rewrite.removed)
        return Applied(version, changes.events, rewrite.inserted, rewrite.updated, rewrite.deleted)

    def write_arrivals(self, lake: DeltaTable, rows: pa.Table) -> DataFile:
        """Write the rows that inserts leave into a new file; ``add_files`` commits it."""
        return lake.write(arrivals(rows, lake.schema))

    def add_files(self, lake: DeltaTable, order: SliceOrder, slot: str) -> Applied:
        """Commit the files of an insert-only slice. Raises CommitConflictError."""
        failpoints.hit(failpoints.DURING_MERGE)
        version = _commit(lake, order, slot, order.arrived, ())
        events = sum(file.rows for file in order.arrived)
        return Applied(version, events, events, 0, 0)

    def stage(self, changes: Changes, to_lsn: int) -> Staged:
        """Write the prepared slice where Spark finds it."""
        rows, facts = staged(changes)
        path = f"{self.staging}/{uuid.uuid4()}.staged.parquet"
        pq.write_table(rows, path, compression="zstd", store_schema=False)
        return Staged(path, to_lsn, changes.events, facts)

    def merge_with_spark(self, spark: Any, path: str, slot: str, order: SliceOrder, waiting: Staged) -> Applied:
        """Spark's MERGE of a staged slice. Raises TransientError where another writer was in the way."""
        # Spark's Python side is not needed, nor loaded, where every slice fits a task.
        from cdc_core.sink.delta.spark_merge import Commit, apply_staged, compact

        app = merge_app(slot, order.table.id, order.token)
        metadata = {"slot": slot, "lsn": str(waiting.to_lsn), "snapshot": str(order.token)}
        with received(f"merging changes of {order.table.id}"):
            counts = apply_staged(
                spark, waiting.path, waiting.facts, Commit(path, app, waiting.to_lsn, json.dumps(metadata))
            )
        Path(waiting.path).unlink(missing_ok=True)
        lake = DeltaTable.open(path)
        if lake is None or lake.txn(app) != waiting.to_lsn:
            raise TransientError(
                f"Spark merged changes of {order.table.id}, and its lake table does not show them.",
                "The next round merges them again; see who else writes to this lake.",
            )
        if len(lake.files) > _SPARK_FILES:
            with received(f"putting files of {order.table.id} together"):
                compact(spark, path)
        return Applied(lake.version, waiting.events, counts.inserted, counts.updated, counts.deleted)

    @staticmethod
    def _evolve(lake: DeltaTable, order: SliceOrder, app: str) -> None:
        """Take the steps that the table has not taken yet."""
        taken = lake.txn(app) or 0
        steps = [step for step in order.steps if step.number > taken]
        if steps:
            failpoints.hit(failpoints.DURING_EVOLUTION)
            evolve(lake, steps, app, {"shape": str(order.shape)})
            failpoints.hit(failpoints.AFTER_EVOLUTION)

    def _is_for_spark(self, lake: DeltaTable, order: SliceOrder, changes: Changes) -> bool:
        if not lake.features <= _WRITABLE:
            return True
        if any(_SPARK_REFUSES & set(name) for name in lake.schema.names):
            return False
        if order.engine is MergeEngine.SPARK:
            return True
        return order.engine is MergeEngine.AUTO and bytes_to_scan(lake, changes) > self.rewrite_max_bytes


def unseen(rows: pa.Table, visible: str | None) -> pa.Table:
    """The rows that the snapshot does not show; all of them where there is no overlap."""
    return rows if visible is None else invisible(rows, visible)


def _commit(
    lake: DeltaTable, order: SliceOrder, slot: str, added: Iterable[DataFile], removed: Iterable[DataFile]
) -> int:
    assert order.to_lsn is not None
    txns = {merge_app(slot, order.table.id, order.token): order.to_lsn}
    return lake.commit(added, removed, txns=txns, metadata={"slot": slot, "lsn": order.to_lsn, "snapshot": order.token})

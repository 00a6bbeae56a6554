"""One table's changelog and lake on disk, brought forward by the engine's own task."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.opened import opened
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import ChangelogPosition, LakePosition, changelog_position, lake_position
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.schema.lake_schema import changelog_properties, ensure_table
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.lake_tables import LakeTables
from cdc_core.lake.slice.order import MergeOrder, Replay, SliceOrder, SnapshotInForce
from cdc_core.lake.slice.outcome import SliceOutcome
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.lake.slice.several_tasks import SeveralTasks
from cdc_core.lake.slice.shares import JoinedShares
from cdc_core.lake.slice.task import SliceTask
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.lake.stores.changelog import append_changes
from cdc_core.lake.write.replace import SnapshotCommit, commit_snapshot, prepare, write_rows
from cdc_core.quality.options import QualityOptions
from cdc_core.quality.rule_files import RuleFiles
from cdc_core.schema.table import TableSchema
from cdc_core.selection.options import SelectionOptions
from tests.support.spark import AT, change_schema, lake_rows, lake_schema

SLOT = "slot"
SHARES = 3
_MAX_BYTES = 64 << 20


class FixedPlan:
    """A typing plan of which nothing but the row type is asked, and whether operations are skipped."""

    selection = SelectionOptions()

    def __init__(self, row: pa.StructType) -> None:
        self.row_type = row
        self.plans: tuple[Any, ...] = ()

    def typer(self, table: TableSchema) -> FixedPlan:
        return self


def quarantined(outcome: SliceOutcome) -> QuarantineReport:
    """What became of changes in quarantine; zeros if the slice did not concern them."""
    return outcome.done.quarantined or QuarantineReport()


class InProcess(SliceTask):
    """The engine's task, which also does the work of other tasks: divided slices are merged in this process."""

    def __call__(self, item: SliceOrder | JoinedShares) -> SliceOutcome:
        outcome = SliceTask.__call__(self, item)
        if isinstance(item, JoinedShares):
            return outcome
        return SeveralTasks(self, _in_turn, SHARES).merged([item], [outcome])[0]


def _in_turn(items: Sequence[Any], work: Any, doing: str) -> list[Any]:
    """Run the work for each item as Spark does, with pickled items and results, but one after another."""
    return [pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(item))))) for item in items]


class OneTable:
    """Two sides of one table. Another object over the same folder is another writer, with its own open tables."""

    def __init__(self, folder: Path, table: TableSchema, row: pa.StructType) -> None:
        self.folder, self.table, self.row = folder, table, row
        self.paths = LakePaths(str(folder), "t")
        self.lake, self.changelog = self.paths.lake(table.id), self.paths.changelog(table.id)
        self.run = uuid.uuid4().hex
        self.tables = LakeTables(1)
        self.writer = LakeWriter(_MAX_BYTES, 1, str(folder))
        self.quality = QualityOptions(quality_enabled=False)
        self.files = RuleFiles()

    def mark_rows(self) -> None:
        """From now on rows are marked, however small the files are."""
        self.writer = replace(self.writer, rewrite_max_bytes=0)

    @property
    def task(self) -> SliceTask:
        """The engine's task over this table; rules are off unless ``quality`` says otherwise."""
        plan: Any = FixedPlan(self.row)
        checks = TableChecks(self.quality, plan, lambda table: table, self.files)
        return InProcess(self.run, SLOT, self.paths, plan, checks, self.tables, self.writer)

    def open_changelog(self) -> DeltaTable:
        """The changelog, made or grown to this row."""
        return ensure_table(
            self.changelog,
            change_schema(self.row),
            self.table.id,
            changelog_properties(1),
            DeltaTable.open(self.changelog),
        )

    def changes(self, rows: Iterable[dict[str, Any]]) -> pa.Table:
        """Change rows as Arrow has them."""
        return pa.Table.from_pylist(list(rows), schema=change_schema(self.row))

    def append(self, rows: Sequence[dict[str, Any]], whole: int | None, cut: tuple[int, int] | None = None) -> int:
        """Append change rows in stream order; how many were new."""
        changelog = self.open_changelog()
        made = conform(self.changes(rows), changelog.schema)
        return append_changes(changelog, made, SLOT, self.table.id, Reached(whole, cut))

    def snapshot(
        self, token: int, rows: Iterable[dict[str, Any]], lsn: int = 0, schema_version: int = 0
    ) -> SnapshotCommit:
        """Make rows the lake's content, at the position and in the schema version given."""
        at = {"__commit_lsn": lsn, "__tx_index": -1, "__commit_ts": AT}
        schema = lake_schema(self.row)
        made = pa.Table.from_pylist([{**at, **row} for row in rows], schema=schema)
        lake = prepare(self.lake, schema, self.table.id, 1)
        files = write_rows(lake, made.to_batches(), schema)
        return commit_snapshot(lake, files, schema, SLOT, self.table.id, token=token, schema_version=schema_version)

    def order(self, to: int, token: int = 0, visible: str | None = None) -> SliceOrder:
        """A merge of what waits in the changelog."""
        snapshot = SnapshotInForce(token, visible=visible)
        return SliceOrder(TargetSchema(self.table), snapshot, merge=MergeOrder(to, True))

    def merge(
        self,
        to: int,
        token: int = 0,
        visible: str | None = None,
        replay: Replay | None = None,
    ) -> SliceOutcome:
        """Bring the lake to ``to``; raises the outcome's error."""
        waiting = DeltaTable.open(self.paths.quarantine(self.table.id)) is not None
        order = self.order(to, token, visible)
        assert order.merge is not None
        order = replace(order, merge=replace(order.merge, waiting=waiting, replay=replay))
        outcome = self.task(order)
        if outcome.error is not None:
            raise outcome.error
        return outcome

    @property
    def lake_position(self) -> LakePosition:
        """By a look from outside."""
        return lake_position(DeltaTable.open(self.lake), SLOT, self.table.id)

    @property
    def changelog_position(self) -> ChangelogPosition | None:
        """By a look from outside."""
        return changelog_position(DeltaTable.open(self.changelog), SLOT, self.table.id)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lake's rows."""
        return lake_rows(self.lake)

    def contents(self, *without: str) -> list[str]:
        """The lake's rows as texts, sorted, without some columns."""
        return sorted(repr({name: value for name, value in row.items() if name not in without}) for row in self.rows)

    @property
    def events(self) -> list[tuple[int, int]]:
        """The positions in the changelog, sorted."""
        return sorted((row["__commit_lsn"], row["__tx_index"]) for row in lake_rows(self.changelog))

    def held(self, path: str) -> DeltaTable:
        """The table as this writer has it open."""
        found = opened(self.run, path)
        assert found is not None
        return found

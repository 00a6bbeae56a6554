"""One table of the lake: where it stands, by its own commits, and what is done with it outside of rounds.

Every method reads the newest version of the Delta tables and keeps nothing, so it may be called at any time, by any
thread, while others write. What is returned may be behind by then; whoever writes compares positions again in the
commit itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from cdc_core.lake.checks.lake_table import judge_lake_table
from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.delete_columns import check_mode
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.foreign import foreign_commit
from cdc_core.lake.delta.readable import open_complete, open_own
from cdc_core.lake.delta.row_count import row_count
from cdc_core.lake.delta.shared_log import SharedLog
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.maintenance.retention import expire_changes
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import (
    ChangelogPosition,
    LakePosition,
    changelog_app,
    changelog_position,
    content_epoch,
    has_rows_of_changes,
    is_of_earlier_epoch,
    lake_position,
    schema_version_app,
)
from cdc_core.lake.stores.changelog import commit_time, count_after, last_schema_version, read_changes
from cdc_core.lake.stores.quarantine import first_waiting, waiting_reasons
from cdc_core.lake.stores.snapshot_events import complete_snapshot_events
from cdc_core.lake.stores.stream_log import LastCommit
from cdc_core.lsn import Lsn
from cdc_core.quality import CheckReport
from cdc_core.schema import TableId, TableSchema


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The positions of a table when it was opened, in the epoch of ``scope``.

    ``place`` is the snapshot in force and the merged LSN; ``changelog`` the end of the changelog, None without a row.
    """

    id: TableId
    scope: str
    place: LakePosition
    changelog: ChangelogPosition | None
    _lake: DeltaTable | None
    _changes: DeltaTable | None

    @property
    def exists(self) -> bool:
        """Whether there is a lake table."""
        return self._lake is not None

    @property
    def version(self) -> int | None:
        """The lake table's version in Delta, None if there is none."""
        return None if self._lake is None else self._lake.version

    @property
    def identity(self) -> str | None:
        """The lake table's id in Delta, None if there is none."""
        return None if self._lake is None else self._lake.identity

    @property
    def schema_version(self) -> int | None:
        """The number of the schema version that the lake table has; None if none is stored in it."""
        return None if self._lake is None else self._lake.txn(schema_version_app(self.scope, self.id))

    @property
    def whole(self) -> int | None:
        """The last transaction that is complete in the changelog."""
        return None if self._changes is None else self._changes.txn(changelog_app(self.scope, self.id))

    @property
    def epoch(self) -> int:
        """The epoch of the lake table's rows, 0 without any."""
        return 0 if self._lake is None else content_epoch(self._lake, self.id)

    @property
    def is_former(self) -> bool:
        """Whether the lake table's rows are of an earlier epoch."""
        return self._lake is not None and is_of_earlier_epoch(self._lake, self.scope, self.id)

    @property
    def lacks_changelog(self) -> bool:
        """Whether the lake table has rows of changes, and the changelog that had them no longer exists."""
        return self._changes is None and self._lake is not None and has_rows_of_changes(self._lake)

    def check_mode(self, mode: DeleteMode) -> None:
        """Raise TableError if the lake table was written in another delete mode."""
        if self._lake is not None:
            check_mode(self._lake.schema, mode, self.id)

    def unmerged(self) -> int:
        """Return the number of changes in the changelog after the merged LSN."""
        return 0 if self._changes is None else count_after(EpochRows.of(self._changes, self.scope), self.place.merged)

    def up_to(self) -> datetime | None:
        """Return when the source committed the last change that the lake table has; None if it has no change."""
        if self._changes is None or self.place.lsn is None:
            return None
        return commit_time(EpochRows.of(self._changes, self.scope), self.place.lsn)


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table, its changelog and its quarantine, under ``paths``; ``scope`` is that of its positions."""

    paths: LakePaths
    scope: str
    id: TableId

    @property
    def path(self) -> str:
        """The folder of the lake table."""
        return self.paths.lake(self.id)

    def position(self, *, is_complete: bool = False) -> TablePosition:
        """Return the table's positions. Raises UnreadableError if a log cannot be read.

        With ``is_complete`` also if a folder is of another program, or lacks files.
        """
        opened = open_complete if is_complete else DeltaTable.open
        changes, lake = opened(self.paths.changelog(self.id)), opened(self.path)
        place, end = lake_position(lake, self.scope, self.id), changelog_position(changes, self.scope, self.id)
        return TablePosition(self.id, self.scope, place, end, lake, changes)

    def place(self, *, is_own: bool = False) -> LakePosition:
        """Return the snapshot in force and the merged LSN. Raises UnreadableError.

        With ``is_own`` also if the folder is of another program.
        """
        lake = open_own(self.path) if is_own else DeltaTable.open(self.path)
        return lake_position(lake, self.scope, self.id)

    def changelog_end(self) -> ChangelogPosition | None:
        """Return the end of the changelog, None without a row. Raises UnreadableError."""
        return changelog_position(DeltaTable.open(self.paths.changelog(self.id)), self.scope, self.id)

    def last_schema_version(self) -> int:
        """Return the greatest number of a schema version in the changelog, 0 for none. Raises UnreadableError."""
        changelog = DeltaTable.open(self.paths.changelog(self.id))
        return 0 if changelog is None else last_schema_version(EpochRows.of(changelog, self.scope))

    def last_transaction(self, lsn: Lsn, epoch: int) -> LastCommit | None:
        """Return the transaction in the changelog that was committed at ``lsn``; None if its rows have expired."""
        changelog = DeltaTable.open(self.paths.changelog(self.id))
        rows = None if changelog is None else read_changes(EpochRows(changelog, epoch), lsn - 1, lsn)
        if rows is None or not rows.num_rows:
            return None
        xid, at = rows.column("__xid")[-1].as_py(), rows.column("__commit_ts")[-1].cast("int64").as_py()
        return None if xid is None else LastCommit(lsn, int(xid), int(at))

    def has_quarantine(self) -> bool:
        """Whether there is a quarantine table, which may contain changes that wait. Raises UnreadableError."""
        return DeltaTable.open(self.paths.quarantine(self.id)) is not None

    def quarantined(self, place: LakePosition) -> tuple[int, dict[str, int]]:
        """Return how many changes wait in quarantine at a position, and how many of them have each reason."""
        return waiting_reasons(self.paths.quarantine(self.id), place)

    def schema(self) -> pa.Schema | None:
        """Return the columns of the lake table, None if it does not exist. Raises UnreadableError."""
        lake = DeltaTable.open(self.path)
        return None if lake is None else lake.schema

    def has_rows(self) -> bool:
        """Whether the lake table exists and has a data file. Raises UnreadableError."""
        lake = DeltaTable.open(self.path)
        return lake is not None and bool(lake.files)

    def row_count(self) -> int | None:
        """Return the number of rows that the source has of the lake table, None if the log does not say it."""
        return row_count(self.path)

    def foreign_commit(self, since: int, upto: int, identity: str = "", run: str = "") -> int | None:
        """Return the first version after ``since`` in which another program changed rows; None for none.

        ``run``: what workers of this run have committed to the table of this ``identity`` is not read.
        """
        return foreign_commit(self.path, since, upto, SharedLog.of(self.path, identity, run) if run else None)

    def judge(self, checks: TableChecks, table: TableSchema) -> tuple[int, CheckReport] | None:
        """Have the rules judge all live rows; returns the version and the report, None without a lake table.

        Raises NotJudgedError if a rule cannot be evaluated, UnreadableError for a folder of another program.
        """
        lake = open_own(self.path)
        return None if lake is None else (lake.version, judge_lake_table(checks, table, lake))

    def complete_reads(self, history_minutes: int) -> None:
        """Append the rows of the snapshot in force to the changelog, unless they are in it; may be repeated."""
        changelog = self.paths.changelog(self.id)
        complete_snapshot_events(self.path, changelog, self.scope, self.id, history_minutes)

    def expire(self, upto: int | None, now_us: int, days: int, waiting_at: LakePosition | None = None) -> None:
        """Delete changes older than ``days`` from the changelog, up to the LSN ``upto`` (None: none); may be repeated.

        Changes that wait in quarantine at ``waiting_at`` are kept, with all that follow.
        """
        if upto is not None and waiting_at is not None:
            first = first_waiting(self.paths.quarantine(self.id), waiting_at)
            upto = upto if first is None else min(upto, first - 1)
        expire_changes(self.paths.changelog(self.id), self.scope, self.id, upto, now_us, days)

"""The order for a task that processes one table's slice of a round: metadata and paths, no data.

    SliceOrder   one table in a round: what to append to its changelog, and up to which LSN to merge it
      .schema    the schema version that the lake table is to have
      .snapshot  what the lake table contains before the slice
      .append    rows of a batch: spool files, or changelog files that other tasks wrote; None without any
      .merge     the LSN to be reached in the lake table; None if the rows are appended only
    Merge        what one commit to the lake table merges; derived from an order

An order is created once, in the driver, and is not changed. A task derives from it what single steps need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.rows.shown import Reached, ShownByLake
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.quality import NONE_RECENT, CheckReport, RecentChanges
from cdc_core.schema import TableId, TableSchema

Position = tuple[int, int]
"""A position of the changelog: commit LSN, index in the transaction."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Quarantined changes are checked again, and those that pass are merged.

    Failures of the rules in ``accept``, or of all rules (``accept_all``), are ignored. ``drop``: all quarantined
    changes are discarded instead. ``before_drop``: they stay there, and further ones join them, however many: what is
    merged first, so that nothing but these is discarded.
    """

    accept: tuple[str, ...] = ()
    accept_all: bool = False
    drop: bool = False
    before_drop: bool = False

    @property
    def is_decision(self) -> bool:
        """Whether failures are accepted, or will be discarded, which no limit of failures overrules."""
        return bool(self.accept) or self.accept_all or self.before_drop

    @property
    def checks_again(self) -> bool:
        """Whether changes in quarantine are checked again."""
        return not (self.drop or self.before_drop)


@dataclass(frozen=True, slots=True)
class SnapshotInForce:
    """The snapshot that the lake table's content is from, and the LSN ``merged`` since; None if nothing was merged.

    ``token`` is 0 for a table that never had a snapshot. ``visible`` is the text of its pg_snapshot while the slice may
    overlap it, ``floor`` an LSN up to which it contains every change.
    ``resumed``: it was read in several attempts, of which this text is the first's pg_snapshot, and nothing was merged
    since: its surplus rows are deleted before anything is merged (``lake/reduce/surplus_rows``).
    """

    token: int = 0
    merged: int | None = None
    visible: str | None = None
    floor: int = 0
    resumed: str | None = None

    @property
    def shown(self) -> ShownByLake:
        """What the lake table contains; nothing if the changes before it are needed to find the surplus rows."""
        if self.resumed is not None:
            return ShownByLake()
        return ShownByLake(max(self.merged or 0, self.floor), self.visible)


@dataclass(frozen=True, slots=True)
class SpoolFiles:
    """Rows of a batch in its spool files, in stream order, each with the number of its schema version.

    The append reaches ``reached``; ``position`` is the end of the changelog as known by the driver, None before its
    first row. ``only_inserts``: the rows can simply be added to the lake table if nothing is quarantined.
    """

    files: tuple[tuple[int, str], ...]
    rows: int
    reached: Reached
    position: Position | None = None
    only_inserts: bool = False


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The same rows in changelog files that other tasks wrote; ``arrived`` are the lake files of a slice of inserts.

    ``check`` is the judgement of the rows in ``arrived``.
    """

    written: tuple[DataFile, ...]
    arrived: tuple[DataFile, ...]
    reached: Reached
    position: Position | None = None
    check: CheckReport | None = None


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """The lake table is to contain every change up to ``to_lsn``, the round's LSN.

    ``has_backlog``: the changelog contains unmerged rows of earlier batches. ``waiting``: the quarantine table may
    contain changes that are not in the lake; ``replay`` requests their replay. ``recent`` are the checks before.
    """

    to_lsn: int
    has_backlog: bool = False
    waiting: bool = False
    replay: Replay | None = None
    recent: RecentChanges = NONE_RECENT


@dataclass(frozen=True, slots=True)
class SliceOrder:
    """One table's part of a round (see the drawing above)."""

    schema: TargetSchema
    snapshot: SnapshotInForce = SnapshotInForce()
    append: SpoolFiles | WrittenFiles | None = None
    merge: MergeOrder | None = None

    def merging(
        self, to_lsn: int, *, has_backlog: bool, waiting: bool, recent: RecentChanges = NONE_RECENT
    ) -> SliceOrder:
        """Return the order that merges, too, up to ``to_lsn`` (``MergeOrder``)."""
        return replace(self, merge=MergeOrder(to_lsn, has_backlog, waiting, recent=recent))

    def appending(
        self,
        files: Iterable[tuple[int, str]],
        rows: int,
        reached: tuple[int | None, Position | None],
        position: Position | None,
        *,
        only_inserts: bool,
    ) -> SliceOrder:
        """Return the order that appends spool files, too (``SpoolFiles``); ``reached`` is a ``Reached``'s fields."""
        return replace(self, append=SpoolFiles(tuple(files), rows, Reached(*reached), position, only_inserts))

    @property
    def table(self) -> TableId:
        """The table's name in the source."""
        return self.schema.table.id

    @property
    def files(self) -> tuple[tuple[int, str], ...]:
        """The spool files to be appended, with the numbers of their schema versions."""
        return self.append.files if isinstance(self.append, SpoolFiles) else ()

    @property
    def rows(self) -> int:
        """The number of rows in the spool files."""
        return self.append.rows if isinstance(self.append, SpoolFiles) else 0

    @property
    def to_lsn(self) -> int | None:
        """The LSN up to which it merges; None if it only appends."""
        return None if self.merge is None else self.merge.to_lsn

    @property
    def has_backlog(self) -> bool:
        """Whether it merges rows of earlier batches."""
        return self.merge is not None and self.merge.has_backlog

    def with_replay(self, replay: Replay) -> SliceOrder:
        """Return the order that replays changes in quarantine, too; the same if nothing is merged."""
        if self.merge is None:
            return self
        append = self.append
        if isinstance(append, SpoolFiles):
            append = replace(append, only_inserts=False)
        return replace(self, append=append, merge=replace(self.merge, waiting=True, replay=replay))

    def after_append(self) -> SliceOrder:
        """Return the order that only merges, once this order's rows are in the changelog."""
        if self.append is None or self.merge is None:
            return replace(self, append=None)
        return replace(self, append=None, merge=replace(self.merge, has_backlog=True))


@dataclass(frozen=True, slots=True)
class Merge:
    """What one commit to a lake table merges: changes up to ``to_lsn``, whose rows the key of ``table`` identifies.

    An order leads to one, or to several if the table's key changed in between.
    """

    schema: TargetSchema
    snapshot: SnapshotInForce
    table: TableSchema
    to_lsn: int
    waiting: bool = False
    replay: Replay | None = None
    recent: RecentChanges = NONE_RECENT

    @classmethod
    def of(cls, order: SliceOrder) -> Merge:
        """Return the merge of all that the order merges, under the key in force."""
        merge_order = order.merge
        assert merge_order is not None
        table, snapshot = order.schema.table, order.snapshot
        waiting, replay, recent = merge_order.waiting, merge_order.replay, merge_order.recent
        return cls(order.schema, snapshot, table, merge_order.to_lsn, waiting, replay, recent)

    def up_to(self, lsn: int) -> Merge:
        """Return the merge of the changes up to another LSN."""
        return replace(self, to_lsn=lsn)

    def under_key_of(self, table: TableSchema) -> Merge:
        """Return the merge of changes whose rows another key identifies."""
        return replace(self, table=table)

    def with_quarantine(self) -> Merge:
        """Return the merge that looks for earlier changes in quarantine."""
        return replace(self, waiting=True)

    def without_replay(self) -> Merge:
        """Return the merge that leaves changes in quarantine that wait there."""
        return replace(self, replay=None)

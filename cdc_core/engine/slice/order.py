"""Input and result of a task for one table's slice of a round: metadata and paths, no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_core.engine.reading.shown import Shown
from cdc_core.engine.reports import CheckReport
from cdc_core.errors import CdcError
from cdc_core.lake.apply.staging import StagedFacts
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.options import MergeEngine
from cdc_core.lake.schema.project import Step
from cdc_core.lake.schema.view import View
from cdc_core.lake.stores.changelog import Reached
from cdc_core.schema.table import TableId, TableSchema


@dataclass(frozen=True, slots=True)
class Replay:
    """Quarantined changes are checked again, and those that pass are merged.

    Failures of the rules in ``accept``, or of all rules (``accept_all``), are ignored. ``drop``: all quarantined
    changes are discarded instead.
    """

    accept: tuple[str, ...] = ()
    accept_all: bool = False
    drop: bool = False


@dataclass(frozen=True, slots=True)
class SliceOrder:
    """One table's part of a round.

    ``files`` are the batch's spool files of the table in stream order with the number of the shape under which each was
    written, empty if only a backlog is to be merged; ``written`` are changelog files that other tasks created from them
    already, ``arrived`` the lake files of an insert-only slice. ``to_lsn`` is the round's cut, None if no transaction
    is complete yet and the rows are appended only. ``position`` is the end of the changelog as known by the driver;
    None before its first row.
    ``has_backlog``: the changelog contains unmerged rows of earlier batches. ``token`` and ``merged`` are the snapshot
    in force and the LSN merged since, ``visible`` the text of its pg_snapshot while the slice may overlap it.
    ``resumed``: the snapshot in force was read in several attempts, of which this text is the first's pg_snapshot, and
    nothing was merged since: its surplus rows are deleted first (``lake/reduce/surplus_rows``). ``floor`` is an LSN up
    to which the snapshot in force contains every change. ``shape`` is the shape that the lake table is to have,
    ``steps`` lead to it, ``views`` define how change rows of each shape are read. ``since`` maps columns to the commit
    LSN up to which their constraints may have been different.
    ``waiting``: the quarantine table may contain changes that are not in the lake; ``replay`` requests their replay.
    """

    table: TableSchema
    files: tuple[tuple[int, str], ...] = ()
    rows: int = 0
    reached: Reached | None = None
    to_lsn: int | None = None
    has_backlog: bool = False
    position: tuple[int, int] | None = None
    token: int = 0
    merged: int | None = None
    visible: str | None = None
    resumed: str | None = None
    floor: int = 0
    only_inserts: bool = False
    engine: MergeEngine = MergeEngine.AUTO
    written: tuple[DataFile, ...] = ()
    arrived: tuple[DataFile, ...] = ()
    shape: int = 0
    views: Mapping[int, View] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    since: Mapping[str, int] = field(default_factory=dict)
    waiting: bool = False
    replay: Replay | None = None

    @property
    def shown(self) -> Shown:
        """What the snapshot in force shows; nothing if the changes before it are needed to settle it."""
        if self.resumed is not None:
            return Shown()
        return Shown(max(self.merged or 0, self.floor), self.visible)


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes that a slice made to its lake table. ``events`` is its number of change rows."""

    version: int
    events: int
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Staged:
    """A prepared slice for Spark's MERGE: a Parquet file of it, and the facts about its rows that MERGE needs."""

    path: str
    to_lsn: int
    events: int
    facts: StagedFacts


@dataclass(slots=True)
class SliceOutcome:
    """The result of an order.

    ``appended`` rows are durable even if a later step failed. ``applied`` and ``staged`` are None if the lake needs no
    change (or could not be changed, see ``error``). ``merged`` is the LSN up to which the lake table is merged.
    ``seconds`` and ``cpu_seconds`` are by part: decode, append, check, reduce, apply, compact.
    ``lost``: the changelog cannot be used, and the rows were not stored. ``evolves``: nothing was applied because Spark
    has to change the lake table's shape first. ``lacks_features``: table features are to be enabled after this.
    ``waiting`` is the number of changes in quarantine after it, None if they were not counted; ``replayed`` and
    ``dropped`` changes left the quarantine. ``lake_version`` is the lake table's version at the end, maintenance
    included, ``lake_id`` its id in Delta, ``lake_lsn`` the merged LSN stored in it; all are None if the lake table was
    not opened.
    """

    table: TableId
    appended: int = 0
    merged: int | None = None
    applied: Applied | None = None
    staged: Staged | None = None
    check: CheckReport | None = None
    error: CdcError | None = None
    lost: CdcError | None = None
    evolves: bool = False
    lacks_features: bool = False
    waiting: int | None = None
    replayed: int = 0
    dropped: int = 0
    written: tuple[DataFile, ...] = ()
    arrived: tuple[DataFile, ...] = ()
    changelog_files: int = 0
    lake_files: int = 0
    lake_version: int | None = None
    lake_lsn: int | None = None
    lake_id: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)

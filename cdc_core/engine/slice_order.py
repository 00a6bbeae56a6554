"""Input and result of a task for one table's slice of a round: metadata and paths, no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_core.engine.reports import CheckReport
from cdc_core.engine.shapes import View
from cdc_core.errors import CdcError
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.sink.delta.append import Reached
from cdc_core.sink.delta.project import Step
from cdc_core.sink.delta.staging import StagedFacts
from cdc_core.sink.delta.table import DataFile
from cdc_core.sink.options import MergeEngine


@dataclass(frozen=True, slots=True)
class Replay:
    """Changes in quarantine are judged again, and those that pass go in.

    Failures of the rules in ``accept``, or of every rule, do not count. ``drop``: all that wait are given up instead.
    """

    accept: tuple[str, ...] = ()
    accept_all: bool = False
    drop: bool = False


@dataclass(frozen=True, slots=True)
class SliceOrder:
    """One table's part of a round.

    ``files`` are the batch's spool files of the table in stream order with the number of the shape that each was
    written under, empty where only a backlog is to be merged;
    ``written`` are changelog files that other tasks made of them already, ``arrived`` the lake files of an insert-only
    slice. ``to_lsn`` is the round's cut, None where nothing is whole yet and the rows are appended only.
    ``position`` is where the changelog ends, as the driver knows it; None before its first row.
    ``has_backlog``: the changelog holds unmerged rows of earlier batches. ``token`` and ``merged`` are the snapshot in
    force and the LSN merged since, ``visible`` the text of its pg_snapshot while the slice may overlap it.
    ``resumed``: the snapshot in force was read in several attempts, of which this text is the first's pg_snapshot, and
    nothing was merged since: what it has too many is deleted first (``sink/delta/settle``).
    ``floor`` is an LSN up to which the snapshot in force shows everything. ``shape`` is the one that the lake is to
    stand at, ``steps`` lead there, ``views`` tell how change rows of each shape are read. ``since`` maps columns to the
    commit LSN up to which their constraints may have been others. ``waiting``: the quarantine table may hold changes
    that are not in the lake; ``replay`` says that they are to be tried again.
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


@dataclass(frozen=True, slots=True)
class Applied:
    """What a slice did to its lake table. ``events`` counts its change rows."""

    version: int
    events: int
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Staged:
    """A prepared slice that waits for Spark: a Parquet file of it, and what Spark's side must know of its rows."""

    path: str
    to_lsn: int
    events: int
    facts: StagedFacts


@dataclass(slots=True)
class SliceOutcome:
    """What became of an order.

    ``appended`` rows are durable whatever else failed. ``applied`` and ``staged`` are None where the lake needs nothing
    (or ``error`` tells why it could not be changed). ``merged`` is the LSN that the lake table has reached. ``seconds``
    and ``cpu_seconds`` are by part: decode, append, check, reduce, apply, compact. ``evolves``: nothing was applied,
    for Spark has to bring the lake table to its shape first. ``lacks_features``: some are to come on after this.
    ``waiting`` changes are in quarantine after it, None where nobody looked; ``replayed`` and ``dropped`` were.
    ``lake_version`` is the lake table's version at the end, upkeep included, ``lake_lsn`` the merged LSN that it
    carries; None where it was not come to.
    """

    table: TableId
    appended: int = 0
    merged: int | None = None
    applied: Applied | None = None
    staged: Staged | None = None
    check: CheckReport | None = None
    error: CdcError | None = None
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
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)

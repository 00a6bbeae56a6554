"""What the tasks of a divided slice did, for the one that commits it: values that Spark carries.

    Share, for each task ────────────────▶ ShareResult ─┐
         after a truncate that ends rows:     │     │    │
         EndOrder, for each lake file ────▶ ShareResult  ├─▶ JoinedShares ─▶ one commit
         where rows may not be marked:        │          │
         RewriteOrder, for each lake file ─▶ RewrittenFile

The tasks write files that no commit refers to. So a task may be executed again, or twice at once, and only the results
that were collected count; maintenance removes the files of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from cdc_core.errors import CdcError
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.rows.survey import NO_ROWS, Survey
from cdc_core.lake.slice.absent_rows import NONE_ABSENT, Absence
from cdc_core.lake.slice.divided import DividedSlice
from cdc_core.lake.slice.order import SliceOrder
from cdc_core.lake.slice.outcome import NO_TIME, Timings
from cdc_core.lake.slice.reports import NOTHING_QUARANTINED, QuarantineReport
from cdc_core.lake.stores.quarantine import Settled
from cdc_core.quality import CheckReport
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class Marks:
    """Rows of a lake file that changed: its path and size, and the positions in it (``deletion_vectors.packed``)."""

    path: str
    size: int
    places: bytes


@dataclass(frozen=True, slots=True)
class TruncateEnd:
    """A truncate that ends rows of other keys than the slice's, and the lake files that may have some."""

    at: Truncation
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareResult:
    """What a task did with a share, or with a file of an EndOrder: files that it wrote, and rows that leave theirs.

    ``files`` have lake rows, ``changes`` the change data feed, ``refused`` rows for the quarantine table; ``settled``
    are new states of others in it, ``quarantined`` counts those of the share, and ``waited`` all of the table before.
    ``whole`` summarizes the whole slice, with what waited, if it is divided by keys, else the share; ``events`` is the
    number of the slice's changes in it. ``is_overtaken``: a table is not at the version that was to be read, and
    nothing was done. After an ``error`` only ``check`` is of use.
    """

    table: TableId
    files: tuple[DataFile, ...] = ()
    marks: tuple[Marks, ...] = ()
    changes: tuple[DataFile, ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    absence: Absence = NONE_ABSENT
    check: CheckReport | None = None
    refused: tuple[DataFile, ...] = ()
    settled: tuple[Settled, ...] = ()
    quarantined: QuarantineReport = NOTHING_QUARANTINED
    waited: int = 0
    whole: Survey = NO_ROWS
    events: int = 0
    ending: TruncateEnd | None = None
    is_overtaken: bool = False
    error: CdcError | None = None
    timings: Timings = NO_TIME


@dataclass(frozen=True, slots=True)
class EndOrder:
    """A lake file whose rows a truncate ends, all but those at positions that parts of the slice have changed."""

    slice: DividedSlice
    path: str
    at: Truncation
    changed: tuple[bytes, ...]

    @property
    def table(self) -> TableId:
        """The table's name in the source."""
        return self.slice.table


@dataclass(frozen=True, slots=True)
class RewriteOrder:
    """A lake file that is to be written again without the rows at these positions, some of each part."""

    slice: DividedSlice
    path: str
    places: tuple[bytes, ...]

    @property
    def table(self) -> TableId:
        """The table's name in the source."""
        return self.slice.table


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """The files that take the place of one; none if no row is left."""

    table: TableId
    path: str
    files: tuple[DataFile, ...] = ()
    is_overtaken: bool = False
    error: CdcError | None = None
    timings: Timings = NO_TIME


@dataclass(frozen=True, slots=True)
class JoinedShares:
    """What the tasks of a slice did. ``rewritten``: the files with changed rows were written again.

    ``order`` is the order that the slice follows from, whose rows are in the changelog.
    """

    order: SliceOrder
    slice: DividedSlice
    results: tuple[ShareResult, ...]
    rewritten: tuple[RewrittenFile, ...] = ()

    @property
    def done(self) -> tuple[ShareResult | RewrittenFile, ...]:
        """What each task did."""
        return (*self.results, *self.rewritten)

    @property
    def is_overtaken(self) -> bool:
        """Whether another writer has changed the lake table since the slice was divided."""
        return any(outcome.is_overtaken for outcome in self.done)

    @property
    def error(self) -> CdcError | None:
        """The error of the first task that has one."""
        return next((outcome.error for outcome in self.done if outcome.error is not None), None)

    @property
    def whole(self) -> Survey:
        """The summary of the slice, with what waited in quarantine."""
        if not self.slice.files:
            return self.results[0].whole
        return reduce(Survey.plus, (share.whole for share in self.results))

    @property
    def events(self) -> int:
        """The number of the slice's changes."""
        return sum(share.events for share in self.results[: None if self.slice.files else 1])

    @property
    def quarantined(self) -> QuarantineReport:
        """What became of changes in quarantine."""
        reports = [share.quarantined for share in self.results]
        return QuarantineReport(sum(report.waiting for report in reports), sum(report.replayed for report in reports))

    @property
    def waited(self) -> int:
        """The number of changes in quarantine before."""
        return self.results[0].waited


def ends(of: DividedSlice, results: Sequence[ShareResult]) -> list[EndOrder]:
    """Return the lake files in which a truncate ends rows; none without one."""
    ending = next((share.ending for share in results if share.ending is not None), None)
    if ending is None or any(share.error is not None or share.is_overtaken for share in results):
        return []
    marks, _ = marks_by_file(results)
    return [EndOrder(of, path, ending.at, tuple(marks.get(path, ()))) for path in ending.files]


def rewrites(of: DividedSlice, results: Sequence[ShareResult]) -> list[RewriteOrder]:
    """Return the lake files that are to be written again; none if rows are marked."""
    if any(share.error is not None or share.is_overtaken for share in results):
        return []
    marks, sizes = marks_by_file(results)
    if of.mark_above is not None and sum(sizes.values()) > of.mark_above:
        return []
    return [RewriteOrder(of, path, tuple(places)) for path, places in marks.items()]


def marks_by_file(results: Iterable[ShareResult]) -> tuple[dict[str, list[bytes]], dict[str, int]]:
    """Return the positions of all parts by the paths of their files, and the files' sizes."""
    marks, sizes = dict[str, list[bytes]](), dict[str, int]()
    for file_marks in itertools.chain.from_iterable(result.marks for result in results):
        marks.setdefault(file_marks.path, []).append(file_marks.places)
        sizes[file_marks.path] = file_marks.size
    return marks, sizes

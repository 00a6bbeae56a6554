"""The result of a slice, as values: what was appended, merged and measured, and the lake table after it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cdc_core.clock import now_us
from cdc_core.errors import CdcError, TransientError
from cdc_core.lake.slice.divided import DividedSlice
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.lake.slice.upkeep import UpkeepOrder
from cdc_core.quality import CheckReport
from cdc_core.schema import DeltaFeature, TableId


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes that a slice made to its lake table. ``events`` is its number of change rows.

    Made as soon as they are committed: ``committed_us`` is that time, in microseconds since 1970 by the task's clock.
    """

    version: int
    events: int
    inserted: int
    updated: int
    deleted: int
    committed_us: int = field(default_factory=now_us, compare=False)


@dataclass(frozen=True, slots=True)
class Merged:
    """What one step of a slice, or several, did to the lake table and the quarantine table; None for nothing.

    ``reached``: the lake table has all changes up to this LSN, which is stored in it if one of them changed a row.
    ``divided``: what is left is to be merged by several tasks.
    """

    applied: Applied | None = None
    check: CheckReport | None = None
    quarantined: QuarantineReport | None = None
    reached: int | None = None
    divided: DividedSlice | None = None

    def then(self, later: Merged) -> Merged:
        """Return what this and a later step did together."""
        before, after = self.quarantined or QuarantineReport(), later.quarantined
        if after is not None:
            replayed, dropped = before.replayed + after.replayed, before.dropped + after.dropped
            after = QuarantineReport(after.waiting, replayed, dropped)
        return Merged(
            later.applied or self.applied,
            later.check or self.check,
            after or self.quarantined,
            later.reached or self.reached,
            later.divided,
        )


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """The lake table after a slice: version and id in Delta, and the merged LSN stored in it."""

    version: int
    identity: str
    lsn: int | None


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds and CPU-seconds by part: decode, append, check, reduce, apply, compact."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)

    def plus(self, other: Timings) -> Timings:
        """Return the sums."""
        return Timings(_sums(self.seconds, other.seconds), _sums(self.cpu_seconds, other.cpu_seconds))


NO_TIME = Timings()


class Stopwatch:
    """Measures the parts of one slice, in one process."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._cpu_seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the seconds of the block to a part."""
        wall, cpu = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            self._seconds[part] = self._seconds.get(part, 0.0) + time.monotonic() - wall
            self._cpu_seconds[part] = self._cpu_seconds.get(part, 0.0) + time.thread_time() - cpu

    @property
    def timings(self) -> Timings:
        """What was measured so far."""
        return Timings(dict(self._seconds), dict(self._cpu_seconds))


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """The result of an order.

    ``appended`` rows are durable even if a later step failed (``error``). ``merged`` is the LSN up to which the lake
    table is merged, ``done`` what was done, before an error too. ``lake`` is None if the lake table was not opened.
    ``lost``: the changelog cannot be used, and the rows were not stored. ``upkeep`` is maintenance that is due, for
    which no round waits. ``waits``: not everything was merged, because indexes of keys are to be made first (one of
    ``upkeep``). ``enabled`` are features that the lake table has got, ``marks``: it has got deletion
    vectors.
    """

    table: TableId
    merged: int | None = None
    appended: int = 0
    done: Merged = Merged()
    lake: WrittenTable | None = None
    error: CdcError | None = None
    lost: CdcError | None = None
    waits: bool = False
    enabled: frozenset[DeltaFeature] = frozenset()
    marks: bool = False
    upkeep: tuple[UpkeepOrder, ...] = ()
    timings: Timings = NO_TIME

    @property
    def applied(self) -> Applied | None:
        """The changes made to the lake table; None if there were none."""
        return self.done.applied

    def then(self, later: SliceOutcome) -> SliceOutcome:
        """Return what this and a later task did for one order."""
        return replace(
            later,
            appended=self.appended + later.appended,
            done=self.done.then(later.done),
            enabled=self.enabled | later.enabled,
            marks=self.marks or later.marks,
            upkeep=(*self.upkeep, *later.upkeep),
            timings=self.timings.plus(later.timings),
        )


def _sums(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    return {name: left.get(name, 0.0) + right.get(name, 0.0) for name in (*left, *(n for n in right if n not in left))}


def overtaken(table: TableId) -> TransientError:
    """The error of a slice whose lake table another writer changed before its commit; nothing of it was committed."""
    return TransientError(f"Another writer changed the lake table of {table}.", "The next round merges it again.")

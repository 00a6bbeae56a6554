"""Records finished ranges of a snapshot run and reuses those of interrupted attempts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cdc_core.errors import TransientError
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.rows.row_keys import merge_key
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.features import writer_of
from cdc_core.lake.schema.shape import lake_properties
from cdc_core.lake.stores.range_log import FinishedRange, RangeLog
from cdc_core.postgres.source import OpenSnapshot, Source
from cdc_core.snapshot.copy.plan import Chunk, plan_chunks, plan_gap
from cdc_core.snapshot.copy.reading import Reading
from cdc_core.snapshot.copy.resume import (
    TakeOut,
    can_resume,
    marks_of,
    resumption,
    written_before,
    written_since,
)
from cdc_core.spark.run_tasks import balanced, parallelism, run_tasks

# Ranges of rows written since the first attempt are larger by this factor, because few of their rows match.
_FRESH_FACTOR = 4


class RangeTracker:
    """The ranges of one run's tables. ``note`` is for one thread, ``files`` and ``done`` are for any thread."""

    def __init__(
        self, source: Source, spark: Any, paths: LakePaths, plan: TypingPlan, history_minutes: int, epoch: int
    ) -> None:
        self._source = source
        self._spark = spark
        self._plan = plan
        self._log = RangeLog(paths.ranges, lake_properties(history_minutes), epoch)
        self._lock = threading.Lock()

    def open(self, readings: Sequence[Reading], opened: OpenSnapshot) -> None:
        """Find the ranges of earlier attempts, and determine for which tables ranges are recorded."""
        recorded = self._log.read()
        confirmed = None if opened.made_slot else self._source.slot().confirmed_lsn
        for reading in readings:
            in_force = reading.in_force or 0
            # Entries up to the token in force were committed, whether or not they were removed after that.
            reading.recorded = [one for one in recorded.get(reading.table.id, ()) if one.token > in_force]
            newest = max((one.token for one in reading.recorded), default=0)
            reading.taken = replace(reading.taken, token=max(reading.taken.token, newest + 1))
            is_whole = (
                reading.own_statement is not None or reading.keeps_gone_rows or not writer_of(reading.lake).arrow_adds
            )
            if is_whole or not reading.has_ctid or not can_resume(reading.table, self._plan):
                continue
            reading.marks = marks_of(reading.table, self._plan, reading.query(""))
            visible = reading.taken.visible
            reading.kept = resumption(reading.recorded, reading.marks, visible, confirmed, reading.lake)
            if reading.kept is not None:
                reading.taken = replace(reading.taken, since=reading.kept.since)

    def plan(self, reading: Reading, rows_per_range: int) -> list[Chunk | None]:
        """Set the ranges' SELECTs; returns the chunk of each range to be recorded after it is read, else None."""
        pages = reading.pages
        whole = plan_chunks(reading.table.id, pages, reading.estimate, rows_per_range)
        if reading.kept is None:
            reading.selects = [reading.query(chunk.predicate()) for chunk in whole]
            return [chunk if len(whole) > 1 else None for chunk in whole]
        since = reading.kept.since
        fresh = plan_chunks(reading.table.id, pages, reading.estimate, _FRESH_FACTOR * rows_per_range)
        step = -(-pages // len(whole))
        missing = [chunk for gap in reading.kept.gaps() for chunk in plan_gap(reading.table.id, gap, pages, step)]
        reading.fresh = set(range(len(fresh)))
        reading.selects = [reading.query(chunk.predicate(), written_since(since)) for chunk in fresh]
        reading.selects += [reading.query(chunk.predicate(), written_before(since)) for chunk in missing]
        return [*[None] * len(fresh), *missing]

    def note(self, reading: Reading, number: int) -> None:
        """Record that a range was read, if it is to be recorded."""
        chunk = reading.chunks.get(number)
        if chunk is None or reading.marks is None:
            return
        lsn, since = int(reading.taken.lsn), reading.taken.visible
        if reading.kept is not None:
            lsn, since = reading.kept.lsn, reading.kept.since
        files = reading.results[number].files
        one = FinishedRange(reading.taken.token, lsn, since, reading.marks, chunk.first_block, chunk.end_block, files)
        with self._lock:
            self._log.add(reading.table.id, [one])
            reading.recorded.append(one)

    def files(self, reading: Reading) -> list[DataFile]:
        """Return the files for the table's commit. Raises TransientError if another run has committed some of them."""
        if reading.kept is None:
            return reading.files
        reading.lake.refresh()
        there = {file.path for file in reading.lake.files}
        if any(file.path in there for file in reading.kept.files):
            raise TransientError(
                f"Another run has committed its snapshot of {reading.table.id} concurrently.", "Run the snapshot again."
            )
        fresh = tuple(file for number in sorted(reading.fresh) for file in reading.results[number].files)
        if not fresh:
            return [*reading.kept.files, *reading.files]
        work = TakeOut(reading.lake.path, reading.schema, merge_key(reading.table), fresh)
        groups = balanced(reading.kept.files, lambda file: file.rows, 2 * parallelism(self._spark))
        doing = f"removing changed rows of {reading.table.id} from the data files of an earlier attempt"
        replaced = [
            pair for found in run_tasks(self._spark, [[group] for group in groups], work, doing) for pair in found
        ]
        return [*[file for _, file in replaced if file is not None], *reading.files]

    def done(self, reading: Reading) -> None:
        """Remove the entries of a committed table, and the files that no commit referenced.

        Not earlier: an outlasting run may commit them until a newer snapshot is in force.
        """
        recorded = [*reading.recorded, *self._log.former.get(reading.table.id, ())]
        if not recorded:
            return
        there = {file.path for file in reading.lake.files}
        stale = [file for one in recorded for file in one.files if file.path not in there]
        with self._lock:
            self._log.clear([reading.table.id])
        reading.lake.discard(stale)

"""A large slice in several tasks: each decodes and writes some of its files, one commit adds all files.

files 1–4 ─▶ task ─▶ changelog file (and a lake file, if the slice only inserts) ┐
files 5–8 ─▶ task ─▶ changelog file …                                            ├▶ one commit (task)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.errors import CdcError, NotUtf8Error, TableError, UnreadableError
from cdc_core.lake.checks.table_checks import report_of
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.reduce.multiset import arrivals
from cdc_core.lake.rows.run_files import opening
from cdc_core.lake.rows.spool import ReadSpoolFiles
from cdc_core.lake.rows.survey import unsent
from cdc_core.lake.slice.added import takes_files
from cdc_core.lake.slice.order import SliceOrder, SpoolFiles, WrittenFiles
from cdc_core.lake.slice.outcome import SliceOutcome
from cdc_core.lake.slice.task import SliceTask
from cdc_core.quality import CheckReport, both
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class PartOrder:
    """Some consecutive spool files of an order. ``number`` counts the parts of one table in stream order.

    ``order`` is the complete one without its files.
    """

    order: SliceOrder
    number: int
    files: tuple[tuple[int, str], ...]
    rows: int


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """The changelog files to which a part was written.

    ``arrived`` is None if its rows cannot simply be appended to the lake; else ``check`` is their judgement. ``lost``
    is as in SliceOutcome.
    """

    table: TableId
    number: int
    written: tuple[DataFile, ...]
    arrived: DataFile | None
    check: CheckReport | None = None
    lost: CdcError | None = None


@dataclass(frozen=True, slots=True)
class SlicePart:
    """The work of a task of a round's job: a complete order, or a part of one."""

    task: SliceTask

    def __call__(self, item: SliceOrder | PartOrder) -> SliceOutcome | PartOutcome:
        """Process a small slice, or write a part of a large one to files. Raises what ``SliceTask`` does."""
        failpoints.adopt(self.task.armed)
        if not isinstance(item, PartOrder):
            return self.task(item)
        try:
            return self._write(item)
        except (UnreadableError, NotUtf8Error) as error:
            return PartOutcome(item.order.table, item.number, (), None, lost=error)

    def _write(self, part: PartOrder) -> PartOutcome:
        task, order, log = self.task, part.order, self.task.changelogs
        if bytes_of(part.files) > task.writer.part_max_bytes:
            return PartOutcome(order.table, part.number, self._stream(part), None)
        versions = log.decoded(order.table, part.files, order.snapshot.shown)
        changelog = log.changelog(order.table, versions)
        batches = (
            batch
            for schema_version, rows in versions
            for batch in log.stored(changelog, schema_version, rows).to_batches()
        )
        written = changelog.write_stream(batches, changelog.schema, order.rows + 1)
        arrival = self._arrived(order, versions[0][1]) if _may_be_added(order) and len(versions) == 1 else None
        arrived, check = (None, None) if arrival is None else arrival
        return PartOutcome(order.table, part.number, tuple(written), arrived, check)

    def _stream(self, part: PartOrder) -> tuple[DataFile, ...]:
        """Write a part that is too large for memory to changelog files, a few megabytes at a time."""
        task, table, log = self.task, part.order.table, self.task.changelogs
        runs = [
            (schema_version, tuple(path for _, path in run))
            for schema_version, run in itertools.groupby(part.files, lambda f: f[0])
        ]
        read = ReadSpoolFiles(task.plan, task.writer.owner, str(table), part.order.snapshot.shown)
        first = [(schema_version, next(read(paths)).schema.empty_table()) for schema_version, paths in runs]
        changelog = log.changelog(table, first)
        batches = (
            batch
            for schema_version, paths in runs
            for rows in read(paths)
            for batch in log.stored(changelog, schema_version, pa.Table.from_batches([rows])).to_batches()
        )
        return tuple(changelog.write_stream(batches, changelog.schema, part.order.rows + 1))

    def _arrived(self, order: SliceOrder, rows: pa.Table) -> tuple[DataFile, CheckReport | None] | None:
        """Write rows that can simply be added to the lake table to a file; None if some of them cannot."""
        task, schema = self.task, order.schema
        lake = task.tables.prepare(task.run, task.paths.lake(order.table), schema, task.plan, task.scope).lake
        if not takes_files(lake) or unsent(rows):
            return None
        try:
            judged = task.checks.judged(schema.table, rows, schema.since)
        except TableError:
            return None  # the merge judges the slice again, and pauses the table
        if judged is not None and (judged.bad is not None or judged.failure is not None):
            return None
        file = lake.write(arrivals(rows, lake.schema))
        return file, None if judged is None else report_of(judged)


def _may_be_added(order: SliceOrder) -> bool:
    return order.merge is not None and isinstance(order.append, SpoolFiles) and order.append.only_inserts


def bytes_of(files: Iterable[tuple[int, str]]) -> int:
    """Return the size of spool files, which are not compressed. Raises LostFolderError if one does not exist."""
    octets = 0
    for _, path in files:
        with opening(path):
            octets += Path(path).stat().st_size
    return octets


def large_among(orders: Iterable[SliceOrder], rows: int, octets: int) -> list[SliceOrder]:
    """Return the orders whose files have more rows or bytes than these: several tasks write them."""
    return [order for order in orders if order.rows > rows or bytes_of(order.files) > octets]


def cut(order: SliceOrder, parts: int, octets: int) -> list[PartOrder]:
    """Divide an order's files into at least ``parts`` runs of consecutive files, about equal in bytes.

    A run has at most ``octets`` bytes, or one file: the rows of a larger one are not held in memory, and would have to
    be read from the changelog again in order to be merged.
    """
    sizes = np.array([bytes_of([file]) for file in order.files], dtype=np.int64)
    # A run may be longer than this by its first file.
    share = max(1, min(-(-int(sizes.sum()) // max(1, parts)), octets * 2 // 3))
    ends = np.flatnonzero(np.diff((np.cumsum(sizes) - 1) // share)) + 1
    bounds = [0, *ends.tolist(), len(order.files)]
    rows = order.rows // (len(bounds) - 1)
    assert isinstance(order.append, SpoolFiles)
    bare = replace(order, append=replace(order.append, files=()))
    return [
        PartOrder(bare, number, order.files[low:high], rows)
        for number, (low, high) in enumerate(itertools.pairwise(bounds))
    ]


def lost(order: SliceOrder, outcomes: Iterable[SliceOutcome | PartOutcome]) -> SliceOutcome | None:
    """Return the outcome of an order of which a part could not be written to its changelog; None if all were."""
    error = next((part.lost for part in _parts(order, outcomes) if part.lost is not None), None)
    return None if error is None else SliceOutcome(order.table, merged=order.snapshot.merged, lost=error)


def joined(order: SliceOrder, outcomes: Iterable[SliceOutcome | PartOutcome]) -> SliceOrder:
    """Return the order that commits the files written by its parts."""
    assert isinstance(order.append, SpoolFiles)
    parts = _parts(order, outcomes)
    written = tuple(file for part in parts for file in part.written)
    arrived = tuple(part.arrived for part in parts if part.arrived is not None)
    if len(arrived) < len(parts):
        arrived = ()
    check = reduce(both, (part.check for part in parts))
    return replace(order, append=WrittenFiles(written, arrived, order.append.reached, order.append.position, check))


def _parts(order: SliceOrder, outcomes: Iterable[SliceOutcome | PartOutcome]) -> list[PartOutcome]:
    """Return the outcomes of an order's parts, in stream order."""
    mine = (part for part in outcomes if isinstance(part, PartOutcome) and part.table == order.table)
    return sorted(mine, key=lambda part: part.number)

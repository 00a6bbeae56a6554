"""A large slice in several tasks: each decodes and writes some of its files, one commit adds all files.

files 1–4 ─▶ task ─▶ changelog file (and a lake file, if the slice only inserts) ┐
files 5–8 ─▶ task ─▶ changelog file …                                            ├▶ one commit (task)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.engine.reading.spool import ReadSpoolFiles
from cdc_core.engine.slice.order import SliceOrder, SliceOutcome
from cdc_core.engine.slice.task import SliceTask, changelog_of, decoded
from cdc_core.engine.slice.write import ForDriverError
from cdc_core.errors import CdcError, NotUtf8Error, UnreadableError
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.rows.survey import unsent
from cdc_core.lake.schema.change_columns import stored
from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class PartOrder:
    """Some consecutive files of an order. ``number`` counts the parts of one table in stream order."""

    order: SliceOrder
    number: int
    files: tuple[tuple[int, str], ...]
    rows: int


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """The changelog files to which a part was written.

    ``arrived`` is None if its rows cannot simply be appended to the lake. ``lost`` is as in SliceOutcome.
    """

    table: TableId
    number: int
    written: tuple[DataFile, ...]
    arrived: DataFile | None
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
            return PartOutcome(item.order.table.id, item.number, (), None, error)

    def _write(self, part: PartOrder) -> PartOutcome:
        task, order = self.task, part.order
        table = order.table.id
        if bytes_of(part.files) > task.writer.part_max_bytes:
            return PartOutcome(table, part.number, self._stream(part), None)
        versions = decoded(task.plan, part.files, task.writer.owner, table, order.shown)
        changelog = changelog_of(task, table, versions)
        written = changelog.write_stream(
            (
                batch
                for shape, rows in versions
                for batch in stored(rows, shape, changelog.schema, epoch_of(task.scope)).to_batches()
            ),
            changelog.schema,
            order.rows + 1,
        )
        arrived = None
        if order.only_inserts and order.to_lsn is not None and len(versions) == 1:
            arrived = self._arrived(order, versions[0][1])
        return PartOutcome(table, part.number, tuple(written), arrived)

    def _stream(self, part: PartOrder) -> tuple[DataFile, ...]:
        """Write a part that is too large for memory to changelog files, a few megabytes at a time."""
        task = self.task
        runs = [(shape, tuple(path for _, path in run)) for shape, run in itertools.groupby(part.files, lambda f: f[0])]
        read = ReadSpoolFiles(task.plan, task.writer.owner, str(part.order.table.id), part.order.shown)
        first = [(shape, next(read(paths)).schema.empty_table()) for shape, paths in runs]
        changelog = changelog_of(task, part.order.table.id, first)
        batches = (
            each
            for shape, paths in runs
            for rows in read(paths)
            for each in stored(
                pa.Table.from_batches([rows]), shape, changelog.schema, epoch_of(task.scope)
            ).to_batches()
        )
        return tuple(changelog.write_stream(batches, changelog.schema, part.order.rows + 1))

    def _arrived(self, order: SliceOrder, rows: pa.Table) -> DataFile | None:
        """Write rows that can simply be added to the lake table to a file; None if some of them cannot."""
        task = self.task
        try:
            lake = task.writer.prepare(task.run, task.paths.lake(order.table.id), order, task.plan, task.scope)
        except ForDriverError:
            return None
        if not task.writer.takes_files(lake):
            return None
        if unsent(rows):
            return None
        good, bad, _ = task.checks.check(order.table, rows)
        return task.writer.write_arrivals(lake, good) if bad is None and good.num_rows == rows.num_rows else None


def bytes_of(files: Iterable[tuple[int, str]]) -> int:
    """Return the size of spool files, which are not compressed."""
    return sum(Path(path).stat().st_size for _, path in files)


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
    bare, rows = replace(order, files=()), order.rows // (len(bounds) - 1)
    return [
        PartOrder(bare, number, order.files[low:high], rows)
        for number, (low, high) in enumerate(itertools.pairwise(bounds))
    ]


def lost(order: SliceOrder, found: Iterable[SliceOutcome | PartOutcome]) -> SliceOutcome | None:
    """Return the outcome of an order of which a part could not be written to its changelog; None if all were."""
    mine = [each.lost for each in found if isinstance(each, PartOutcome) and each.table == order.table.id]
    error = next((each for each in mine if each is not None), None)
    return None if error is None else SliceOutcome(order.table.id, merged=order.merged, lost=error)


def joined(order: SliceOrder, found: Iterable[SliceOutcome | PartOutcome]) -> SliceOrder:
    """Return the order that commits the files written by its parts."""
    mine: Sequence[PartOutcome] = sorted(
        (each for each in found if isinstance(each, PartOutcome) and each.table == order.table.id),
        key=lambda each: each.number,
    )
    arrived = tuple(each.arrived for each in mine if each.arrived is not None)
    return replace(
        order,
        files=(),
        written=tuple(file for each in mine for file in each.written),
        arrived=arrived if len(arrived) == len(mine) else (),
    )

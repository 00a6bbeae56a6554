"""The effect of a slice on a lake table's files, and helpers to build it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.apply.ways import Ways, among_live
from cdc_core.lake.delta.candidates import Content
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.reading import Result, ahead, has_large_rows
from cdc_core.lake.names import RESCUED
from cdc_core.lake.rows.images import chosen, column, rescued_of, texts_of

FILE_BYTES = 128 * 2**20
"""New rows are added to a file up to about this size; beyond it they are written to separate files."""

RowsAt = Callable[[np.ndarray, Sequence[str] | None], pa.Table]
"""Returns rows of a file by their positions in it; all columns or those named."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The removed files, the ``marked`` rows of others, and the rows that take their place, one table per file.

    ``rows`` is read while it is iterated, once. The others and the counts are known before; so are ``absent`` rows,
    which changes must find and do not.
    """

    removed: list[DataFile]
    rows: Iterator[pa.Table]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    marked: list[MarkedRows] = field(default_factory=list)
    absent: AbsentRows | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.removed or self.marked or self.inserted or self.updated or self.deleted)


@dataclass(frozen=True, slots=True)
class TouchedFile:
    """A file of which rows leave their places. ``puts`` returns the rows that take their place, wherever.

    ``replaced`` are the places of the rows of which these are the next states, in the order of ``puts``.
    Shape: places int64[P], ascending positions in the file, none marked as deleted; replaced int64[R] of them
    """

    file: DataFile
    places: np.ndarray
    puts: Callable[[RowsAt], pa.Table] | None = None
    replaced: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def effect(
    content: Content, touched: Sequence[TouchedFile], fresh: pa.Table, ways: Ways, file_bytes: int
) -> tuple[list[DataFile], list[MarkedRows], Iterator[pa.Table]]:
    """Return the files removed, the rows marked, and the rows written; ``fresh`` are rows that take no other's place.

    Rewritten rows stay with those of their file; where rows are marked, all new ones are written together, with the
    other rows of files that are moved (``Ways.moved``).
    """
    files = [touched_file.file for touched_file in touched]
    if ways.marks(files):
        marked, moved = _moved_apart(touched, ways)
        return (
            [touched_file.file for touched_file in moved],
            marks_of(marked),
            _appended(content, marked, moved, fresh, file_bytes),
        )
    return files, [], _rewritten(content, touched, fresh, file_bytes)


def marks_of(touched: Sequence[TouchedFile]) -> list[MarkedRows]:
    """Return the rows of files that are marked."""
    return [MarkedRows(touched_file.file, touched_file.places) for touched_file in touched]


def new_rows(content: Content, touched: Sequence[TouchedFile]) -> Iterator[pa.Table]:
    """Yield the rows that take the places of others in their files; only what they keep of the old rows is read."""

    def of(touched_file: TouchedFile) -> pa.Table | None:
        return next_states(
            content, touched_file, lambda places, names: content.read_at(touched_file.file, places, names)
        )

    return (rows for rows in _made(touched, of) if rows is not None and rows.num_rows)


def next_states(content: Content, touched_file: TouchedFile, at: RowsAt) -> pa.Table | None:
    """Return the rows that take the places of others, with the row ids of these; None if there are none."""
    if touched_file.puts is None:
        return None
    rows, schema = touched_file.puts(at), content.tracked_schema
    if len(schema) == len(content.schema):
        return rows
    row_id = schema.field(len(content.schema))
    order = np.argsort(touched_file.replaced)
    row_ids = at(touched_file.replaced[order], [row_id.name]).take(pa.array(np.argsort(order)))
    return conform(rows.append_column(row_id, row_ids.column(0)), schema)


def joined(content: Content, tables: Sequence[pa.Table]) -> pa.Table:
    """Return rows together; those without row ids and commit versions are new."""
    schema = content.tracked_schema
    is_tracked = len(schema) > len(content.schema)
    return pa.concat_tables([conform(rows, schema) for rows in tables] if is_tracked else tables)


def without_places(content: Content, touched_file: TouchedFile) -> tuple[pa.Table, RowsAt]:
    """Return the rows of a file that stay, with their row ids, and how to get others; the file is read whole, once."""
    file_rows, file = content.read(touched_file.file, content.tracked_schema.names), touched_file.file

    def at(places: np.ndarray, names: Sequence[str] | None) -> pa.Table:
        rows = file_rows.select(content.schema.names if names is None else list(names))
        if len(places) == rows.num_rows:  # ascending, so all of them; a row may be large
            return rows
        return rows.take(pa.array(among_live(content, file, places)))

    stays = np.ones(file_rows.num_rows, dtype=bool)
    stays[among_live(content, file, touched_file.places)] = False
    return file_rows.filter(pa.array(stays)), at


def _made(touched: Sequence[TouchedFile], work: Callable[[TouchedFile], Result]) -> Iterator[Result]:
    """Yield the results for each file, ahead of need unless rows are large."""
    return map(work, touched) if _are_large(touched) else ahead(touched, work)


def _are_large(touched: Sequence[TouchedFile]) -> bool:
    return any(has_large_rows(touched_file.file) for touched_file in touched)


def _moved_apart(touched: Sequence[TouchedFile], ways: Ways) -> tuple[Sequence[TouchedFile], Sequence[TouchedFile]]:
    """Divide files into those of which rows are marked, and those that are moved; large rows are not moved."""
    paths = () if ways.moved is None or _are_large(touched) else ways.moved(marks_of(touched))
    if not paths:
        return touched, ()
    is_moved = [touched_file.file.path in paths for touched_file in touched]
    return list(compress(touched, (not moved for moved in is_moved))), list(compress(touched, is_moved))


def _appended(
    content: Content,
    marked: Sequence[TouchedFile],
    moved: Sequence[TouchedFile],
    fresh: pa.Table,
    file_bytes: int,
) -> Iterator[pa.Table]:
    if _are_large(marked):  # not together: what rows keep of the old ones is not part of the slice
        yield from new_rows(content, marked)
        yield from parts_of(fresh, content.files, file_bytes)
        return
    again = (_written_again(content, touched_file) for touched_file in moved)
    rows = joined(content, [*chain.from_iterable(again), *new_rows(content, marked), fresh])
    yield from parts_of(rows, content.files, file_bytes)


def _written_again(content: Content, touched_file: TouchedFile) -> list[pa.Table]:
    """Return the rows of a file that stay, and those that take the places of others."""
    stays, at = without_places(content, touched_file)
    puts = next_states(content, touched_file, at)
    return [stays] if puts is None else [stays, puts]


def _rewritten(
    content: Content, touched: Sequence[TouchedFile], fresh: pa.Table, file_bytes: int
) -> Iterator[pa.Table]:
    host = host_of([touched_file.file for touched_file in touched], fresh, file_bytes)

    def rewritten(touched_file: TouchedFile) -> pa.Table:
        added = [fresh] if touched_file.file is host else []
        return joined(content, [*_written_again(content, touched_file), *added])

    for out in _made(touched, rewritten):
        if out.num_rows:
            yield out
    if host is None:
        yield from parts_of(fresh, content.files, file_bytes)


def with_kept_values(rows: pa.Table, keep: dict[str, np.ndarray], lake: pa.Table) -> pa.Table:
    """Return rows with the values that they keep taken from the corresponding lake rows, including texts.

    Shape: rows[N], masks bool[N], lake[N] with the columns of ``keep`` and ``__rescued`` -> rows[N]
    """
    theirs = texts_of(column(lake, RESCUED))
    mine = texts_of(column(rows, RESCUED))
    none = pa.nulls(rows.num_rows, pa.string())
    for name, mask in keep.items():
        at = rows.schema.get_field_index(name)
        value = chosen(mask, column(lake, name), column(rows, name))
        rows = rows.set_column(at, rows.schema.field(at), value)
        if name in theirs:
            mine[name] = chosen(mask, theirs[name], mine.get(name, none))
    at = rows.schema.get_field_index(RESCUED)
    return rows.set_column(at, rows.schema.field(at), rescued_of(mine, rows.num_rows))


def host_of(files: Sequence[DataFile], fresh: pa.Table, file_bytes: int) -> DataFile | None:
    """Return the file that new rows are added to: the smallest rewritten one, unless it would become too large."""
    if not files or not fresh.num_rows:
        return None
    smallest = min(files, key=lambda file: file.size)
    return smallest if smallest.size + fresh.num_rows * _row_bytes(files, fresh) <= file_bytes else None


def parts_of(rows: pa.Table, files: Sequence[DataFile], file_bytes: int) -> Iterator[pa.Table]:
    """Yield rows in tables that result in files of at most about ``file_bytes``."""
    step = max(1, int(file_bytes / _row_bytes(files, rows)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _row_bytes(files: Sequence[DataFile], rows: pa.Table) -> float:
    """Return the bytes per row of a file, from the existing files, or from the rows in memory, which are larger."""
    count = sum(file.rows for file in files)
    size = sum(file.size for file in files) / count if count else rows.nbytes / max(1, rows.num_rows)
    return max(1.0, size)

"""A slice applied to a lake table by copy-on-write: files that hold a row it changes are written anew, in one commit.

First the log's statistics say which files can hold one of its keys, then those files' key columns say which do; only
files with a hit are read whole, at most two in memory at a time. What is decided before anything is written is
complete, so the caller knows the counts and the files that go, and may leave the slice to another engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core.sink.delta.candidates import Content, Ranges
from cdc_core.sink.delta.changes import Changes, Road
from cdc_core.sink.delta.images import chosen, column, indices, rescued_of, texts_of
from cdc_core.sink.delta.multiset import NetRows, taken
from cdc_core.sink.delta.reading import ReadOnce, ahead
from cdc_core.sink.delta.reduction import ReducedSlice
from cdc_core.sink.delta.shape import RESCUED
from cdc_core.sink.delta.table import DataFile

_POSITION = ("__commit_lsn", "__tx_index")
FILE_BYTES = 128 * 2**20
"""New rows join a file up to about this size; beyond it they make files of their own."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The files that go and the rows that come in their place, one table a file.

    ``rows`` reads as it is iterated, once. ``removed`` and the counts are known before.
    """

    removed: list[DataFile]
    rows: Iterator[pa.Table]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def bytes_rewritten(self) -> int:
        """Bytes of the files that go."""
        return sum(file.size for file in self.removed)

    @property
    def changes_nothing(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.removed or self.inserted or self.updated or self.deleted)


def candidates(content: Content, changes: Changes) -> list[DataFile]:
    """The files that must be looked into, by the log's statistics alone; nothing is read."""
    if changes.reduced is not None:
        return Ranges.of(changes.reduced.keys, changes.reduced.index.columns.names).candidates(content.files)
    if changes.net is not None:
        minus = changes.net.minus.filter(pa.array(changes.net.times > 0))
        return Ranges.of(minus, minus.schema.names).candidates(content.files) if minus.num_rows else []
    return []


def bytes_to_scan(content: Content, changes: Changes) -> int:
    """Bytes of the files that must be looked into: an upper bound of what is read and written anew."""
    return sum(file.size for file in candidates(content, changes))


def apply(content: Content, changes: Changes, file_bytes: int = FILE_BYTES) -> Rewrite:
    """What the slice does to the table. Shape: change rows -> files removed, tables of ``content.schema`` added."""
    if changes.reduced is not None:
        return _merge(ReadOnce(content), changes, changes.reduced, file_bytes)
    if changes.net is not None:
        return _take_away(ReadOnce(content), changes, changes.net, file_bytes)
    assert changes.plus is not None
    removed = list(content.files) if changes.road is Road.REPLACE else []
    parts = _parts(changes.plus, content.files, file_bytes)
    return Rewrite(removed, parts, changes.plus.num_rows, 0, sum(file.rows for file in removed))


@dataclass(frozen=True, slots=True)
class _Hits:
    """Rows of a file whose key is in the slice: their places, their keys' numbers, whether the change may overwrite.

    Shape: [H] each, places rising.
    """

    file: DataFile
    places: np.ndarray
    keys: np.ndarray
    newer: np.ndarray


def _merge(content: Content, changes: Changes, reduced: ReducedSlice, file_bytes: int) -> Rewrite:
    hits = list(_hits(content, candidates(content, changes), reduced, changes.guarded))
    matched = np.zeros(len(reduced.deleted), dtype=bool)
    for found in hits:
        matched[found.keys] = True
    inserted = ~matched & ~reduced.deleted
    reduced = _with_moved_values(content, reduced, hits)
    touched = [found for found in hits if found.newer.any()]
    fresh = reduced.rows.filter(pa.array(inserted)) if inserted.any() else reduced.rows.schema.empty_table()
    host = _host([found.file for found in touched], fresh, file_bytes)

    def rewritten(found: _Hits) -> pa.Table:
        return pa.concat_tables([*_rewritten(content, reduced, found), *([fresh] if found.file is host else [])])

    def rows() -> Iterator[pa.Table]:
        for out in ahead(touched, rewritten):
            if out.num_rows:
                yield out
        if host is None:
            yield from _parts(fresh, content.files, file_bytes)

    gone = [int(np.count_nonzero(found.newer & reduced.deleted[found.keys])) for found in touched]
    changed = [int(np.count_nonzero(found.newer)) for found in touched]
    return Rewrite(
        [found.file for found in touched], rows(), int(np.count_nonzero(inserted)), sum(changed) - sum(gone), sum(gone)
    )


def _hits(content: Content, files: Sequence[DataFile], reduced: ReducedSlice, guarded: bool) -> Iterator[_Hits]:
    """The hits of each file that has some."""
    key = reduced.index.columns.read
    names = [*key, *_POSITION] if guarded else key
    waiting: list[tuple[DataFile, pa.Table]] = []
    rows = 0
    for number, file in enumerate(files):
        waiting.append((file, content.read(file, names)))
        rows += waiting[-1][1].num_rows
        # Looking up costs a hash table of the slice's keys each time, so small files are looked up together.
        if rows >= len(reduced.deleted) or number == len(files) - 1:
            codes = reduced.index.match(pa.concat_tables([found.select(key) for _, found in waiting]))
            for (each, found), mine in zip(waiting, _split(codes, [f.num_rows for _, f in waiting]), strict=True):
                places = np.flatnonzero(mine >= 0)
                if len(places):
                    newer = (
                        _newer(reduced, mine[places], found, places) if guarded else np.ones(len(places), dtype=bool)
                    )
                    yield _Hits(each, places, mine[places], newer)
            waiting, rows = [], 0


def _split(codes: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    return np.split(codes, np.cumsum(counts)[:-1])


def _newer(reduced: ReducedSlice, keys: np.ndarray, rows: pa.Table, places: np.ndarray) -> np.ndarray:
    """Whether changes come after the lake rows that they meet. Shape: keys[H], places[H] -> bool[H]."""
    mine, theirs = _positions(reduced.rows, keys), _positions(rows, places)
    return np.asarray((mine[0] > theirs[0]) | ((mine[0] == theirs[0]) & (mine[1] > theirs[1])))


def _positions(rows: pa.Table, places: np.ndarray) -> list[np.ndarray]:
    at = pa.array(places)
    return [column(rows, name).take(at).fill_null(-1).to_numpy(zero_copy_only=False) for name in _POSITION]


def _rewritten(content: Content, reduced: ReducedSlice, found: _Hits) -> list[pa.Table]:
    """The rows of a file that stay, and those that come for some of the others."""
    held = content.read(found.file)
    stays = np.ones(held.num_rows, dtype=bool)
    stays[found.places[found.newer]] = False
    puts = found.newer & ~reduced.deleted[found.keys]
    keys, places = found.keys[puts], found.places[puts]
    rows = reduced.rows.take(pa.array(keys))
    keep = {name: mask[keys] for name, mask in reduced.keep.items()}
    if any(mask.any() for mask in keep.values()):
        rows = with_kept_values(rows, keep, held.select([*keep, RESCUED]).take(pa.array(places)))
    return [held.filter(pa.array(stays)), rows]


def with_kept_values(rows: pa.Table, keep: dict[str, np.ndarray], lake: pa.Table) -> pa.Table:
    """Rows with the columns that they keep taken from lake rows beside them, texts too.

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


def _with_moved_values(content: Content, reduced: ReducedSlice, hits: Sequence[_Hits]) -> ReducedSlice:
    """The slice with what moved rows keep taken from the lake rows where they began; they keep nothing then."""
    own = np.arange(len(reduced.seek))
    moved = np.flatnonzero((reduced.seek >= 0) & (reduced.seek != own))
    if not len(moved):
        return reduced
    wanted = np.zeros(len(own), dtype=bool)
    wanted[reduced.seek[moved]] = True
    names = [*reduced.keep, RESCUED]
    begun, parts = np.full(len(own), -1, dtype=np.int64), []
    count = 0
    for found in hits:
        mine = wanted[found.keys]
        if mine.any():
            parts.append(content.read(found.file, names).take(pa.array(found.places[mine])))
            begun[found.keys[mine]] = count + np.arange(parts[-1].num_rows)
            count += parts[-1].num_rows
    keep = {name: mask & ~np.isin(own, moved) for name, mask in reduced.keep.items()}
    if not parts:
        return replace(reduced, keep=keep)
    lake = pa.concat_tables(parts).combine_chunks().take(indices(begun[reduced.seek[moved]]))
    masks = {name: mask[moved] for name, mask in reduced.keep.items()}
    filled = with_kept_values(reduced.rows.take(pa.array(moved)), masks, lake)
    order = own.copy()
    order[moved] = len(own) + np.arange(len(moved))
    rows = pa.concat_tables([reduced.rows, filled]).combine_chunks().take(pa.array(order))
    return replace(reduced, rows=rows, keep=keep)


def _take_away(content: Content, changes: Changes, net: NetRows, file_bytes: int) -> Rewrite:
    """A multiset's rows without those that went."""
    names, times = net.minus.schema.names, net.times.copy()
    touched: list[tuple[DataFile, np.ndarray]] = []
    for file in candidates(content, changes):
        if net.coder is None or not times.any():
            break
        held = content.read(file, names)
        gone = taken(net.coder.codes([column(held, name) for name in names]), times)
        if gone.any():
            touched.append((file, gone))
    host = _host([file for file, _ in touched], net.plus, file_bytes)

    def rewritten(found: tuple[DataFile, np.ndarray]) -> pa.Table:
        out = content.read(found[0]).filter(pa.array(~found[1]))
        return pa.concat_tables([out, net.plus]) if found[0] is host else out

    def rows() -> Iterator[pa.Table]:
        for out in ahead(touched, rewritten):
            if out.num_rows:
                yield out
        if host is None:
            yield from _parts(net.plus, content.files, file_bytes)

    lost = sum(int(np.count_nonzero(gone)) for _, gone in touched) + net.came - net.plus.num_rows
    return Rewrite([file for file, _ in touched], rows(), net.came, 0, lost)


def _host(files: Sequence[DataFile], fresh: pa.Table, file_bytes: int) -> DataFile | None:
    """The file that new rows join: the smallest one that is written anew anyway, while it has room for them."""
    if not files or not fresh.num_rows:
        return None
    smallest = min(files, key=lambda file: file.size)
    return smallest if smallest.size + fresh.num_rows * _row_bytes(files, fresh) <= file_bytes else None


def _parts(rows: pa.Table, files: Sequence[DataFile], file_bytes: int) -> Iterator[pa.Table]:
    """Rows in tables that make files of at most about ``file_bytes``."""
    step = max(1, int(file_bytes / _row_bytes(files, rows)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _row_bytes(files: Sequence[DataFile], rows: pa.Table) -> float:
    """Bytes a row of a file, by the files there are, or the rows in memory, which take more."""
    held = sum(file.rows for file in files)
    size = sum(file.size for file in files) / held if held else rows.nbytes / max(1, rows.num_rows)
    return max(1.0, size)

"""Applies a slice to a lake table by copy-on-write: files with a row that it changes are rewritten, in one commit.

First the log's statistics exclude files that cannot contain one of its keys, then the key columns of the others are
read; only files with a match are read completely, at most two in memory at a time. All decisions are made before
anything is written, so the caller knows the counts and the removed files, and may leave the slice to another engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.changes import Changes, MergeStrategy
from cdc_core.lake.apply.copy_on_write_history import apply_versions, version_candidates
from cdc_core.lake.apply.past_versions import apply_placed
from cdc_core.lake.apply.rewrite import FILE_BYTES, Rewrite, host_of, parts_of, with_kept_values
from cdc_core.lake.delete_columns import DELETED, is_live
from cdc_core.lake.delta.candidates import Content, Ranges
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.reading import ReadOnce, ahead
from cdc_core.lake.names import RESCUED
from cdc_core.lake.reduce.latest import ReducedSlice
from cdc_core.lake.reduce.multiset import NetRows, taken
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.reduce.soft import marked
from cdc_core.lake.rows.images import column, indices

_POSITION = ("__commit_lsn", "__tx_index")


def candidates(content: Content, changes: Changes) -> list[DataFile]:
    """Return the files that may contain changed rows, from the log's statistics alone; no file is read."""
    if changes.placed is not None:
        return [each.file for each in changes.placed.changed]
    if changes.versions is not None:
        return version_candidates(content.files, changes.versions)
    if changes.reduced is not None:
        if changes.reduced.truncated is not None:
            return list(content.files)
        return Ranges.of(changes.reduced.keys, changes.reduced.index.columns.names).candidates(content.files)
    if changes.net is not None:
        minus = changes.net.minus.filter(pa.array(changes.net.times > 0))
        return Ranges.of(minus, minus.schema.names).candidates(content.files) if minus.num_rows else []
    return []


def bytes_to_scan(content: Content, changes: Changes) -> int:
    """Return the bytes of the files that may contain changed rows: an upper bound of what is read and rewritten."""
    return sum(file.size for file in candidates(content, changes))


def apply(content: Content, changes: Changes, file_bytes: int = FILE_BYTES) -> Rewrite:
    """Return the effect of the slice. Shape: change rows -> files removed, tables of ``content.schema`` added."""
    if changes.reduced is not None:
        return _merge(ReadOnce(content), changes, changes.reduced, file_bytes)
    if changes.net is not None:
        return _take_away(ReadOnce(content), changes, changes.net, file_bytes)
    if changes.placed is not None:
        return apply_placed(ReadOnce(content), changes.placed, file_bytes)
    if changes.versions is not None:
        return apply_versions(ReadOnce(content), changes.versions, changes.guarded, file_bytes)
    assert changes.plus is not None
    removed = list(content.files) if changes.strategy is MergeStrategy.REPLACE else []
    parts = parts_of(changes.plus, content.files, file_bytes)
    return Rewrite(removed, parts, changes.plus.num_rows, 0, sum(file.rows for file in removed))


@dataclass(frozen=True, slots=True)
class _Hits:
    """Rows of a file whose key is in the slice: their indexes, the numbers of their keys, whether the change is newer.

    ``dead``: the lake row is marked as deleted (``soft``). ``truncated`` are the indexes of rows that a truncate marks.
    Shape: [H] each except truncated, places ascending.
    """

    file: DataFile
    places: np.ndarray
    keys: np.ndarray
    newer: np.ndarray
    dead: np.ndarray
    truncated: np.ndarray


def _merge(content: Content, changes: Changes, reduced: ReducedSlice, file_bytes: int) -> Rewrite:
    hits = list(_hits(content, candidates(content, changes), reduced, changes.guarded))
    matched = np.zeros(len(reduced.deleted), dtype=bool)
    for found in hits:
        matched[found.keys] = True
    inserted = ~matched & ~reduced.deleted
    reduced = _with_moved_values(content, reduced, hits)
    touched = [found for found in hits if found.newer.any() or len(found.truncated)]
    fresh = reduced.rows.filter(pa.array(inserted)) if inserted.any() else reduced.rows.schema.empty_table()
    host = host_of([found.file for found in touched], fresh, file_bytes)

    def rewritten(found: _Hits) -> pa.Table:
        return pa.concat_tables([*_rewritten(content, reduced, found), *([fresh] if found.file is host else [])])

    def rows() -> Iterator[pa.Table]:
        for out in ahead(touched, rewritten):
            if out.num_rows:
                yield out
        if host is None:
            yield from parts_of(fresh, content.files, file_bytes)

    ends = _ends(reduced)
    gone = [
        int(np.count_nonzero(found.newer & ends[found.keys] & ~found.dead)) + len(found.truncated) for found in touched
    ]
    changed = [int(np.count_nonzero(found.newer)) + len(found.truncated) for found in touched]
    return Rewrite(
        [found.file for found in touched], rows(), int(np.count_nonzero(inserted)), sum(changed) - sum(gone), sum(gone)
    )


def _hits(content: Content, files: Sequence[DataFile], reduced: ReducedSlice, guarded: bool) -> Iterator[_Hits]:
    """Yield the hits of each file that has any."""
    key = reduced.index.columns.read
    names = [*key, *(_POSITION if guarded else ()), *([DELETED] if reduced.marks else ())]
    waiting: list[tuple[DataFile, pa.Table]] = []
    rows = 0
    for number, file in enumerate(files):
        waiting.append((file, content.read(file, names)))
        rows += waiting[-1][1].num_rows
        # A lookup builds a hash table of the slice's keys each time, so small files are looked up together.
        if rows >= len(reduced.deleted) or number == len(files) - 1:
            codes = reduced.index.match(pa.concat_tables([found.select(key) for _, found in waiting]))
            for (each, found), mine in zip(waiting, _split(codes, [f.num_rows for _, f in waiting]), strict=True):
                hits = _hits_in(each, found, mine, reduced, guarded)
                if len(hits.places) or len(hits.truncated):
                    yield hits
            waiting, rows = [], 0


def _hits_in(file: DataFile, rows: pa.Table, codes: np.ndarray, reduced: ReducedSlice, guarded: bool) -> _Hits:
    """Return a file's hits, from its rows' key columns and the numbers of their keys. Shape: rows[N], int64[N]."""
    places = np.flatnonzero(codes >= 0)
    keys = codes[places]
    newer = _newer(reduced, keys, rows, places) if guarded else np.ones(len(places), dtype=bool)
    live = is_live(rows) if reduced.marks else np.ones(rows.num_rows, dtype=bool)
    dead = ~live[places]
    if reduced.marks:
        newer &= ~(dead & reduced.deleted[keys])
    truncated = np.zeros(0, dtype=np.int64)
    if reduced.truncated is not None:
        others = np.flatnonzero(live & (codes < 0))
        truncated = others[_is_before(rows, others, reduced.truncated)] if guarded else others
    return _Hits(file, places, keys, newer, dead, truncated)


def _is_before(rows: pa.Table, places: np.ndarray, truncation: Truncation) -> np.ndarray:
    lsn, index = _positions(rows, places)
    return np.asarray((lsn < truncation.lsn) | ((lsn == truncation.lsn) & (index < truncation.index)))


def _ends(reduced: ReducedSlice) -> np.ndarray:
    """Return the keys at which the source has no row after the slice. Shape: bool[R]."""
    return ~is_live(reduced.rows) if reduced.marks else reduced.deleted


def _split(codes: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    return np.split(codes, np.cumsum(counts)[:-1])


def _newer(reduced: ReducedSlice, keys: np.ndarray, rows: pa.Table, places: np.ndarray) -> np.ndarray:
    """Whether changes are later than the lake rows that they match. Shape: keys[H], places[H] -> bool[H]."""
    mine, theirs = _positions(reduced.rows, keys), _positions(rows, places)
    return np.asarray((mine[0] > theirs[0]) | ((mine[0] == theirs[0]) & (mine[1] > theirs[1])))


def _positions(rows: pa.Table, places: np.ndarray) -> list[np.ndarray]:
    at = pa.array(places)
    return [column(rows, name).take(at).fill_null(-1).to_numpy(zero_copy_only=False) for name in _POSITION]


def _rewritten(content: Content, reduced: ReducedSlice, found: _Hits) -> list[pa.Table]:
    """Return the unchanged rows of a file, and the rows that replace some of the others."""
    held = content.read(found.file)
    if reduced.truncated is not None:
        held = marked(held, found.truncated, reduced.truncated)
    stays = np.ones(held.num_rows, dtype=bool)
    stays[found.places[found.newer]] = False
    puts = found.newer if reduced.marks else found.newer & ~reduced.deleted[found.keys]
    keys, places = found.keys[puts], found.places[puts]
    rows = reduced.rows.take(pa.array(keys))
    keep = {name: mask[keys] for name, mask in reduced.keep.items()}
    if any(mask.any() for mask in keep.values()):
        rows = with_kept_values(rows, keep, held.select([*keep, RESCUED]).take(pa.array(places)))
    return [held.filter(pa.array(stays)), rows]


def _with_moved_values(content: Content, reduced: ReducedSlice, hits: Sequence[_Hits]) -> ReducedSlice:
    """Return the slice with the kept values of moved rows read from the lake rows at their old keys.

    After that the moved rows keep nothing.
    """
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
    """Return a multiset's rows without those that the slice removes."""
    names, times = net.minus.schema.names, net.times.copy()
    touched: list[tuple[DataFile, np.ndarray]] = []
    for file in candidates(content, changes):
        if net.coder is None or not times.any():
            break
        held = content.read(file, names)
        gone = taken(net.coder.codes([column(held, name) for name in names]), times)
        if gone.any():
            touched.append((file, gone))
    host = host_of([file for file, _ in touched], net.plus, file_bytes)

    def rewritten(found: tuple[DataFile, np.ndarray]) -> pa.Table:
        out = content.read(found[0]).filter(pa.array(~found[1]))
        return pa.concat_tables([out, net.plus]) if found[0] is host else out

    def rows() -> Iterator[pa.Table]:
        for out in ahead(touched, rewritten):
            if out.num_rows:
                yield out
        if host is None:
            yield from parts_of(net.plus, content.files, file_bytes)

    lost = sum(int(np.count_nonzero(gone)) for _, gone in touched) + net.came - net.plus.num_rows
    return Rewrite([file for file, _ in touched], rows(), net.came, 0, lost)

"""Applies the last state of each key to a lake table: delete modes hard and soft.

First the log's statistics exclude files that cannot contain one of the keys, then the keys are located in the others.
All decisions are made before anything is written, so the caller knows the counts and the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.apply.kept_values import KeptValues, RowPlaces
from cdc_core.lake.apply.rewrite import Rewrite, RowsAt, TouchedFile, effect, marks_of, with_kept_values
from cdc_core.lake.apply.ways import Ways
from cdc_core.lake.delete_columns import DELETED, is_live
from cdc_core.lake.delta.candidates import Content, Ranges
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.index.key_positions import Hits
from cdc_core.lake.names import RESCUED
from cdc_core.lake.reduce.latest import ReducedSlice, image_schema
from cdc_core.lake.rows.feed_rows import differing
from cdc_core.lake.rows.images import column, indices

_POSITION = ("__commit_lsn", "__tx_index")


@dataclass(frozen=True, slots=True)
class KeyedChanges:
    """The changes of a slice by key. ``events`` is the number of its change rows.

    ``guarded``: a change must not overwrite a lake row of its own or a later position. ``leaves_equal``: a lake
    row that has the values of its change stays as it is.
    """

    events: int
    guarded: bool
    reduced: ReducedSlice
    leaves_equal: bool = False

    def candidates(self, content: Content) -> list[DataFile]:
        """Return the files that may contain changed rows, from the log's statistics alone; no file is read."""
        return Ranges.of(self.reduced.keys, self.reduced.index.columns.names).candidates(content.files)

    def apply(self, content: Content, ways: Ways, file_bytes: int) -> Rewrite:
        """Return the effect. Shape: change rows -> files removed, rows marked, tables of ``content.schema`` added."""
        hits = _once(self._hits(content, ways), len(self.reduced.deleted), leaves=self.leaves_equal)
        matched, present = (np.zeros(len(self.reduced.deleted), dtype=bool) for _ in range(2))
        for file_hits in hits:
            matched[file_hits.keys] = True
            present[file_hits.keys[file_hits.present]] = True
        inserted = ~matched & ~self.reduced.deleted
        touched = [file_hits for file_hits in hits if file_hits.newer.any()]
        ends = _ends(self.reduced)
        gone = sum(
            int(np.count_nonzero(file_hits.newer & ends[file_hits.keys] & ~file_hits.dead)) for file_hits in touched
        )
        changed = sum(int(np.count_nonzero(file_hits.newer)) for file_hits in touched)
        places = RowPlaces.of(
            content, [Hits(file_hits.file, file_hits.places, file_hits.keys) for file_hits in hits], len(matched)
        )
        removed, marks, rows = self._effect(places, touched, np.flatnonzero(inserted), ways, file_bytes)
        absent = absent_of(self.reduced, present)
        return Rewrite(removed, rows, int(np.count_nonzero(inserted)), changed - gone, gone, marks, absent)

    def _effect(
        self, places: RowPlaces, touched: Sequence[_Hits], inserted: np.ndarray, ways: Ways, file_bytes: int
    ) -> tuple[list[DataFile], list[MarkedRows], Iterator[pa.Table]]:
        """As ``effect``; ``places`` are the lake rows at the slice's keys, and ``inserted`` keys that have none."""
        reduced, kept = self.reduced, KeptValues.of(self.reduced, places)
        if ways.most_rows is not None and len(kept.moved):
            keys = np.concatenate([*(file_hits.keys[file_hits.puts(reduced)] for file_hits in touched), inserted])
            marks = marks_of([file_hits.touched(reduced) for file_hits in touched])
            return [], marks, kept.in_pieces(keys, places, ways.most_rows, file_bytes)
        reduced = _with_moved_values(kept)
        fresh = reduced.rows.take(pa.array(inserted))
        return effect(places.content, [file_hits.touched(reduced) for file_hits in touched], fresh, ways, file_bytes)

    def _hits(self, content: Content, ways: Ways) -> list[_Hits]:
        """Return the hits of each file that has any."""
        reduced, files = self.reduced, self.candidates(content)
        located = ways.locate(content, files, reduced.index)
        return [self._compared(content, file_hits.file, file_hits.places, file_hits.keys) for file_hits in located]

    def _compared(self, content: Content, file: DataFile, places: np.ndarray, keys: np.ndarray) -> _Hits:
        """Compare lake rows with the changes of their keys. Shape: int64[H] each"""
        reduced = self.reduced
        newer, present = (np.ones(len(places), dtype=bool) for _ in range(2))
        dead = np.zeros(len(places), dtype=bool)
        is_compared = self.guarded and not _is_older(file, reduced)
        names = [*(_POSITION if is_compared else ()), *([DELETED] if reduced.marks else ())]
        if names and len(places):
            rows = content.read_at(file, places, names)
            if is_compared:
                newer = _newer(reduced, keys, rows)
            if reduced.marks:
                dead = ~is_live(rows)
                present = ~(dead & newer)
                newer &= ~(dead & reduced.deleted[keys])
        if self.leaves_equal and len(places):
            names = image_schema(content.schema).names
            differs = differing(content.read_at(file, places, names), reduced.rows.select(names).take(pa.array(keys)))
            newer &= differs | dead | _ends(reduced)[keys]
        return _Hits(file, places, keys, newer, dead, present)


@dataclass(frozen=True, slots=True)
class _Hits:
    """Rows of a file whose key is in the slice: their positions, their keys' numbers, whether the change is newer.

    ``dead``: the lake row is marked as deleted (``soft``). ``present``: there is a row for the changes of the key, not
    one that was deleted before them. ``again``: another row of the same key, which only a damaged table has, is
    replaced by the change, and this one leaves; None if there is none. Shape: [H] each, places ascending.
    """

    file: DataFile
    places: np.ndarray
    keys: np.ndarray
    newer: np.ndarray
    dead: np.ndarray
    present: np.ndarray
    again: np.ndarray | None = None

    def puts(self, reduced: ReducedSlice) -> np.ndarray:
        """Return which rows another one takes the place of. Shape: bool[H]"""
        puts = self.newer if reduced.marks else self.newer & ~reduced.deleted[self.keys]
        return puts if self.again is None else puts & ~self.again

    def touched(self, reduced: ReducedSlice) -> TouchedFile:
        """Return the rows that leave their places, and those that take them."""
        puts = self.puts(reduced)
        keys, places = self.keys[puts], self.places[puts]

        def rows(at: RowsAt) -> pa.Table:
            return _with_own_values(reduced, keys, places, at)

        return TouchedFile(self.file, self.places[self.newer], rows, places)


def absent_of(reduced: ReducedSlice, present: np.ndarray) -> AbsentRows | None:
    """Return the expected rows of keys that are not ``present`` in the lake. Shape: bool[R]."""
    return AbsentRows.of_keys(reduced.expected, present, reduced.seek[~reduced.deleted], reduced.index)


def _once(hits: list[_Hits], count: int, *, leaves: bool) -> list[_Hits]:
    """Let only the first row of each of ``count`` keys be replaced, where the table has several.

    ``leaves``: the others leave the table, even if the first one stays.
    """
    keys = np.concatenate([np.zeros(0, dtype=np.int64), *(file_hits.keys for file_hits in hits)])
    if not len(keys) or np.bincount(keys, minlength=count).max() == 1:
        return hits
    # unique returns the first occurrence of each key; all others are repetitions.
    again = np.ones(len(keys), dtype=bool)
    again[np.unique(keys, return_index=True)[1]] = False
    ends = np.cumsum([len(file_hits.keys) for file_hits in hits])
    return [
        replace(file_hits, again=mask, newer=file_hits.newer | (mask & leaves))
        for file_hits, mask in zip(hits, np.split(again, ends[:-1]), strict=True)
    ]


def _with_own_values(reduced: ReducedSlice, keys: np.ndarray, places: np.ndarray, at: RowsAt) -> pa.Table:
    """Return the rows of keys with the values that they keep of the lake rows at ``places``, which are read if needed.

    Shape: int64[P] each -> table[P]
    """
    rows = reduced.rows.take(pa.array(keys))
    keep = {name: mask[keys] for name, mask in reduced.keep.items() if mask[keys].any()}
    if not keep:
        return rows
    some = np.flatnonzero(np.logical_or.reduce(list(keep.values())))
    lake = at(places[some], [*keep, RESCUED])
    if len(some) < len(places):
        # Rows that were not read become nulls, so that the result is aligned with ``rows``.
        place = np.full(len(places), -1, dtype=np.int64)
        place[some] = np.arange(len(some))
        lake = lake.take(indices(place))
    return with_kept_values(rows, keep, lake)


def _is_older(file: DataFile, reduced: ReducedSlice) -> bool:
    """Whether every row of a file is older than every change, by the log's statistics."""
    newest = file.maximum.get(_POSITION[0])
    lsn = column(reduced.rows, _POSITION[0])
    if newest is None or lsn.null_count or not len(lsn):
        return False
    return bool(newest < lsn.to_numpy().min())


def _ends(reduced: ReducedSlice) -> Bools:
    """Return the keys at which the source has no row after the slice. Shape: bool[R]."""
    return ~is_live(reduced.rows) if reduced.marks else reduced.deleted


def _newer(reduced: ReducedSlice, keys: np.ndarray, rows: pa.Table) -> Bools:
    """Whether changes are later than the lake rows that they match. Shape: keys[H], rows[H] -> bool[H].

    Of what was read at one LSN the negative indexes are no order: a row that was refused replaces, once it is accepted,
    the mark that the same read left at its key.
    """
    theirs, mine = _positions(rows), _positions(reduced.rows.select(list(_POSITION)).take(pa.array(keys)))
    is_later = (mine[1] > theirs[1]) | ((mine[1] < 0) & (theirs[1] < 0))
    return np.asarray((mine[0] > theirs[0]) | ((mine[0] == theirs[0]) & is_later))


def _positions(rows: pa.Table) -> list[np.ndarray]:
    return [column(rows, name).fill_null(-1).to_numpy(zero_copy_only=False) for name in _POSITION]


def _with_moved_values(kept: KeptValues) -> ReducedSlice:
    """Return the slice with the kept values of moved rows read from the lake rows at their old keys.

    After that the moved rows keep nothing.
    """
    reduced, moved = kept.reduced, kept.moved
    if not len(moved):
        return reduced
    own = np.arange(len(reduced.seek))
    keep = {name: mask & ~np.isin(own, moved) for name, mask in reduced.keep.items()}
    # The filled rows take the places of those that moved.
    order = own.copy()
    order[moved] = len(own) + np.arange(len(moved))
    rows = pa.concat_tables([reduced.rows, kept.rows(moved)]).combine_chunks().take(pa.array(order))
    return replace(reduced, rows=rows, keep=keep)

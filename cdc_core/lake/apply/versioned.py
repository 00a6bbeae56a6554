"""Applies versions to a lake table: delete mode history.

Only files with current rows are searched. When one is rewritten, its current rows stay together and versions that have
ended are written to separate files; where rows are marked, the versions that they become are written to such files. So
the cost of a merge does not grow with the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools, Ints
from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.apply.kept_values import RowPlaces
from cdc_core.lake.apply.rewrite import (
    Rewrite,
    RowsAt,
    TouchedFile,
    host_of,
    joined,
    marks_of,
    new_rows,
    next_states,
    parts_of,
    with_kept_values,
    without_places,
)
from cdc_core.lake.apply.ways import Ways
from cdc_core.lake.delete_columns import CURRENT, POSITION, is_live
from cdc_core.lake.delta.candidates import Content, Ranges
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.reading import ahead
from cdc_core.lake.index.key_positions import Hits
from cdc_core.lake.names import RESCUED
from cdc_core.lake.reduce.history import VersionedSlice, ended
from cdc_core.lake.reduce.latest import image_schema
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column


@dataclass(frozen=True, slots=True)
class VersionedChanges:
    """The versions that a slice begins and ends. ``events`` is the number of its change rows.

    ``guarded``: key events at or before a current row's own position are left out.
    """

    events: int
    guarded: bool
    versions: VersionedSlice

    def candidates(self, content: Content) -> list[DataFile]:
        """Return the files that may contain current rows of the keys, from the log's statistics alone."""
        current = [file for file in content.files if not file.is_history]
        return Ranges.of(self.versions.keys, self.versions.index.columns.names).candidates(current)

    def apply(self, content: Content, ways: Ways, file_bytes: int) -> Rewrite:
        """Return the effect of the slice: versions inserted, rows that ended updated."""
        versions = self.versions
        done = np.zeros(versions.keys.num_rows, dtype=np.int64)
        hits = self._hits(content, ways, done)
        rows = _filled(content, versions, hits) if versions.keep else versions.rows
        fresh = versions.begun >= done[versions.key[versions.begun]]
        rows = rows if fresh.all() else rows.filter(pa.array(fresh))
        live = is_live(rows)
        begun, past = rows.filter(pa.array(live)), rows.filter(pa.array(~live))
        touched = [file_hits.touched(versions) for file_hits in hits if len(file_hits.places)]
        count = sum(len(touched_file.places) for touched_file in touched)
        removed, marks, tables = apart(content, touched, begun, past, ways, file_bytes)
        return Rewrite(removed, tables, rows.num_rows, count, 0, marks, self._absent(hits))

    def _absent(self, hits: Sequence[_EndedRows]) -> AbsentRows | None:
        versions = self.versions
        present = np.zeros(versions.keys.num_rows, dtype=bool)
        for file_hits in hits:
            present[file_hits.keys] = True
        return AbsentRows.of_keys(versions.expected, present, versions.seek, versions.index)

    def _hits(self, content: Content, ways: Ways, done: np.ndarray) -> list[_EndedRows]:
        """Return the hits of each file that has any; ``done`` is set, for each key, to the key events in the lake."""
        versions, files = self.versions, self.candidates(content)
        order = _KeyEventOrder.of(versions)
        return [
            self._compared(content, key_hits.file, key_hits.places, key_hits.keys, order, done)
            for key_hits in ways.locate(content, files, versions.index)
        ]

    def _compared(
        self,
        content: Content,
        file: DataFile,
        places: np.ndarray,
        keys: np.ndarray,
        order: _KeyEventOrder,
        done: np.ndarray,
    ) -> _EndedRows:
        """Compare current rows with the key events of their keys. Shape: int64[H] each"""
        versions = self.versions
        rows = content.read_at(file, places, [*POSITION[:2], CURRENT])
        live = is_live(rows)
        places, keys, rows = places[live], keys[live], rows.filter(pa.array(live))
        lsn, index = (column(rows, name).fill_null(-1).to_numpy(zero_copy_only=False) for name in POSITION[:2])
        since = order.upto(lsn, index) if self.guarded else np.zeros(len(places), dtype=np.int64)
        if versions.found and len(places):
            since[_equals(content.read_at(file, places), keys, versions)] = len(versions.key)
        done[keys] = since
        ends = order.first(keys, since)
        return _EndedRows(file, keys, places, places[ends >= 0], ends[ends >= 0])


@dataclass(frozen=True, slots=True)
class _EndedRows:
    """What a slice ends in a file: rows at ``places`` at the key events ``ends``.

    ``keys`` and ``rows`` are the key numbers and positions of all current rows of the slice's keys, ended or not.
    """

    file: DataFile
    keys: np.ndarray
    rows: np.ndarray
    places: np.ndarray
    ends: np.ndarray

    def touched(self, versions: VersionedSlice) -> TouchedFile:
        """Return the rows that end, with the versions that replace them."""

        def past(at: RowsAt) -> pa.Table:
            return ended(at(self.places, None), versions.at.take(pa.array(self.ends)))

        return TouchedFile(self.file, self.places, past, self.places)


def apart(
    content: Content, touched: Sequence[TouchedFile], begun: pa.Table, past: pa.Table, ways: Ways, file_bytes: int
) -> tuple[list[DataFile], list[MarkedRows], Iterator[pa.Table]]:
    """As ``effect`` for a history table: current rows and versions that have ended are written to different files.

    ``begun`` are new current rows, ``past`` new versions that have ended; so have all that take a row's place.
    """
    files = [touched_file.file for touched_file in touched]
    if ways.marks(files):
        return [], marks_of(touched), _appended(content, touched, begun, past, file_bytes)
    return files, [], _rewritten(content, touched, begun, past, file_bytes)


def _appended(
    content: Content, touched: Sequence[TouchedFile], begun: pa.Table, past: pa.Table, file_bytes: int
) -> Iterator[pa.Table]:
    yield from parts_of(begun, content.files, file_bytes)
    yield from parts_of(joined(content, [past, *new_rows(content, touched)]), content.files, file_bytes)


def _rewritten(
    content: Content, touched: Sequence[TouchedFile], begun: pa.Table, past: pa.Table, file_bytes: int
) -> Iterator[pa.Table]:
    host = host_of(
        [touched_file.file for touched_file in touched if not touched_file.file.is_history], begun, file_bytes
    )
    gone = [past]

    def rewritten(touched_file: TouchedFile) -> tuple[TouchedFile, pa.Table, pa.Table | None]:
        stays, at = without_places(content, touched_file)
        return touched_file, stays, next_states(content, touched_file, at)

    for touched_file, stays, ends in ahead(touched, rewritten):
        if touched_file.file.is_history:
            yield joined(content, [stays, *([] if ends is None else [ends])])
            continue
        live = is_live(stays)
        gone += [stays.filter(pa.array(~live)), *([] if ends is None else [ends])]
        out = stays.filter(pa.array(live))
        out = joined(content, [out, begun]) if touched_file.file is host else out
        if out.num_rows:
            yield out
    if host is None:
        yield from parts_of(begun, content.files, file_bytes)
    yield from parts_of(joined(content, gone), content.files, file_bytes)


@dataclass(frozen=True, slots=True)
class _KeyEventOrder:
    """The key events by key and time, and their positions in order of time. Shape: [T] each."""

    by_key: np.ndarray
    sorted_keys: np.ndarray
    lsn: np.ndarray
    index: np.ndarray

    @classmethod
    def of(cls, versions: VersionedSlice) -> _KeyEventOrder:
        by_key = np.argsort(versions.key, kind="stable")
        lsn, index = (column(versions.at, name).to_numpy() for name in POSITION[:2])
        return cls(by_key, versions.key[by_key], lsn, index)

    def upto(self, lsn: np.ndarray, index: np.ndarray) -> Ints:
        """Return the number of key events at or before each position. Shape: int64[H] each -> int64[H]."""
        count = len(self.lsn)
        every = np.concatenate([self.lsn, lsn]), np.concatenate([self.index, index])
        # Events and queries are sorted together; at equal positions an event is before a query, so it is counted.
        asked = np.arange(count + len(lsn)) >= count
        order = np.lexsort((asked, every[1], every[0]))
        before = np.cumsum(~asked[order])
        out = np.empty(count + len(lsn), dtype=np.int64)
        out[order] = before
        return out[count:]

    def first(self, keys: np.ndarray, since: np.ndarray) -> np.ndarray:
        """Return the first key event of each key not before that in ``since``, -1 for none. Shape: int64[H] each."""
        # A key and the number of an event are one integer, so that one binary search serves all keys.
        step = len(self.by_key) + 1
        at = np.searchsorted(self.sorted_keys * step + self.by_key, keys * step + since)
        events = np.full(len(keys), -1, dtype=np.int64)
        inside = np.flatnonzero(at < len(self.by_key))
        mine = inside[self.sorted_keys[at[inside]] == keys[inside]]
        events[mine] = self.by_key[at[mine]]
        return events


def _equals(rows: pa.Table, keys: np.ndarray, versions: VersionedSlice) -> Bools:
    """Return which current rows equal the version of their key. Shape: rows[H], int64[H] -> bool[H]."""
    names = image_schema(versions.rows.schema).names
    coder, codes = Tuples.number([column(versions.rows, name) for name in names], exact=True)
    # -2 is no code: rows that were not numbered have UNKNOWN, -1, and must not equal a key without a version.
    key_codes = np.full(versions.keys.num_rows, -2, dtype=np.int64)
    key_codes[versions.key[versions.begun]] = codes
    return np.asarray(coder.codes([column(rows, name) for name in names]) == key_codes[keys])


def _filled(content: Content, versions: VersionedSlice, hits: Sequence[_EndedRows]) -> pa.Table:
    """Return the versions with their kept values read from the lake's current rows."""
    places = RowPlaces.of(
        content, [Hits(file_hits.file, file_hits.rows, file_hits.keys) for file_hits in hits], versions.keys.num_rows
    )
    lake = places.take(versions.seek).read([*versions.keep, RESCUED])
    return with_kept_values(versions.rows, versions.keep, lake)

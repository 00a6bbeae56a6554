"""Applies versions to a lake table by copy-on-write, in one commit (``apply`` for delete mode history).

Only files with current rows are read. When one is rewritten, its current rows stay together and versions that have
ended are written to separate files, so the cost of a merge does not grow with the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.rewrite import Rewrite, host_of, parts_of, with_kept_values
from cdc_core.lake.delete_columns import CURRENT, POSITION, is_live
from cdc_core.lake.delta.candidates import Content, Ranges
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.reading import ahead
from cdc_core.lake.names import RESCUED
from cdc_core.lake.reduce.history import VersionedSlice, closed, ended
from cdc_core.lake.reduce.latest import image_schema
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column, indices


@dataclass(frozen=True, slots=True)
class _Hits:
    """What a slice ends in a file: rows at ``places`` at the touches ``ends``, and those ``truncated`` by a truncate.

    ``keys`` and ``rows`` are the key numbers and indexes of all current rows of the slice's keys, ended or not.
    """

    file: DataFile
    keys: np.ndarray
    rows: np.ndarray
    places: np.ndarray
    ends: np.ndarray
    truncated: np.ndarray


def version_candidates(files: Sequence[DataFile], versions: VersionedSlice) -> list[DataFile]:
    """Return the files that may contain current rows of the keys, from the log's statistics alone."""
    current = [file for file in files if not file.is_history]
    if versions.truncated is not None:
        return current
    return Ranges.of(versions.keys, versions.index.columns.names).candidates(current)


def apply_versions(content: Content, versions: VersionedSlice, guarded: bool, file_bytes: int) -> Rewrite:
    """Return the effect of the slice: versions inserted, rows that ended updated.

    ``guarded``: touches at or before a current row's own position are left out.
    """
    order = _TouchOrder.of(versions)
    done = np.zeros(versions.keys.num_rows, dtype=np.int64)
    candidates = version_candidates(content.files, versions)
    hits = [_hits_in(file, content, versions, order, done, guarded) for file in candidates]
    rows = _filled(content, versions, hits) if versions.keep else versions.rows
    fresh = versions.begun >= done[versions.key[versions.begun]]
    rows = rows if fresh.all() else rows.filter(pa.array(fresh))
    live = is_live(rows)
    begun, past = rows.filter(pa.array(live)), [rows.filter(pa.array(~live))]
    touched = [found for found in hits if len(found.places) or len(found.truncated)]
    host = host_of([found.file for found in touched], begun, file_bytes)

    def split(found: _Hits) -> tuple[_Hits, pa.Table, pa.Table]:
        return found, *_split(content.read(found.file), found, versions)

    def tables() -> Iterator[pa.Table]:
        for found, stays, ends in ahead(touched, split):
            past.append(ends)
            out = pa.concat_tables([stays, begun]) if found.file is host else stays
            if out.num_rows:
                yield out
        if host is None:
            yield from parts_of(begun, content.files, file_bytes)
        yield from parts_of(pa.concat_tables(past), content.files, file_bytes)

    count = sum(len(found.places) + len(found.truncated) for found in touched)
    return Rewrite([found.file for found in touched], tables(), rows.num_rows, count)


def _split(held: pa.Table, found: _Hits, versions: VersionedSlice) -> tuple[pa.Table, pa.Table]:
    """Return a file's rows that stay current, and those that are or become past versions."""
    live = is_live(held)
    past = [
        held.filter(pa.array(~live)),
        ended(held.take(pa.array(found.places)), versions.at.take(pa.array(found.ends))),
    ]
    if versions.truncated is not None:
        past.append(closed(held.take(pa.array(found.truncated)), versions.truncated))
    live[found.places] = False
    live[found.truncated] = False
    return held.filter(pa.array(live)), pa.concat_tables(past)


@dataclass(frozen=True, slots=True)
class _TouchOrder:
    """The touches by key and time, and their positions in order of time. Shape: [T] each."""

    by_key: np.ndarray
    sorted_keys: np.ndarray
    lsn: np.ndarray
    index: np.ndarray

    @classmethod
    def of(cls, versions: VersionedSlice) -> _TouchOrder:
        by_key = np.argsort(versions.key, kind="stable")
        lsn, index = (column(versions.at, name).to_numpy() for name in POSITION[:2])
        return cls(by_key, versions.key[by_key], lsn, index)

    def upto(self, lsn: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Return the number of touches at or before each position. Shape: int64[H] each -> int64[H]."""
        count = len(self.lsn)
        every = np.concatenate([self.lsn, lsn]), np.concatenate([self.index, index])
        asked = np.arange(count + len(lsn)) >= count
        order = np.lexsort((asked, every[1], every[0]))
        before = np.cumsum(~asked[order])
        out = np.empty(count + len(lsn), dtype=np.int64)
        out[order] = before
        return out[count:]

    def first(self, keys: np.ndarray, since: np.ndarray) -> np.ndarray:
        """Return the first touch of each key not before the touch ``since``, -1 for none. Shape: int64[H] each."""
        step = len(self.by_key) + 1
        at = np.searchsorted(self.sorted_keys * step + self.by_key, keys * step + since)
        found = np.full(len(keys), -1, dtype=np.int64)
        inside = np.flatnonzero(at < len(self.by_key))
        mine = inside[self.sorted_keys[at[inside]] == keys[inside]]
        found[mine] = self.by_key[at[mine]]
        return found


def _hits_in(
    file: DataFile,
    content: Content,
    versions: VersionedSlice,
    order: _TouchOrder,
    done: np.ndarray,
    guarded: bool,
) -> _Hits:
    """Return a file's hits; sets ``done``, for each key found, to the number of touches that the lake already has."""
    key = versions.index.columns.read
    rows = content.read(file, [*key, *POSITION[:2], CURRENT])
    live = is_live(rows)
    codes = versions.index.match(rows.select(key))
    mine = np.flatnonzero(live & (codes >= 0))
    keys = codes[mine]
    lsn, index = (column(rows, name).fill_null(-1).to_numpy(zero_copy_only=False) for name in POSITION[:2])
    since = order.upto(lsn[mine], index[mine]) if guarded else np.zeros(len(mine), dtype=np.int64)
    if versions.found and len(mine):
        since[_equals(content.read(file).take(pa.array(mine)), keys, versions)] = len(versions.key)
    done[keys] = since
    ends = order.first(keys, since)
    truncated = np.zeros(0, dtype=np.int64)
    if versions.truncated is not None:
        truncated = np.flatnonzero(live & (codes < 0))
        if guarded:
            at = versions.truncated
            earlier = (lsn[truncated] < at.lsn) | ((lsn[truncated] == at.lsn) & (index[truncated] < at.index))
            truncated = truncated[earlier]
    return _Hits(file, keys, mine, mine[ends >= 0], ends[ends >= 0], truncated)


def _equals(held: pa.Table, keys: np.ndarray, versions: VersionedSlice) -> np.ndarray:
    """Return which current rows equal the version of their key. Shape: held[H], int64[H] -> bool[H]."""
    names = image_schema(versions.rows.schema).names
    coder, codes = Tuples.number([column(versions.rows, name) for name in names], exact=True)
    wanted = np.full(versions.keys.num_rows, -2, dtype=np.int64)
    wanted[versions.key[versions.begun]] = codes
    return np.asarray(coder.codes([column(held, name) for name in names]) == wanted[keys])


def _filled(content: Content, versions: VersionedSlice, hits: Sequence[_Hits]) -> pa.Table:
    """Return the versions with their kept values read from the lake's current rows."""
    kept = np.flatnonzero(versions.seek >= 0)
    wanted = np.zeros(versions.keys.num_rows, dtype=bool)
    wanted[versions.seek[kept]] = True
    place, parts, count = np.full(len(wanted), -1, dtype=np.int64), [], 0
    for found in hits:
        mine = wanted[found.keys]
        if mine.any():
            parts.append(content.read(found.file, [*versions.keep, RESCUED]).take(pa.array(found.rows[mine])))
            place[found.keys[mine]] = count + np.arange(parts[-1].num_rows)
            count += parts[-1].num_rows
    if not parts:
        return versions.rows
    lake = pa.concat_tables(parts).combine_chunks()
    at = np.where(versions.seek >= 0, place[np.maximum(versions.seek, 0)], -1)
    return with_kept_values(versions.rows, versions.keep, lake.take(indices(at)))

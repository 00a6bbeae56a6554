"""Whether the versions of a history table are those that its changelog leads to.

Of every key, the versions must follow each other without overlap. Of what happened since the snapshot in force the
changelog has each event, so each one that wrote a row has begun a version with its values, each version ends at its
key's next event, and none begins or ends where no event is. A version may also begin or end between two events where
rows were read again (a snapshot, an incremental one, a repair): there the index is -1. Earlier versions of a
key are not judged: a repair ends what is wrong, and history keeps it.

Versions that ended may be deleted by the user up to some moment. So one that is missing is ``removed`` if the lake has
none that ended before it, and no difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools, Ints
from cdc_core.lake.compare.rows import Compared, KeyedColumns
from cdc_core.lake.delete_columns import COLUMNS, FROM_LSN, POSITION, TO_INDEX, TO_LSN, is_live
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.reduce.history import VersionedSlice, version_slice
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.lake.rows.survey import is_op

_LAST = np.int64(2**62)
Positions = np.ndarray
"""LSN and index of events. Shape: int64[N, 2]"""


@dataclass(frozen=True, slots=True)
class WrongVersions:
    """``keys`` with wrong versions, in the columns of ``KeyColumns.read``, and the number of versions ``removed``."""

    keys: pa.Table
    removed: int = 0


def wrong_versions(
    lake: DeltaTable, compared: KeyedColumns, changes: pa.Table, known: Positions, read_at: int, unsure: Positions
) -> WrongVersions:
    """Return the keys whose versions are wrong.

    ``changes`` are the change rows that the lake has merged since its snapshot, read at the LSN ``read_at``. ``known``
    are the positions of all events in the changelog, ``unsure`` those whose change was refused at some time: their keys
    are not judged.
    """
    key = compared.key
    schema = pa.schema([*compared.schema, *COLUMNS[DeleteMode.HISTORY]])
    stored = pa.concat_tables([schema.empty_table(), *_read(lake, schema)]).combine_chunks()
    made = version_slice(changes, key.names, schema)
    every = pa.concat_tables([stored.select(key.read), made.keys.select(key.read)]).combine_chunks()
    if not every.num_rows:
        return WrongVersions(every)
    _, codes = KeyIndex.of(key, every)
    wrong = np.zeros(int(codes.max()) + 1, dtype=bool)
    versions = _Versions.of(stored, codes[: stored.num_rows])
    events, oldest = _Events.of(made, codes[stored.num_rows :], changes), versions.first_end()
    since = versions.read_again(read_at, len(wrong))
    is_later = ~_before(versions.began, since[versions.key])
    stored, versions = stored.filter(pa.array(is_later)), versions.filtered(is_later)
    wrong[versions.key[versions.is_broken]] = True
    wrong[versions.key[versions.overlaps()]] = True
    wrong[versions.key[versions.is_unknown(known)]] = True
    wrong[versions.key[events.ends_elsewhere(versions, read_at)]] = True
    missing, removed = _missing(versions, made, events, since, oldest)
    wrong[missing] = True
    wrong[_other_values(stored, versions, made, events, compared)] = True
    wrong[events.key[_is_among(events.at, unsure)]] = False
    # Any row of a key shows the key: of equal codes the last assignment is kept.
    place = np.zeros(len(wrong), dtype=np.int64)
    place[codes] = np.arange(len(codes))
    return WrongVersions(every.take(pa.array(place[np.flatnonzero(wrong)])), removed)


@dataclass(frozen=True, slots=True)
class _Versions:
    """The versions in the lake: the number of each one's key, and where it begins and ends. Shape: [V], [V, 2]"""

    key: np.ndarray
    began: Positions
    ended: Positions
    live: np.ndarray

    @classmethod
    def of(cls, rows: pa.Table, key: np.ndarray) -> _Versions:
        began = _pairs(column(rows, FROM_LSN), column(rows, POSITION[1]))
        return cls(key, began, _pairs(column(rows, TO_LSN), column(rows, TO_INDEX)), is_live(rows))

    def filtered(self, mask: np.ndarray) -> _Versions:
        """Return some of the versions. Shape: bool[V]"""
        return _Versions(self.key[mask], self.began[mask], self.ended[mask], self.live[mask])

    def first_end(self) -> Positions:
        """Return where the first version ended; nothing if none has. Shape: int64[1 or 0, 2]"""
        ended = self.ended[~self.is_open]
        return np.asarray(ended[np.lexsort((ended[:, 1], ended[:, 0]))[:1]])

    def read_again(self, read_at: int, keys: int) -> Positions:
        """Return where each key's row was last read and found different, from an LSN on. Shape: int64[K, 2]"""
        every, key = np.concatenate([self.began, self.ended]), np.concatenate([self.key, self.key])
        # Rows that were read have a negative index, changes of the stream do not.
        at = np.flatnonzero((every[:, 1] < 0) & (every[:, 0] >= read_at))
        at = at[np.argsort(every[at, 0], kind="stable")]
        last_reads = np.full((keys, 2), -_LAST, dtype=np.int64)
        last_reads[key[at]] = every[at]  # of equal keys the last one is kept
        return last_reads

    @property
    def is_open(self) -> np.ndarray:
        """Which have no end."""
        return np.asarray(self.ended[:, 0] == _LAST)

    @property
    def is_broken(self) -> np.ndarray:
        """Which end before they begin, or are current and have an end."""
        return np.asarray((_before(self.ended, self.began) & (self.ended[:, 1] >= 0)) | (self.live != self.is_open))

    def overlaps(self) -> np.ndarray:
        """Return the numbers of versions that end after the key's next one begins."""
        # lexsort sorts by its last column first: by key, then begin, then end. Neighbours are consecutive versions.
        columns = (self.ended[:, 1], self.ended[:, 0], self.began[:, 1], self.began[:, 0], self.key)
        order = np.lexsort(columns)
        first, second = order[:-1], order[1:]
        same = self.key[first] == self.key[second]
        return np.asarray(first[same & _before(self.began[second], self.ended[first])])

    def is_unknown(self, known: Positions) -> np.ndarray:
        """Return which begin or end at the position of an event that the changelog does not have."""
        unknown = np.zeros(len(self.key), dtype=bool)
        for at in (self.began, self.ended):
            # LSNs of an earlier epoch are negative; -1 is the index of rows that were read.
            is_event = (at[:, 0] > 0) & (at[:, 0] < _LAST) & (at[:, 1] >= 0)
            unknown |= is_event & ~_is_among(at, known)
        return unknown


@dataclass(frozen=True, slots=True)
class _Events:
    """What happened at keys since the snapshot: their numbers and the positions, and the truncates (``cuts``).

    Shape: [T], [T, 2], [C, 2]
    """

    key: np.ndarray
    at: Positions
    cuts: Positions

    @classmethod
    def of(cls, made: VersionedSlice, numbers: np.ndarray, changes: pa.Table) -> _Events:
        at = _pairs(*(column(made.at, name) for name in POSITION[:2]))
        cuts = changes.filter(pa.array(is_op(changes, "t")))
        return cls(numbers[made.key], at, _pairs(*(column(cuts, name) for name in POSITION[:2])))

    def ends_elsewhere(self, versions: _Versions, read_at: int) -> np.ndarray:
        """Return which versions, of those that were valid after ``read_at``, do not end at their key's next event."""
        # Ranks replace positions, so that a key and a position are one integer, key * (none + 1) + rank, and a single
        # binary search finds the next event of each version's key.
        ranks = _numbered(np.concatenate([versions.began, versions.ended, self.at, self.cuts]))
        count, none = len(versions.key), int(ranks.max(initial=0)) + 1
        began, ended, at, cuts = np.split(ranks, np.cumsum([count, count, len(self.at)]))
        events = np.sort(self.key * (none + 1) + at)
        after = np.searchsorted(events, versions.key * (none + 1) + began, side="right")
        # The appended -1 belongs to no key. An event of another key means that this key has no later one.
        following = np.append(events, -1)[after]
        following = np.where(following // (none + 1) == versions.key, following % (none + 1), none)
        # A truncate ends the version of every key, if it is before the key's own event.
        cuts = np.append(np.sort(cuts), none)
        following = np.minimum(following, cuts[np.searchsorted(cuts[:-1], began, side="right")])
        ended = np.where(versions.is_open, none, ended)
        # A read ends a version without an event, so possibly before the key's next one.
        is_read = ~versions.is_open & (versions.ended[:, 1] < 0)
        is_wrong = np.where(is_read, ended > following, ended != following)
        return np.asarray((versions.ended[:, 0] > read_at) & is_wrong)


def _missing(
    versions: _Versions, made: VersionedSlice, events: _Events, since: Positions, oldest: Positions
) -> tuple[np.ndarray, int]:
    """Return the keys of versions that events begin and the lake does not have, and how many were removed.

    ``since``: where each key was read again; ``oldest`` is where the first version of the lake ended.
    """
    at, key = events.at[made.begun], events.key[made.begun]
    lacks = ~_is_among(_with_key(key, at), _with_key(versions.key, versions.began)) & ~_before(at, since[key])
    lacks = np.flatnonzero(lacks)
    ends = _pairs(column(made.rows, TO_LSN), column(made.rows, TO_INDEX))[lacks]
    # Those of length zero were never valid: a table need not have them.
    lasting = _before(at[lacks], ends)
    lacks, ends = lacks[lasting], ends[lasting]
    removed = (ends[:, 0] < _LAST) & (_before(ends, np.repeat(oldest, len(ends), axis=0)) if len(oldest) else True)
    return key[lacks[~removed]], int(np.count_nonzero(removed))


def _other_values(
    rows: pa.Table, versions: _Versions, made: VersionedSlice, events: _Events, compared: Compared
) -> np.ndarray:
    """Return the keys of versions with other values than the event that began them."""
    known = np.ones(made.rows.num_rows, dtype=bool)
    for mask in made.keep.values():
        known &= ~mask  # a column whose value is that of the version before
    digests = compared.digests(compared.conformed(made.rows))
    mine = _with_key(events.key[made.begun], events.at[made.begun])
    # Equal (key, begin) pairs of both sides get one number, by which the expected digest is looked up.
    numbers = _numbered(np.concatenate([mine, _with_key(versions.key, versions.began)]))
    expected = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.uint64)
    is_known = np.zeros(len(expected), dtype=bool)
    expected[numbers[: len(mine)]] = digests
    is_known[numbers[: len(mine)]] = known
    theirs = numbers[len(mine) :]
    other = is_known[theirs] & (compared.digests(compared.conformed(rows)) != expected[theirs])
    return np.asarray(versions.key[other])


def _read(lake: DeltaTable, schema: pa.Schema) -> Iterator[pa.Table]:
    for file in lake.files:
        yield conform(lake.read(file), schema)


def _pairs(lsn: pa.Array, index: pa.Array) -> Positions:
    parts = [
        np.asarray(values.fill_null(int(_LAST)).to_numpy(zero_copy_only=False), np.int64) for values in (lsn, index)
    ]
    return np.stack(parts, axis=1)


def _with_key(key: np.ndarray, at: Positions) -> np.ndarray:
    return np.concatenate([key[:, None], at], axis=1)


def _before(positions: Positions, other: Positions) -> np.ndarray:
    return np.asarray(
        (positions[:, 0] < other[:, 0]) | ((positions[:, 0] == other[:, 0]) & (positions[:, 1] < other[:, 1]))
    )


def _numbered(rows: np.ndarray) -> Ints:
    """Number rows; equal for equal ones. Shape: int64[N, M] -> int64[N]"""
    order = np.lexsort(rows.T[::-1])
    is_new = np.zeros(len(rows), dtype=np.int64)
    is_new[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    numbers = np.empty(len(rows), dtype=np.int64)
    numbers[order] = np.cumsum(is_new)
    return numbers


def _is_among(rows: np.ndarray, others: np.ndarray) -> Bools:
    """Return which rows are among others. Shape: int64[N, M], int64[K, M] -> bool[N]"""
    numbers = _numbered(np.concatenate([rows, others]))
    return np.isin(numbers[: len(rows)], numbers[len(rows) :])

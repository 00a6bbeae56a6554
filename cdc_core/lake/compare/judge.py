"""Which rows really differ, while both sides move: the rule by which a comparison names no row wrongly.

The source was read under the snapshot V, whose WAL ended at R; the lake was read at a version that is merged up to M.

    ahead     changes that the lake has and V does not show: to be applied to the source's rows
    behind    changes that V shows and the lake does not have: to be applied to the lake's rows

Both are known, change by change: the changelog and the slot hold every change up to R with its transaction, V tells
which transactions it shows, and the lake table's own commit tells up to which LSN it is merged. With ``ahead`` applied
to one side and ``behind`` to the other, both show the same changes, so a row that still differs is a difference, and
none other is. Neither side is read twice for that, and nothing is waited for but the position.

Why a key's changes may be applied in the order of their LSNs: see ``lake/apply/chunk_rows``. For one key the changes
that V shows precede those that it does not, and of the changes that the lake has the same holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.lake.compare.differences import Differences, KeyList
from cdc_core.lake.compare.key_texts import key_list
from cdc_core.lake.compare.rows import Compared, KeyedColumns
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.reduce.latest import Upserts, image_schema, images_of_keys, numbered_keys, reduce_slice
from cdc_core.lake.rows.images import column, image, validity
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.rows.survey import is_op, unsent
from cdc_core.lake.stores.snapshot_events import as_reads


@dataclass(frozen=True, slots=True)
class Between:
    """The changes between the two sides, as change rows in stream order; ``refused`` are those in quarantine."""

    ahead: pa.Table
    behind: pa.Table
    refused: pa.Table

    @property
    def rows(self) -> int:
        """The number of changes."""
        return int(self.ahead.num_rows + self.behind.num_rows + self.refused.num_rows)


@dataclass(frozen=True, slots=True)
class DifferentKeys:
    """Keys whose rows differ, and which of them the lake has more than once. Shape: compared.key_schema[K], [K]"""

    compared: KeyedColumns
    keys: pa.Table
    doubled: Bools


@dataclass(frozen=True, slots=True)
class DifferentRows:
    """The differences, and of a table with a key the ``keys`` that a repair has to read.

    ``keys`` is None for a table without a key, and if too many rows differ. ``rows`` of the source were compared, for
    which ``octets`` of COPY text were read.
    """

    found: Differences
    keys: DifferentKeys | None = None
    rows: int = 0
    octets: int = 0


More = Callable[[pa.Table], tuple[pa.Table, pa.Table]]


def judge_keyed(
    source: pa.Table, lake: pa.Table, between: Between, compared: KeyedColumns, limit: int, more: More
) -> DifferentRows:
    """Return the differences among the rows of two sides that are not equal as they were read.

    Shape: compared.schema[N], compared.schema[M]. At most ``limit`` keys of each kind are named. ``more`` returns the
    rows of both sides with other keys: those that changes between the sides touch.
    """
    key = compared.key
    every = compared.keys_of(pa.concat_tables([source, lake]))
    others = _other_keys(between, KeyIndex.of(key, every)[0], compared)
    if others.num_rows:
        mine, theirs = more(others)
        source, lake = (pa.concat_tables(pair).combine_chunks() for pair in ((source, mine), (lake, theirs)))
    own, ends = source.num_rows, source.num_rows + lake.num_rows
    every = pa.concat_tables([*(rows.select(key.read) for rows in (source, lake)), others]).combine_chunks()
    keys, codes = KeyIndex.of(key, every)
    count = int(codes.max(initial=-1)) + 1
    ahead, behind = (_of_keys(changes, keys, key, compared) for changes in (between.ahead, between.behind))
    refused = _touched(between.refused, keys, key, compared, count)
    doubled = np.bincount(codes[own:ends], minlength=count) > 1
    source, unknown = _forwarded(source, codes[:own], keys, ahead, compared)
    lake, lost = _forwarded(lake, codes[own:ends], keys, behind, compared)
    undecided = unknown | lost
    mine, theirs = (keys.match(compared.keys_of(rows)) for rows in (source, lake))
    has, copies = np.bincount(mine, minlength=count) > 0, np.bincount(theirs, minlength=count)
    expected = np.zeros(count, dtype=np.uint64)
    expected[mine] = compared.digests(source)
    equal = np.zeros(count, dtype=bool)
    equal[theirs[has[theirs] & (compared.digests(lake) == expected[theirs])]] = True
    doubled &= copies > 0
    kinds = {
        "missing": has & (copies == 0),
        "extra": (copies > 0) & (~has | (equal & ((copies > 1) | doubled))),
        "changed": has & (copies > 0) & ~equal,
    }
    wrong = (kinds["missing"] | kinds["extra"] | kinds["changed"]) & ~undecided & ~refused
    place = np.zeros(count, dtype=np.int64)
    place[codes] = np.arange(len(codes))

    def listed(mask: Bools) -> KeyList:
        return key_list(every.take(pa.array(place[np.flatnonzero(mask)])), key, limit)

    any_wrong = kinds["missing"] | kinds["extra"] | kinds["changed"]
    differences = Differences(
        **{name: listed(mask & wrong) for name, mask in kinds.items()},
        quarantined=listed(any_wrong & refused & ~undecided),
        undecided=listed(undecided),
    )
    at = np.flatnonzero(wrong)
    return DifferentRows(differences, DifferentKeys(compared, every.take(pa.array(place[at])), doubled[at]))


def judge_multiset(source: np.ndarray, lake: np.ndarray, between: Between, compared: Compared) -> Differences:
    """Return how many rows a table without a key lacks or has too many of, from the digests of all its rows.

    Shape: uint64[N], uint64[M]. Changes hold complete rows, so each adds or takes away one on its side.
    """
    left = multiset_left(source, lake, between, compared)[1]
    missing, extra = int(left[left > 0].sum()), int(-left[left < 0].sum())
    ops = between.refused
    refused = int(np.count_nonzero(is_op(ops, "c") | is_op(ops, "r"))) if ops.num_rows else 0
    return Differences(KeyList(missing), KeyList(extra), quarantined=KeyList(refused))


def multiset_left(
    source: np.ndarray, lake: np.ndarray, between: Between, compared: Compared
) -> tuple[np.ndarray, np.ndarray]:
    """Return the digests of rows, and how many of each the lake lacks (or has too many of, if negative).

    Shape: uint64[N], uint64[M] -> uint64[D], int64[D]
    """
    parts, weights = [source, lake], [np.ones(len(source)), -np.ones(len(lake))]
    # Refused changes are not in the lake although its position includes them: they count as not merged.
    for changes, sign in ((between.ahead, 1), (between.behind, -1), (between.refused, -1)):
        for name, way in (("after", 1), ("before", -1)):
            rows = images_of(changes, name, compared)
            if rows.num_rows:
                made = compared.digests(rows)
                parts.append(made)
                weights.append(np.full(len(made), float(sign * way)))
    values, at = np.unique(np.concatenate(parts), return_inverse=True)
    return values, np.rint(np.bincount(at, weights=np.concatenate(weights), minlength=len(values))).astype(np.int64)


def images_of(changes: pa.Table, name: str, compared: Compared) -> pa.Table:
    """Return the images (``before`` or ``after``) of those changes that have one."""
    return compared.conformed(image(changes.filter(pa.array(validity(column(changes, name)))), name))


def is_complete(changes: pa.Table) -> bool:
    """Whether change rows of a table without a key hold complete rows: no column is omitted as unchanged."""
    return not changes.num_rows or not any(mask.any() for mask in unsent(changes).values())


def after_truncate(changes: pa.Table) -> tuple[pa.Table, bool]:
    """Return the changes after the last truncate, and whether there is one, which removes all earlier rows."""
    cuts = np.flatnonzero(is_op(changes, "t")) if changes.num_rows else np.zeros(0, dtype=np.int64)
    if not len(cuts):
        return changes, False
    return changes.slice(int(cuts[-1]) + 1), True


def touched_keys(changes: pa.Table, keys: pa.Table, compared: KeyedColumns) -> Bools:
    """Return which of some different keys changes touch. Shape: keys[K] -> bool[K]"""
    index, _ = KeyIndex.of(compared.key, keys)
    return _touched(changes, index, compared.key, compared, keys.num_rows)


def _forwarded(
    rows: pa.Table, codes: np.ndarray, keys: KeyIndex, changes: pa.Table, compared: KeyedColumns
) -> tuple[pa.Table, Bools]:
    """Apply changes to the rows of one side; also return the keys whose row cannot be known. Shape: [N] -> [M], [K]"""
    count = len(keys.values[0])
    unknown = np.zeros(count, dtype=bool)
    key = compared.key
    if not changes.num_rows:
        return rows, unknown
    touched = _touched(changes, keys, key, compared, count)
    stays = rows.filter(pa.array(~touched[codes]))
    reads = as_reads(_at_first(rows.filter(pa.array(touched[codes]))))
    every = pa.concat_tables([reads, conform(changes, reads.schema)]).combine_chunks()
    made = reduce_slice(every, key.names, compared.schema)
    mine = keys.match(compared.keys_of(made.keys))
    bare = np.zeros(len(mine), dtype=bool)
    for mask in made.keep.values():
        bare |= mask
    bare &= ~made.deleted
    unknown[mine[bare & (mine >= 0)]] = True
    exist = made.rows.filter(pa.array(~made.deleted & (mine >= 0)))
    return pa.concat_tables([stays, compared.conformed(exist)]).combine_chunks(), unknown


def _other_keys(between: Between, keys: KeyIndex, compared: KeyedColumns) -> pa.Table:
    """Return the keys, other than ``keys``, that changes touch: a row of theirs may be missing on both sides."""
    key, parts = compared.key, [compared.key_schema.empty_table()]
    for changes in (between.ahead, between.behind):
        if changes.num_rows:
            upserts = Upserts.of(changes, key, image_schema(compared.schema))
            named = numbered_keys(changes, key, upserts, is_op(changes, "d"))[1]
            parts.append(named.filter(pa.array(keys.match(named) < 0)))
    return pa.concat_tables(parts).combine_chunks()


def _at_first(rows: pa.Table) -> pa.Table:
    """Return rows at a position before every change."""
    for name, value in (("__commit_lsn", 0), ("__tx_index", -1)):
        place = rows.schema.get_field_index(name)
        values = pa.array(np.full(rows.num_rows, value, dtype=np.int64))
        rows = rows.set_column(place, rows.schema.field(place), values)
    return rows


def _of_keys(changes: pa.Table, keys: KeyIndex, key: KeyColumns, compared: Compared) -> pa.Table:
    """Return the changes that write or remove a row of one of the keys."""
    new, old = _codes(changes, keys, key, compared)
    mine = (new >= 0) | (old >= 0)
    return changes if mine.all() else changes.filter(pa.array(mine))


def _touched(changes: pa.Table, keys: KeyIndex, key: KeyColumns, compared: Compared, count: int) -> Bools:
    """Return the keys that changes touch. Shape: changes[C] -> bool[K]"""
    out = np.zeros(count, dtype=bool)
    for codes in _codes(changes, keys, key, compared):
        out[codes[codes >= 0]] = True
    return out


def _codes(changes: pa.Table, keys: KeyIndex, key: KeyColumns, compared: Compared) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of each change's new and old key, -1 for none. Shape: changes[C] -> int64[C] each"""
    if not changes.num_rows:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    new, old, has_old = images_of_keys(changes, key, image_schema(compared.schema))
    has_new = validity(column(changes, "after"))
    return (
        np.where(has_new, keys.coder.codes(new), -1),
        np.where(has_old, keys.coder.codes(old), -1),
    )

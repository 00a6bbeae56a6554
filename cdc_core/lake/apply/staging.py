"""A prepared slice as rows on storage, for Spark to apply it if copy-on-write would cost too much.

The rows are in the lake's columns and types, so that only the matching lake rows remain to be found:

    APPEND, REPLACE   the rows as they are
    MULTISET          and ``__sign``: 1 for a row that is added, -1 for one that is removed (it has no position)
    MERGE             one row per key, and ``__gone``, ``__keep`` (columns whose value is the lake's), ``__key`` (a
                      struct of the key's columns, with ``__rescued`` if texts are part of it), and ``__seek``, the
                      same for the key at which the lake has the kept values; null unless that is another key.
                      For a table that keeps deleted rows ``__gone`` keeps all of the lake row's columns
    VERSIONS          one row per key event (key ``__number``) in the order of ``__touch``, with its position and
                      ``__key``; where ``__put`` the version that it begins, with ``__keep``, and ``__seek`` for any key
    PLACED            versions that are new, or have other ends than in the lake

MULTISET, MERGE and VERSIONS also have ``__needs``: for a row that must find another one in the lake, the commit LSN of
the first such change, else null.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.apply.changes import Changes
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.apply.multiset_rows import MultisetChanges
from cdc_core.lake.apply.past_versions import PlacedChanges
from cdc_core.lake.apply.strategy import MergeStrategy
from cdc_core.lake.apply.versioned import VersionedChanges
from cdc_core.lake.delete_columns import POSITION, with_column
from cdc_core.lake.names import helper
from cdc_core.lake.reduce.history import VersionedSlice
from cdc_core.lake.reduce.latest import ReducedSlice
from cdc_core.lake.reduce.multiset import NetRows
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.rows.images import indices

NUMBER, TOUCH, PUT = helper("__number"), helper("__touch"), helper("__put")
GONE, KEEP, KEY, SEEK, SIGN = (helper(name) for name in ("__gone", "__keep", "__key", "__seek", "__sign"))
NEEDS = helper("__needs")
_NAMES = pa.list_(pa.string())


@dataclass(frozen=True, slots=True)
class StagedFacts:
    """What Spark must know of staged rows in addition to the rows.

    ``key``: the key's columns, ``keeps`` those that some row keeps, ``seeks`` whether some row keeps another key's.
    ``came`` and ``lost``: rows added by a multiset's slice, and those of them removed again before its end.
    ``marks``: deleted rows stay (``soft``), and ``truncated`` is the (LSN, index, microseconds) of a truncate before
    which all other rows are marked, too.
    ``found``: versions that equal the lake's current row are left out.
    ``large``: bytes of the staged rows in memory, if they are staged in several ``files``; else 0.
    """

    strategy: MergeStrategy
    guarded: bool
    key: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    seeks: bool = False
    came: int = 0
    lost: int = 0
    marks: bool = False
    truncated: tuple[int, int, int | None] | None = None
    found: bool = False
    large: int = 0
    files: int = 0

    def plus(self, other: StagedFacts) -> StagedFacts:
        """Return the facts of the rows of both, which are parts of one slice."""
        return replace(
            self,
            keeps=tuple(dict.fromkeys([*self.keeps, *other.keeps])),
            seeks=self.seeks or other.seeks,
            came=self.came + other.came,
            lost=self.lost + other.lost,
            truncated=self.truncated or other.truncated,
        )


def staged(changes: Changes, needed: AbsentRows | None = None) -> tuple[pa.Table, StagedFacts]:
    """Return the rows to be written, and the facts about them. ``needed``: the rows that they must find in the lake."""
    if isinstance(changes, KeyedChanges):
        rows, facts = _keyed(changes.reduced, changes.guarded)
        return _with_needs(rows, np.arange(rows.num_rows), needed), facts
    if isinstance(changes, VersionedChanges):
        rows, facts = _touches(changes.versions, changes.guarded)
        _, first = np.unique(changes.versions.key, return_index=True)
        numbers = np.full(rows.num_rows, -1, dtype=np.int64)
        numbers[first] = changes.versions.key[first]
        return _with_needs(rows, numbers, needed), facts
    if isinstance(changes, PlacedChanges):
        placed = changes.placed
        rows = pa.concat_tables([placed.rows, *[each.rows for each in placed.changed]])
        return rows, StagedFacts(MergeStrategy.PLACED, changes.guarded, placed.key)
    if isinstance(changes, MultisetChanges):
        net = changes.net
        lost = net.came - net.plus.num_rows
        removed = np.repeat(np.arange(len(net.times)), net.times)
        numbers = np.concatenate([np.full(net.plus.num_rows, -1, dtype=np.int64), removed])
        rows = _with_needs(_signed(net, removed), numbers, needed)
        return rows, StagedFacts(MergeStrategy.MULTISET, changes.guarded, came=net.came, lost=lost)
    return changes.plus, StagedFacts(changes.strategy, changes.guarded)


def staged_files(path: str, facts: StagedFacts) -> list[str]:
    """Return the files of a staged slice; those that are lost are included, so that a check of them fails."""
    return [path] if not facts.files else [f"{path}/{number:06}.parquet" for number in range(1, facts.files + 1)]


def remove_staged(path: str) -> None:
    """Remove a staged slice: a file, or a folder of files."""
    if Path(path).is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)


def numbered_from(rows: pa.Table, first: int) -> tuple[pa.Table, int]:
    """Make the numbers of keys and touches distinct from those of earlier parts, which ended at ``first``.

    Shape: staged rows[N] -> staged rows[N], the next part's ``first``
    """
    if NUMBER not in rows.schema.names:
        return rows, first
    end = first
    for name in (NUMBER, TOUCH):
        numbers = rows.column(name).to_numpy() + first
        end = max(end, int(numbers.max(initial=-1)) + 1)
        rows = with_column(rows, name, pa.array(numbers))
    return rows, end


def _keyed(reduced: ReducedSlice, guarded: bool) -> tuple[pa.Table, StagedFacts]:
    own = np.arange(len(reduced.seek))
    # If every column is kept, no names are listed.
    named = ~reduced.deleted if reduced.marks else np.ones(len(own), dtype=bool)
    elsewhere = np.where(reduced.seek == own, -1, reduced.seek)
    keys = reduced.keys.to_struct_array().combine_chunks() if reduced.keys.num_rows else _no_keys(reduced.keys)
    rows = (
        reduced.rows.append_column(GONE, pa.array(reduced.deleted))
        .append_column(KEEP, keep_names(reduced.keep, named))
        .append_column(KEY, keys)
        .append_column(SEEK, keys.take(indices(elsewhere)))
    )
    seeks = bool((elsewhere >= 0).any())
    names = reduced.index.columns.names
    keeps = tuple(reduced.keep) if not reduced.marks else tuple(n for n, m in reduced.keep.items() if (m & named).any())
    truncated = None if reduced.truncated is None else truncation_facts(reduced.truncated)
    return rows, StagedFacts(
        MergeStrategy.MERGE, guarded, names, keeps, seeks, marks=reduced.marks, truncated=truncated
    )


def truncation_facts(truncation: Truncation) -> tuple[int, int, int | None]:
    """Return a truncate's position for serialization: LSN, index, and its time in microseconds."""
    return truncation.lsn, truncation.index, None if not truncation.at.is_valid else truncation.at.value


def _touches(versions: VersionedSlice, guarded: bool) -> tuple[pa.Table, StagedFacts]:
    keys = versions.keys.to_struct_array().combine_chunks() if versions.keys.num_rows else _no_keys(versions.keys)
    count = len(versions.key)
    place = np.full(count, -1, dtype=np.int64)
    place[versions.begun] = np.arange(len(versions.begun))
    at = indices(place)
    # A key event that only ends a row has its own position, and no other values of a row.
    rows = versions.rows.take(at)
    for name in POSITION:
        rows = with_column(rows, name, versions.at.column(name))
    names = keep_names(versions.keep, np.ones(len(versions.begun), dtype=bool))
    rows = (
        rows.append_column(KEEP, names.take(at))
        .append_column(KEY, keys.take(pa.array(versions.key)))
        .append_column(SEEK, keys.take(indices(versions.seek)).take(at))
        .append_column(NUMBER, pa.array(versions.key))
        .append_column(TOUCH, pa.array(np.arange(count)))
        .append_column(PUT, pa.array(place >= 0))
    )
    truncated = None if versions.truncated is None else truncation_facts(versions.truncated)
    key = versions.index.columns.names
    return rows, StagedFacts(
        MergeStrategy.VERSIONS,
        guarded,
        key,
        tuple(versions.keep),
        bool(versions.keep),
        truncated=truncated,
        found=versions.found,
    )


def _no_keys(keys: pa.Table) -> pa.Array:
    return pa.array([], pa.struct(list(keys.schema)))


def keep_names(keep: Mapping[str, np.ndarray], rows: np.ndarray) -> pa.Array:
    """Return the names of the kept columns of ``rows``, else none. Shape: masks bool[R] each -> list<string>[R]."""
    grid = np.zeros((len(rows), len(keep)), dtype=bool)
    for number, mask in enumerate(keep.values()):
        grid[:, number] = mask & rows
    offsets = np.concatenate(([0], np.cumsum(grid.sum(axis=1)))).astype(np.int32)
    names = pa.array(list(keep), pa.string()).take(pa.array(np.nonzero(grid)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), names, type=_NAMES)


def _with_needs(rows: pa.Table, numbers: np.ndarray, needed: AbsentRows | None) -> pa.Table:
    """Append ``__needs``; ``numbers`` are those of the rows' keys. Shape: table[N], int64[N] -> table[N]"""
    place = np.full(rows.num_rows, -1, dtype=np.int64)
    lsns = pa.array([], pa.int64())
    if needed is not None:
        order = np.argsort(needed.numbers)
        at = np.minimum(np.searchsorted(needed.numbers[order], numbers), len(order) - 1)
        place = np.where(needed.numbers[order][at] == numbers, order[at], -1)
        lsns = pa.array(needed.lsns)
    return rows.append_column(NEEDS, lsns.take(indices(place)))


def _signed(net: NetRows, places: np.ndarray) -> pa.Table:
    gone = net.minus.take(pa.array(places))
    schema = net.plus.schema
    columns = [
        gone.column(each.name) if each.name in gone.schema.names else pa.nulls(gone.num_rows, each.type)
        for each in schema
    ]
    both = pa.concat_tables([net.plus, pa.Table.from_arrays(columns, schema=schema)])
    signs = np.repeat(np.array([1, -1], dtype=np.int32), [net.plus.num_rows, gone.num_rows])
    return both.append_column(SIGN, pa.array(signs))

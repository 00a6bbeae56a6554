"""A prepared slice as rows on storage, for the engine that applies it where copy-on-write would cost too much.

The rows are in the lake's columns and types, so that nothing is left to decide but which lake rows they meet:

    APPEND, REPLACE   the rows as they are
    MULTISET          and ``__sign``: 1 for a row that comes, -1 for one that goes (it has no position)
    MERGE             one row a key, and ``__deleted``, ``__keep`` (columns whose value is the lake's), ``__key`` (a
                      struct of the key's columns, with ``__rescued`` where texts belong to it), and ``__seek``, the
                      same for the key at which the lake has what the row keeps; null unless that is another key
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.sink.delta.changes import Changes, Road
from cdc_core.sink.delta.images import indices
from cdc_core.sink.delta.multiset import NetRows
from cdc_core.sink.delta.reduction import ReducedSlice

DELETED, KEEP, KEY, SEEK, SIGN = "__deleted", "__keep", "__key", "__seek", "__sign"
_NAMES = pa.list_(pa.string())


@dataclass(frozen=True, slots=True)
class StagedFacts:
    """What the other engine must know of staged rows beside themselves.

    ``key``: the key's columns, ``keeps`` those that some row keeps, ``seeks`` whether some row keeps another key's.
    ``came`` and ``lost``: rows of a multiset's slice that came, and those of them that went again before its end.
    """

    road: Road
    guarded: bool
    key: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    seeks: bool = False
    came: int = 0
    lost: int = 0


def staged(changes: Changes) -> tuple[pa.Table, StagedFacts]:
    """The rows to be written, and what must be told beside them."""
    if changes.reduced is not None:
        return _keyed(changes.reduced, changes.guarded)
    if changes.net is not None:
        net = changes.net
        lost = net.came - net.plus.num_rows
        return _signed(net), StagedFacts(Road.MULTISET, changes.guarded, came=net.came, lost=lost)
    assert changes.plus is not None
    return changes.plus, StagedFacts(changes.road, changes.guarded)


def _keyed(reduced: ReducedSlice, guarded: bool) -> tuple[pa.Table, StagedFacts]:
    own = np.arange(len(reduced.seek))
    elsewhere = np.where(reduced.seek == own, -1, reduced.seek)
    keys = reduced.keys.to_struct_array().combine_chunks() if reduced.keys.num_rows else _no_keys(reduced.keys)
    rows = (
        reduced.rows.append_column(DELETED, pa.array(reduced.deleted))
        .append_column(KEEP, _keep_names(reduced))
        .append_column(KEY, keys)
        .append_column(SEEK, keys.take(indices(elsewhere)))
    )
    seeks = bool((elsewhere >= 0).any())
    names = reduced.index.columns.names
    return rows, StagedFacts(Road.MERGE, guarded, names, tuple(reduced.keep), seeks)


def _no_keys(keys: pa.Table) -> pa.Array:
    return pa.array([], pa.struct(list(keys.schema)))


def _keep_names(reduced: ReducedSlice) -> pa.Array:
    """The names of each row's kept columns. Shape: masks bool[R] each -> list<string>[R], never null."""
    count = len(reduced.deleted)
    grid = np.zeros((count, len(reduced.keep)), dtype=bool)
    for number, mask in enumerate(reduced.keep.values()):
        grid[:, number] = mask
    offsets = np.concatenate(([0], np.cumsum(grid.sum(axis=1)))).astype(np.int32)
    names = pa.array(list(reduced.keep), pa.string()).take(pa.array(np.nonzero(grid)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), names, type=_NAMES)


def _signed(net: NetRows) -> pa.Table:
    places = np.repeat(np.arange(len(net.times)), net.times)
    gone = net.minus.take(pa.array(places))
    schema = net.plus.schema
    columns = [
        gone.column(each.name) if each.name in gone.schema.names else pa.nulls(gone.num_rows, each.type)
        for each in schema
    ]
    both = pa.concat_tables([net.plus, pa.Table.from_arrays(columns, schema=schema)])
    signs = np.repeat(np.array([1, -1], dtype=np.int32), [net.plus.num_rows, gone.num_rows])
    return both.append_column(SIGN, pa.array(signs))

"""The values of rows at some of the touches of their keys.

A truncate itself touches no key. For delete modes that keep deleted rows it is converted to a delete of every key of
the slice that has a row then, and a ``Truncation`` for the lake rows whose keys are not in the slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.row_lineage import History, Touches, lineages


@dataclass(frozen=True, slots=True)
class Truncation:
    """The position of a truncate: it ends every row that the lake has until then."""

    lsn: int
    index: int
    at: pa.Scalar


@dataclass(frozen=True, slots=True)
class KnownStates:
    """A row's state at each requested touch, as far as the slice contains it.

    ``base`` is the change row with the row's newest image by then, ``sources`` a different one for columns that this
    one left unsent; -1 if the slice has none. ``keep`` maps the columns whose value is the lake's to a mask of the
    touches for which this is so, and ``seek`` is the number of the key at which the lake has that row, -1 for none.
    Shape: [A] each.
    """

    base: np.ndarray
    sources: dict[str, np.ndarray]
    keep: dict[str, np.ndarray]
    seek: np.ndarray

    def spread(self, places: np.ndarray, count: int) -> KnownStates:
        """Return the states of ``count`` touches: these at ``places``, none (-1, nothing kept) at all others.

        Shape: int64[A] -> [count] each
        """
        if len(places) == count:
            return self

        def widened(values: np.ndarray, other: int | bool) -> np.ndarray:
            out = np.full(count, other, dtype=values.dtype)
            out[places] = values
            return out

        return KnownStates(
            widened(self.base, -1),
            {name: widened(row, -1) for name, row in self.sources.items()},
            {name: widened(mask, False) for name, mask in self.keep.items()},
            widened(self.seek, -1),
        )


def known_states(
    touches: Touches, asked: np.ndarray, unsent: dict[str, np.ndarray], columns: Sequence[str]
) -> KnownStates:
    """Return the states of rows at ``asked``; at a touch that removed the row, its previous state.

    ``columns`` are those of an image, ``unsent`` masks the change rows that omit one. Shape: int64[A], bool[N] each.
    """
    if not unsent and not touches.deleted[asked].any():
        # The usual case: every touch wrote the whole row.
        return KnownStates(touches.row[asked], {}, {}, np.full(len(asked), -1, dtype=np.int64))
    history = History.of(lineages(touches), asked)
    puts = ~touches.deleted
    found = history.latest(puts)
    bare = found < 0
    sources: dict[str, np.ndarray] = {}
    keep: dict[str, np.ndarray] = {name: bare for name in columns if name not in unsent and bare.any()}
    kept = bare.copy()
    for name, mask in unsent.items():
        last = history.latest(puts & ~mask[touches.row])
        sources[name] = np.where(last >= 0, touches.row[last], -1)
        if (last < 0).any():
            keep[name] = last < 0
            kept |= last < 0
    seek = np.full(len(asked), -1, dtype=np.int64)
    seek[kept] = touches.key[history.first[kept]] if len(asked) else seek[kept]
    return KnownStates(np.where(bare, -1, touches.row[found]), sources, keep, seek)


def next_of_key(key: np.ndarray) -> np.ndarray:
    """Return the next touch of the same key for each touch, -1 for none. Shape: int64[T] -> int64[T]."""
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    out = np.full(len(key), -1, dtype=np.int64)
    out[order[:-1][same]] = order[1:][same]
    return out


def with_truncates(touches: Touches, keys: int) -> Touches:
    """Convert truncates (touches without a key, -1) to deletes of the keys that may have a row then.

    These are the keys with a row written by the slice, and at the first truncate those that the slice touches only
    later.
    """
    cuts = np.flatnonzero(touches.key < 0)
    if not len(cuts):
        return touches
    real = np.flatnonzero(touches.key >= 0)
    following = next_of_key(touches.key)
    first = np.full(keys, len(touches.key), dtype=np.int64)
    first[touches.key[real][::-1]] = real[::-1]  # of equal keys the first index is kept
    puts = real[~touches.deleted[real]]
    at = np.searchsorted(cuts, puts)
    ends = np.where(following[puts] < 0, len(touches.key), following[puts])
    cut = np.append(cuts, len(touches.key))[at]
    ended = cut < ends
    late = np.flatnonzero((first > cuts[0]) & (first < len(touches.key)))
    places = np.concatenate([real, cut[ended], np.full(len(late), cuts[0])])
    key = np.concatenate([touches.key[real], touches.key[puts[ended]], late])
    extra = np.zeros(len(key) - len(real), dtype=bool)
    order = np.argsort(places, kind="stable")
    return Touches(
        key[order],
        touches.row[places[order]],
        np.concatenate([touches.deleted[real], ~extra])[order],
        np.concatenate([touches.moved[real], extra])[order],
        np.concatenate([touches.begins[real], extra])[order],
    )


def truncation_of(rows: pa.Table, truncates: np.ndarray) -> Truncation | None:
    """Return the first truncate of change rows in stream order; None if there is none."""
    found = np.flatnonzero(truncates)
    if not len(found):
        return None
    lsn, index, at = (column(rows, name)[int(found[0])] for name in ("__commit_lsn", "__tx_index", "__commit_ts"))
    return Truncation(lsn.as_py(), index.as_py(), at)

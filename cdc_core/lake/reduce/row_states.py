"""The values of rows at some of the key events of their keys.

A truncate itself touches no key. For delete modes that keep deleted rows it is converted to a delete of every key of
the slice that has a row then. The lake rows whose keys are not in the slice are ended by the slice's first
``Truncation`` (``lake/apply/truncated``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Ints
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.row_lineage import KeyEventHistory, KeyEvents, lineages


@dataclass(frozen=True, slots=True)
class Truncation:
    """The position of a truncate: it ends every row that the lake has until then."""

    lsn: int
    index: int
    at: pa.Scalar


@dataclass(frozen=True, slots=True)
class KnownStates:
    """A row's state at each requested key event, as far as the slice contains it.

    ``base`` is the change row with the row's newest image by then, ``sources`` a different one for columns that this
    one left unsent; -1 if the slice has none. ``keep`` maps the columns whose value is the lake's to a mask of the
    key events for which this is so, and ``seek`` is the number of the key at which the lake has that row, -1 for none.
    Shape: [A] each.
    """

    base: np.ndarray
    sources: dict[str, np.ndarray]
    keep: dict[str, np.ndarray]
    seek: np.ndarray

    def spread(self, places: np.ndarray, count: int) -> KnownStates:
        """Return the states of ``count`` key events: these at ``places``, none (-1, nothing kept) at all others.

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
    key_events: KeyEvents, asked: np.ndarray, unsent: dict[str, np.ndarray], columns: Sequence[str]
) -> KnownStates:
    """Return the states of rows at ``asked``; at a key event that removed the row, its previous state.

    ``columns`` are those of an image, ``unsent`` masks the change rows that omit one. Shape: int64[A], bool[N] each.
    """
    if not unsent and not key_events.deleted[asked].any():
        # The usual case: every key event wrote the whole row.
        return KnownStates(key_events.row[asked], {}, {}, np.full(len(asked), -1, dtype=np.int64))
    history = KeyEventHistory.of(lineages(key_events), asked)
    upserts = ~key_events.deleted
    newest = history.latest(upserts)
    bare = newest < 0
    sources: dict[str, np.ndarray] = {}
    keep: dict[str, np.ndarray] = {name: bare for name in columns if name not in unsent and bare.any()}
    kept = bare.copy()
    for name, mask in unsent.items():
        last = history.latest(upserts & ~mask[key_events.row])
        sources[name] = np.where(last >= 0, key_events.row[last], -1)
        if (last < 0).any():
            keep[name] = last < 0
            kept |= last < 0
    seek = np.full(len(asked), -1, dtype=np.int64)
    seek[kept] = key_events.key[history.first[kept]] if len(asked) else seek[kept]
    return KnownStates(np.where(bare, -1, key_events.row[newest]), sources, keep, seek)


def next_of_key(key: np.ndarray) -> Ints:
    """Return the next key event of the same key for each key event, -1 for none. Shape: int64[T] -> int64[T]."""
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    out = np.full(len(key), -1, dtype=np.int64)
    out[order[:-1][same]] = order[1:][same]
    return out


def with_truncates(key_events: KeyEvents, keys: int) -> KeyEvents:
    """Convert truncates (key events without a key, -1) to deletes of the keys that may have a row then.

    These are the keys with a row written by the slice, and at the first truncate those that the slice touches only
    later.
    """
    cuts = np.flatnonzero(key_events.key < 0)
    if not len(cuts):
        return key_events
    real = np.flatnonzero(key_events.key >= 0)
    following = next_of_key(key_events.key)
    first = np.full(keys, len(key_events.key), dtype=np.int64)
    first[key_events.key[real][::-1]] = real[::-1]  # of equal keys the first index is kept
    upserts = real[~key_events.deleted[real]]
    at = np.searchsorted(cuts, upserts)
    ends = np.where(following[upserts] < 0, len(key_events.key), following[upserts])
    cut = np.append(cuts, len(key_events.key))[at]
    ended = cut < ends
    late = np.flatnonzero((first > cuts[0]) & (first < len(key_events.key)))
    places = np.concatenate([real, cut[ended], np.full(len(late), cuts[0])])
    key = np.concatenate([key_events.key[real], key_events.key[upserts[ended]], late])
    extra = np.zeros(len(key) - len(real), dtype=bool)
    order = np.argsort(places, kind="stable")
    return KeyEvents(
        key[order],
        key_events.row[places[order]],
        np.concatenate([key_events.deleted[real], ~extra])[order],
        np.concatenate([key_events.moved[real], extra])[order],
        np.concatenate([key_events.begins[real], extra])[order],
    )


def truncation_of(truncates: pa.Table) -> Truncation | None:
    """Return the first of change rows that are truncates, in stream order; None if there are none."""
    if not truncates.num_rows:
        return None
    lsn, index, at = (column(truncates, name)[0] for name in ("__commit_lsn", "__tx_index", "__commit_ts"))
    return Truncation(lsn.as_py(), index.as_py(), at)

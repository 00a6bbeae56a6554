"""Rows of a change data feed: rows of a lake table, each with the kind of its change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Ints
from cdc_core.lake.delete_columns import POSITION, mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.row_keys import KeyColumns

CHANGE_TYPE = "_change_type"
"""The column with the kind of a row's change; the kinds are Delta's."""
DELETE, BEFORE, AFTER, INSERT = "delete", "update_preimage", "update_postimage", "insert"


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """What a row is identified by. ``key``: None if by all of its values."""

    key: KeyColumns | None
    more: tuple[str, ...]

    @classmethod
    def of(cls, schema: pa.Schema, key: Sequence[str]) -> RowIdentity:
        """Return the identity of rows with a key, or without one."""
        if not key:
            return cls(None, tuple(schema.names))
        return cls(KeyColumns.of(key, schema), POSITION[:2] if mode_of(schema.names) is DeleteMode.HISTORY else ())

    def columns(self, rows: pa.Table) -> list[pa.Array]:
        """Return the values by which rows are identified."""
        own = [] if self.key is None else list(self.key.parts(rows))
        return own + [column(rows, name) for name in self.more]


def of_kind(rows: pa.Table, kind: str) -> pa.Table:
    """Return rows with the kind of their change. Shape: table[N] -> table[N]"""
    return rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind), rows.num_rows))


def updates(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return both images of the rows that differ in a column. Shape: table[N], table[N] -> table[2 * D]"""
    changed = pa.array(differing(before, after))
    return pa.concat_tables([of_kind(before.filter(changed), BEFORE), of_kind(after.filter(changed), AFTER)])


def differing(before: pa.Table, after: pa.Table) -> Bools:
    """Return which rows differ from those at the same places. Shape: table[N], table[N] -> bool[N]"""
    differs = np.zeros(before.num_rows, dtype=bool)
    for name in POSITION[:2]:  # a later change has another one, and integers are compared at once
        if name in before.schema.names:
            is_other = pc.not_equal(column(before, name), column(after, name)).fill_null(False)
            differs |= is_other.to_numpy(zero_copy_only=False)
    rest = np.flatnonzero(~differs)
    if len(rest):
        rows = pa.concat_tables([side.take(pa.array(rest)) for side in (before, after)])
        _, codes = Tuples.number([column(rows, name) for name in rows.schema.names], exact=True)
        differs[rest] = codes[: len(rest)] != codes[len(rest) :]
    return differs


def row_changes(old: pa.Table, new: pa.Table, identity: RowIdentity) -> pa.Table:
    """Return the changes from old rows to new ones. Shape: old[O], new[N] -> rows[C] with their kinds of change"""
    partners = None if identity.key is None else _partners(old, new, identity)
    if partners is None:
        stays = equal_rows(old, new, old.schema.names)
        old, new = (rows.filter(pa.array(~mask)) for rows, mask in zip((old, new), stays, strict=True))
        is_before, is_after = np.zeros(old.num_rows, dtype=bool), np.zeros(new.num_rows, dtype=bool)
        if identity.key is not None:
            is_before, is_after = _matched(old, new, identity.columns, exact=False)
    else:
        # A row can only be equal to that of its identity.
        mine, theirs = partners
        differs = differing(old.take(pa.array(mine)), new.take(pa.array(theirs)))
        (old, is_before), (new, is_after) = _without(old, mine, differs), _without(new, theirs, differs)
    kinds = np.concatenate([np.where(is_before, BEFORE, DELETE), np.where(is_after, AFTER, INSERT)])
    return pa.concat_tables([old, new]).append_column(CHANGE_TYPE, pa.array(kinds, pa.string()))


def _partners(old: pa.Table, new: pa.Table, identity: RowIdentity) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the places of the rows of one identity; None if some are identified as others of their side are.

    Shape: old[O], new[N] -> int64[P], int64[P]
    """
    _, codes = Tuples.number(identity.columns(pa.concat_tables([old, new])), exact=False)
    mine, theirs = codes[: old.num_rows], codes[old.num_rows :]
    at = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    at[theirs] = np.arange(len(theirs))
    if np.count_nonzero(at >= 0) < len(theirs) or np.bincount(mine, minlength=1).max() > 1:
        return None
    places = np.flatnonzero(at[mine] >= 0)
    return places, at[mine[places]]


def _without(rows: pa.Table, partners: np.ndarray, differs: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """Return rows without those that do not differ from their partner, and which of them have one."""
    has_partner, goes = np.zeros(rows.num_rows, dtype=bool), np.zeros(rows.num_rows, dtype=bool)
    has_partner[partners], goes[partners] = True, ~differs
    return (rows.filter(pa.array(~goes)) if goes.any() else rows), has_partner[~goes]


def equal_rows(old: pa.Table, new: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows have an equal one on the other side, in these columns, each another one.

    Shape: old[O], new[N] -> bool[O], bool[N]
    """
    return _matched(old, new, lambda rows: [column(rows, name) for name in names], exact=True)


def _matched(
    old: pa.Table, new: pa.Table, values: Callable[[pa.Table], list[pa.Array]], *, exact: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows have an equal one on the other side, each another one. Shape: bool[O], bool[N]"""
    rows = pa.concat_tables([old, new])
    _, codes = Tuples.number(values(rows), exact)
    mine, theirs = codes[: old.num_rows], codes[old.num_rows :]
    count = int(codes.max(initial=-1)) + 1
    return _repeats(mine) < np.bincount(theirs, minlength=count)[mine], _repeats(theirs) < np.bincount(
        mine, minlength=count
    )[theirs]


def _repeats(codes: np.ndarray) -> Ints:
    """Return how often each number is at earlier places. Shape: int64[N] -> int64[N]"""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    repeats = np.empty(len(codes), dtype=np.int64)
    repeats[order] = np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    return repeats

"""An update that changes a row's key as two changes: a delete at the old key, and an insert at the new one.

In a table without a key the content identifies a row, so there every update is such a change. The two have nothing to
do with each other as long as the new image is complete: a rule that refuses the new row does not keep the old one,
which the source has no more. An image that leaves out values (TOAST) takes them from the row at the old key; such a
change stays one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.lake.reduce.latest import changed_keys
from cdc_core.lake.rows.images import chosen, column, validity
from cdc_core.lake.rows.survey import in_order, is_op


def complete_updates(rows: pa.Table) -> Bools:
    """Return the updates with an old row, and a new one that leaves nothing out. Shape: change rows[N] -> bool[N]."""
    left_out = pc.fill_null(pc.list_value_length(column(rows, "__unchanged")), 0).to_numpy(zero_copy_only=False)
    return np.asarray(is_op(rows, "u") & validity(column(rows, "before")) & (left_out == 0))


def key_changes(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> Bools:
    """Return which change rows can be divided. ``key`` is empty for a multiset, ``schema`` the lake's.

    Shape: change rows[N] -> bool[N]
    """
    changes = complete_updates(rows)
    if key and changes.any():
        some = changed_keys(rows.filter(pa.array(changes)), key, schema)
        changes[changes] = some.removals >= 0
    return changes


def removals_of(rows: pa.Table, which: Bools) -> pa.Table:
    """Return the deletes of the old rows of ``which`` change rows. Shape: change rows[N], bool[N] -> change rows[M]"""
    some = rows.filter(pa.array(which))
    made = {
        "__op": pa.repeat(pa.scalar("d", rows.schema.field("__op").type), some.num_rows),
        "__unchanged": pa.array([[]] * some.num_rows, rows.schema.field("__unchanged").type),
        "after": pa.nulls(some.num_rows, rows.schema.field("after").type),
    }
    for name, values in made.items():
        some = some.set_column(some.schema.get_field_index(name), rows.schema.field(name), values)
    return some


def as_inserts(rows: pa.Table, which: Bools) -> pa.Table:
    """Make some change rows inserts of their new rows. Shape: change rows[N], bool[N] -> change rows[N]"""
    if not which.any():
        return rows
    count = rows.num_rows
    made = {
        "__op": pa.repeat(pa.scalar("c", rows.schema.field("__op").type), count),
        "before": pa.nulls(count, rows.schema.field("before").type),
    }
    for name, values in made.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(name), chosen(which, values, column(rows, name)))
    return rows


def without_refused(rows: pa.Table, refused: Bools, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return what is merged of change rows of which rules refused some: the old rows are gone of those, too.

    In stream order.
    """
    if not refused.any():
        return rows
    lost = rows.filter(pa.array(refused))
    gone = removals_of(lost, key_changes(lost, key, schema))
    return in_order(pa.concat_tables([gone, rows.filter(pa.array(~refused))]))


@dataclass(frozen=True, slots=True)
class Apart:
    """What change rows are divided into: ``moved`` ones are inserts, and ``removals`` are deletes of their old rows.

    Of a part of a slice, the removals are those at its keys, of changes that may be in another part. Shape: bool[N],
    change rows[M]
    """

    moved: Bools
    removals: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> Apart:
        """Divide change rows; see ``key_changes``."""
        moved = key_changes(rows, key, schema)
        return cls(moved, removals_of(rows, moved))

    def joined(self, rows: pa.Table) -> pa.Table:
        """Return the rows as they are divided, in stream order."""
        return in_order(pa.concat_tables([self.removals, as_inserts(rows, self.moved)]))

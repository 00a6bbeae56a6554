"""Finds rows of a lake table that refer to a missing row of another lake table, or of the same one.

Both tables are merged up to the same LSN. Only rows written by changes since some LSN are checked, and of the other
table only files whose statistics allow one of the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_columns import POSITION, is_live, live_column, mode_of
from cdc_core.lake.delta.candidates import Content, Ranges
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column, validity
from cdc_core.lake.schema.lake_schema import holds


@dataclass(frozen=True, slots=True)
class Missing:
    """Of ``checked`` rows that refer to a row, ``missing`` refer to one that does not exist."""

    checked: int = 0
    missing: int = 0


def missing_parents(
    child: Content, columns: Sequence[str], since: int, parent: Content, parent_columns: Sequence[str]
) -> Missing | None:
    """Count the child's live rows written by changes after the LSN ``since``, and those without a parent row.

    A row with a null in one of ``columns`` refers to none. None if the two tables' columns cannot be compared: one is
    missing, or of another type.
    """
    mine, theirs = _found(child.schema, columns), _found(parent.schema, parent_columns)
    kinds = [
        _common(child.schema.field(a).type, parent.schema.field(b).type) for a, b in zip(mine, theirs, strict=False)
    ]
    if len(mine) < len(columns) or len(theirs) < len(parent_columns) or None in kinds:
        return None
    wanted = pa.schema(list(zip(theirs, kinds, strict=True)))
    rows = _written_since(child, mine, since, wanted)
    if not rows.num_rows:
        return Missing()
    coder, codes = Tuples.number([column(rows, name) for name in theirs])
    times = np.bincount(codes)
    place = np.zeros(len(times), dtype=np.int64)
    place[codes] = np.arange(len(codes))
    sought = Ranges.of(rows.take(pa.array(place)), theirs)
    there = times == 0
    for file in parent.files:
        if there.all():
            break
        if file.is_history or not sought.may_be_in(file):
            continue
        held = _live(parent, parent.read(file, [*theirs, *_live_columns(parent)])).select(theirs).cast(wanted)
        known = coder.codes([column(held, name) for name in theirs])
        there[known[known >= 0]] = True
    return Missing(rows.num_rows, int(times[~there].sum()))


def _written_since(child: Content, names: list[str], since: int, wanted: pa.Schema) -> pa.Table:
    """Return the non-null values of live rows written by changes; rows written by a snapshot are left out."""
    lsn, index = POSITION[:2]
    parts = []
    for file in child.files:
        if file.is_history or file.maximum.get(lsn, since + 1) <= since:
            continue
        rows = child.read(file, list(dict.fromkeys([*names, lsn, index, *_live_columns(child)])))
        late = (column(rows, lsn).fill_null(0).to_numpy() > since) & (column(rows, index).fill_null(-1).to_numpy() >= 0)
        rows = _live(child, rows.filter(pa.array(late)))
        whole = np.ones(rows.num_rows, dtype=bool)
        for name in names:
            whole &= validity(column(rows, name))
        # A column of the table may occur twice in a foreign key.
        values = [column(rows, name).filter(pa.array(whole)) for name in names]
        parts.append(
            pa.Table.from_arrays([v.cast(k) for v, k in zip(values, wanted.types, strict=True)], schema=wanted)
        )
    return pa.concat_tables(parts).combine_chunks() if parts else wanted.empty_table()


def _live_columns(content: Content) -> list[str]:
    name = live_column(mode_of(content.schema.names))
    return [] if name is None else [name]


def _live(content: Content, rows: pa.Table) -> pa.Table:
    return rows.filter(pa.array(is_live(rows))) if _live_columns(content) else rows


def _found(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return the existing columns by their names in the lake, compared without regard to case."""
    by_name = {each.lower(): each for each in schema.names}
    return [by_name[name.lower()] for name in names if name.lower() in by_name]


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a type that represents the values of both; None if there is none."""
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return one if one.equals(other) else pa.int64()
    if holds(other, one):
        return other
    return one if holds(one, other) else None

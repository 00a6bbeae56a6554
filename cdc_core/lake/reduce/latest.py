"""Reduces change rows to the last state of each key, by the rules that make a replayed lake equal its source.

Every event *touches* keys: an insert or update writes a row at a key, a delete removes it, and an update that changed
the key does both, at two keys. Between two key events of a key by the same row nothing else can touch it, because the
source's key is unique. So the last key event of each key determines what the lake must have there, regardless of the
row's origin: chains (a→b→c) and swaps over a third key need no special case.

An update may omit a TOASTed column because it did not change. Its value is then the last one sent for that *row*: by
the same key's earlier key event, or before a key change the old key's (``row_lineage``), or, if there is none in this
slice, the lake's, at the row's first key. After an insert every column is known, so no value is taken from a previous
row at the same key. ``__rescued`` is part of each column's value and is treated in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.delta.conform import conform
from cdc_core.lake.names import META, OWN_NAMES, RESCUED
from cdc_core.lake.reduce.expected_rows import ExpectedRows
from cdc_core.lake.reduce.row_states import known_states
from cdc_core.lake.rows.images import (
    chosen,
    column,
    image,
    indices,
    rescued_of,
    texts_of,
    validity,
)
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.rows.row_lineage import KeyEvents
from cdc_core.lake.rows.survey import in_order, is_op, unsent


@dataclass(frozen=True, slots=True)
class ReducedSlice:
    """One row per key, in the lake's schema: what the lake must have there after the slice.

    ``index`` contains the keys and numbers them like the rows; ``keys`` contains each one's columns (and
    ``__rescued``). Where ``deleted``, the lake must have no row; then only the position of ``rows`` is used. ``keep``
    maps columns whose value (and text) is the lake's to a mask of the rows for which this is so; ``seek`` is the number
    of the key at which that lake row was before the slice, -1 for a row that keeps nothing. It is the row's own number
    unless the row changed its key. A missing lake row results in nulls, and is one of those that are ``expected``.
    Shape: keys, rows, deleted, seek and the masks of keep are all [R].
    ``marks``: the table keeps deleted rows (``soft``). Then ``deleted`` means that only the key of a row to be marked
    is known.
    """

    index: KeyIndex
    keys: pa.Table
    rows: pa.Table
    deleted: np.ndarray
    keep: dict[str, np.ndarray]
    seek: np.ndarray
    expected: ExpectedRows
    marks: bool = False


def image_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the lake's schema that an image can have: all but the metadata columns."""
    return pa.schema([field for field in schema if field.name not in OWN_NAMES])


def reduce_slice(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> ReducedSlice:
    """Return the last state of each key (see the module's docstring).

    ``rows`` are change rows without truncates, in any order; ``schema`` is the lake's, which contains all their
    columns.
    """
    events = SliceEvents.of(rows, key, schema)
    key_events, upserts = events.key_events, events.upserts
    last = key_events.last(events.keys.num_rows)
    # As in delete mode soft (``soft``), but a row that is removed has no state.
    exist = np.flatnonzero(~key_events.deleted[last])
    known = known_states(key_events, last[exist], upserts.unsent, events.image_names).spread(exist, len(last))
    own = events.rows.select([field.name for field in META]).take(pa.array(key_events.row[last]))
    made = state_rows(upserts, known.sources, known.base, schema, own)
    expected = ExpectedRows.of(key_events, events.rows, events.truncates, events.keys.num_rows)
    return ReducedSlice(events.index, events.keys, made, known.base < 0, known.keep, known.seek, expected)


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """The numbers of the keys that change rows touch, -1 for none: where each writes a row, and where it removes one.

    ``incomplete``: the new image omits columns, so it depends on the previous version of the row. ``count``: the number
    of keys. Shape: [N] each
    """

    upserts: np.ndarray
    removals: np.ndarray
    incomplete: np.ndarray
    count: int


def changed_keys(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> ChangedKeys:
    """Return the keys touched by change rows of any operation; ``schema`` is the lake's, with all their columns."""
    columns = KeyColumns.of(key, schema)
    upserts = Upserts.of(rows, columns, image_schema(schema))
    deletes = is_op(rows, "d")
    _, keys, new, old = numbered_keys(rows, columns, upserts, deletes)
    removals = np.where(deletes | (is_op(rows, "u") & (old != new)), old, -1)
    incomplete = np.zeros(rows.num_rows, dtype=bool)
    for mask in upserts.unsent.values():
        incomplete |= mask
    new[is_op(rows, "t")] = -1
    return ChangedKeys(new, removals, incomplete, keys.num_rows)


@dataclass(frozen=True, slots=True)
class Upserts:
    """The new images: columns in the lake's types, texts by column, and masks of unsent values. Shape: [N] each."""

    columns: pa.Table
    texts: dict[str, pa.Array]
    unsent: dict[str, np.ndarray]

    @classmethod
    def of(cls, rows: pa.Table, key: KeyColumns, schema: pa.Schema) -> Upserts:
        """Collect the new images; an unsent key value (unchanged, stored out of line) is taken from the old tuple."""
        after = conform(image(rows, "after"), schema)
        texts = texts_of(column(after, RESCUED))
        names = {field.name.lower(): field.name for field in schema}
        lost = {names[name.lower()]: mask for name, mask in unsent(rows).items() if name.lower() in names}
        for name in [name for name in key.names if name in lost]:
            mask = lost.pop(name) & validity(column(rows, "before"))
            before = conform(image(rows, "before"), schema)
            value = chosen(mask, column(before, name), column(after, name))
            after = after.set_column(after.schema.get_field_index(name), after.schema.field(name), value)
            none = pa.nulls(rows.num_rows, pa.string())
            text = chosen(mask, texts_of(column(before, RESCUED)).get(name, none), texts.get(name, none))
            texts = {**texts, name: text}
        return cls(after, texts, lost)


@dataclass(frozen=True, slots=True)
class SliceEvents:
    """The change rows of a slice in stream order, and what each of them touches.

    ``index`` and ``keys`` are as in ``ReducedSlice``. ``key_events`` are at these keys; a truncate has none, so
    its event is a delete at key -1. ``truncates`` tells which rows are truncates. Shape: rows[N], upserts[N],
    truncates[N], keys[K]
    """

    rows: pa.Table
    upserts: Upserts
    index: KeyIndex
    keys: pa.Table
    key_events: KeyEvents
    truncates: np.ndarray

    @classmethod
    def of(cls, rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> SliceEvents:
        """``rows`` are change rows in any order; ``schema`` is the lake's, whose columns hold theirs."""
        rows = in_order(rows)
        columns = KeyColumns.of(key, schema)
        upserts = Upserts.of(rows, columns, image_schema(schema))
        truncates = is_op(rows, "t")
        deletes = is_op(rows, "d") | truncates
        index, keys, new, old = numbered_keys(rows, columns, upserts, deletes)
        return cls(rows, upserts, index, keys, KeyEvents.of(new, old, deletes, is_op(rows, "u")), truncates)

    @property
    def image_names(self) -> list[str]:
        """The lake's names of the columns that an image has."""
        return [name for name in self.upserts.columns.column_names if name != RESCUED]


def numbered_keys(
    rows: pa.Table, key: KeyColumns, upserts: Upserts, deletes: np.ndarray
) -> tuple[KeyIndex, pa.Table, np.ndarray, np.ndarray]:
    """Return the slice's distinct keys, and the numbers of each row's new and old key, -1 for none."""
    has_old = validity(column(rows, "before"))
    into, out = np.flatnonzero(~deletes), np.flatnonzero(has_old)
    schema = pa.schema([upserts.columns.schema.field(name) for name in key.read])
    after = upserts.columns.select(key.read)
    if any(key.with_text) and upserts.texts:
        rescued = rescued_of({name: upserts.texts[name] for name in key.names if name in upserts.texts}, rows.num_rows)
        after = after.set_column(after.num_columns - 1, after.schema.field(RESCUED), rescued)
    parts = [after if len(into) == rows.num_rows else after.take(pa.array(into))]
    if len(out):
        before = conform(image(rows, "before"), schema)
        parts.append(before if len(out) == rows.num_rows else before.take(pa.array(out)))
    every = pa.concat_tables(parts).combine_chunks()
    index, codes = KeyIndex.of(key, every)
    new, old = np.full(rows.num_rows, -1, dtype=np.int64), np.full(rows.num_rows, -1, dtype=np.int64)
    new[into], old[out] = codes[: len(into)], codes[len(into) :]
    place = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    place[codes] = np.arange(len(codes))
    return index, every.take(pa.array(place)), new, old


def images_of_keys(
    rows: pa.Table, key: KeyColumns | None, schema: pa.Schema
) -> tuple[list[pa.Array], list[pa.Array], np.ndarray]:
    """Return the values that identify each change's new row and its old one, and whether it has an old one.

    They are the key's, or all columns of ``schema`` (the lake's, see ``image_schema``) for a multiset (None).
    """
    has_old = validity(column(rows, "before"))
    if key is None:
        new, old = (conform(image(rows, name), schema) for name in ("after", "before"))
        return [column(new, name) for name in schema.names], [column(old, name) for name in schema.names], has_old
    some = pa.schema([schema.field(name) for name in [*key.names, RESCUED]])
    upserts = Upserts.of(rows, key, some)
    after = upserts.columns
    if any(key.with_text) and upserts.texts:
        rescued = rescued_of({name: upserts.texts[name] for name in key.names if name in upserts.texts}, rows.num_rows)
        after = after.set_column(after.num_columns - 1, some.field(RESCUED), rescued)
    return key.parts(after), key.parts(conform(image(rows, "before"), some)), has_old


def state_rows(
    upserts: Upserts, sources: dict[str, np.ndarray], source: np.ndarray, schema: pa.Schema, own: pa.Table
) -> pa.Table:
    """Return rows in the lake's schema: images of the change rows ``source`` (-1 for nulls), and metadata columns.

    ``sources`` gives a different change row for some columns. Shape: int64[R] each, own[R] -> table[R]
    """
    plain = indices(source)
    at = {name: indices(places) for name, places in sources.items()}
    texts = {name: values.take(at.get(name, plain)) for name, values in upserts.texts.items()}
    arrays = []
    for field in schema:
        if field.name == RESCUED:
            arrays.append(rescued_of(texts, len(source)))
        elif field.name in own.schema.names:
            arrays.append(column(own, field.name))
        else:
            arrays.append(column(upserts.columns, field.name).take(at.get(field.name, plain)))
    return pa.Table.from_arrays(arrays, schema=schema)

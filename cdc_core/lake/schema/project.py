"""Converts rows of one schema version of a table to the next: renamed, widened, filled, by column.

The same projection is used for the lake table's rows and the images of change rows decoded under an older schema
version, so the result does not depend on whether a row's last event is before or after the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.names import OWN_NAMES, RESCUED
from cdc_core.lake.rows.images import column, rescued_of, texts_of, validity


@dataclass(frozen=True, slots=True)
class StepColumn:
    """One column after a step: the values of ``source`` (a column before it), else ``value`` in every row.

    ``text`` is the constant's text if its type cannot represent it: the value is then null, and ``__rescued`` contains
    the text.
    """

    name: str
    source: str | None
    type: pa.DataType
    value: pa.Scalar | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """From one schema version to the next: every column of the lake after it, in order, except metadata columns."""

    number: int
    columns: tuple[StepColumn, ...]

    def unfilled(self) -> SchemaStep:
        """Return the step that leaves new columns null instead of filling them."""
        return SchemaStep(self.number, tuple(replace(column, value=None, text=None) for column in self.columns))

    def only_adds_nulls(self, columns: Mapping[str, pa.DataType]) -> bool:
        """Whether existing rows remain valid: every one of ``columns`` stays, and new ones are null."""
        kept = {
            step_column.name
            for step_column in self.columns
            if step_column.source == step_column.name and columns.get(step_column.name) == step_column.type
        }
        added = [
            step_column
            for step_column in self.columns
            if step_column.source != step_column.name or step_column.name not in columns
        ]
        return kept == set(columns) and all(
            step_column.source is None and step_column.value is None and step_column.text is None
            for step_column in added
        )


def project_rows(rows: pa.Table, step: SchemaStep) -> pa.Table:
    """Convert lake rows (or flattened images) to the next schema version. Metadata columns are last and unchanged."""
    return _projected(rows, step, np.ones(rows.num_rows, dtype=bool))


def project_changes(changes: pa.Table, steps: Sequence[SchemaStep]) -> pa.Table:
    """Convert change rows of an older schema version to the last step's schema version. Shape: table[N] -> table[N]."""
    for step in steps:
        for image in ("before", "after"):
            struct = column(changes, image)
            is_there = validity(struct)
            flat = pa.Table.from_arrays(struct.flatten(), names=[field.name for field in struct.type])
            moved = _projected(flat, step, is_there)
            made = pa.StructArray.from_arrays(
                [column(moved, name) for name in moved.schema.names],
                fields=[pa.field(field.name, field.type) for field in moved.schema],
                mask=pa.array(~is_there),
            )
            at = changes.schema.get_field_index(image)
            changes = changes.set_column(at, pa.field(image, made.type), made)
        changes = _renamed_unchanged(changes, step)
    return changes


@dataclass(frozen=True, slots=True)
class Traced:
    """A column after all steps: from ``source`` before the first of them, else new.

    ``is_filled``: it is new, and existing rows get a value.
    """

    name: str
    source: str | None
    type: pa.DataType
    is_filled: bool


def traced(columns: Sequence[str], steps: Sequence[SchemaStep]) -> list[Traced]:
    """Return the origin of each column after the steps, among the ``columns`` before them."""
    known = {name: Traced(name, name, pa.null(), False) for name in columns}
    for step in steps:
        after = {}
        for step_column in step.columns:
            before = known.get(step_column.source) if step_column.source is not None else None
            if before is None:
                is_filled = step_column.text is not None or (
                    step_column.value is not None and step_column.value.is_valid
                )
                after[step_column.name] = Traced(step_column.name, None, step_column.type, is_filled)
            else:
                after[step_column.name] = Traced(step_column.name, before.source, step_column.type, before.is_filled)
        known = after
    return list(known.values())


def only_add_nulls(columns: Mapping[str, pa.DataType], steps: Sequence[SchemaStep]) -> bool:
    """Whether the rows of a table of ``columns`` remain valid after all steps, with new columns null."""
    for step in steps:
        if not step.only_adds_nulls(columns):
            return False
        columns = {step_column.name: step_column.type for step_column in step.columns}
    return True


def project_schema(schema: pa.Schema, steps: Sequence[SchemaStep]) -> pa.Schema:
    """Return the lake's schema after the steps."""
    return pa.schema(
        [*[pa.field(step_column.name, step_column.type) for step_column in steps[-1].columns], *own_columns(schema)]
    )


def own_columns(schema: pa.Schema) -> list[pa.Field]:
    """Return wal2lake's metadata columns of a lake table."""
    return [field for field in schema if field.name == RESCUED or field.name in OWN_NAMES]


def _projected(rows: pa.Table, step: SchemaStep, is_there: np.ndarray) -> pa.Table:
    count = rows.num_rows
    texts = texts_of(column(rows, RESCUED)) if RESCUED in rows.schema.names else {}
    moved_texts: dict[str, pa.Array] = {}
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []
    for step_column in step.columns:
        if step_column.source is not None and step_column.source in rows.schema.names:
            values = column(rows, step_column.source)
            arrays.append(values if values.type.equals(step_column.type) else values.cast(step_column.type))
            if step_column.source in texts:
                moved_texts[step_column.name] = texts[step_column.source]
        else:
            arrays.append(_constant(step_column.value, step_column.type, is_there))
            if step_column.text is not None:
                moved_texts[step_column.name] = _constant(pa.scalar(step_column.text), pa.string(), is_there)
        fields.append(pa.field(step_column.name, step_column.type))
    if RESCUED in rows.schema.names:
        arrays.append(rescued_of(moved_texts, count))
        fields.append(rows.schema.field(RESCUED))
    for name in rows.schema.names:
        if name in OWN_NAMES:
            arrays.append(column(rows, name))
            fields.append(rows.schema.field(name))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _constant(value: pa.Scalar | None, kind: pa.DataType, is_there: np.ndarray) -> pa.Array:
    if value is None or not value.is_valid:
        return pa.nulls(len(is_there), kind)
    whole = pa.array([value.as_py()], kind).take(pa.array(np.zeros(len(is_there), dtype=np.int64)))
    return whole if is_there.all() else pc.if_else(pa.array(is_there), whole, pa.nulls(len(is_there), kind))


def _renamed_unchanged(changes: pa.Table, step: SchemaStep) -> pa.Table:
    """Rename the columns in ``__unchanged``; names of columns that no longer exist are removed."""
    lists = column(changes, "__unchanged")
    names = {step_column.source: step_column.name for step_column in step.columns if step_column.source is not None}
    if not len(lists.values) or all(before == after for before, after in names.items()):
        return changes
    flat = lists.flatten()
    known = pa.array(list(names), pa.string())
    at = pc.index_in(flat, known)
    renamed = pa.array(list(names.values()), pa.string()).take(at)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    rows = np.repeat(np.arange(len(lists)), lengths)
    kept = validity(renamed)
    counts = np.bincount(rows[kept], minlength=len(lists))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    made = pa.ListArray.from_arrays(pa.array(offsets), renamed.filter(pa.array(kept)))
    place = changes.schema.get_field_index("__unchanged")
    return changes.set_column(place, changes.schema.field(place), made.cast(changes.schema.field(place).type))

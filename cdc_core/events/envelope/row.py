"""Converts columns of text to the JSON of row structs: keys, ``before`` and ``after``."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode import RawColumns
from cdc_core.errors import ConversionError
from cdc_core.events.envelope.batch import put, struct
from cdc_core.events.envelope.context import EnvelopeContext, Mapper, Plan
from cdc_core.events.envelope.json import TEXT, Parts, dumps, join, json_of, json_parts, texts
from cdc_core.schema import Column, ConnectSchema, TableSchema
from cdc_core.selection import TruncateMapper
from cdc_core.types import ColumnCodec, Converted, EventConverter, FailureHandlingMode

_log = logging.getLogger(__name__)

# This schema is always optional in Debezium, regardless of the column.
_ALWAYS_OPTIONAL = "io.debezium.data.geometry.Geometry"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a row struct.

    The constants are JSON texts, each computed once: ``required`` replaces SQL NULL in a NOT NULL column, ``unset`` any
    remaining null (the converter writes a schema's default), ``unavailable`` an unchanged TOAST value that was not
    sent. ``required_value`` is the first of them as input of a mapper. ``mapper`` is applied to PostgreSQL's text,
    ``cut`` (the length of a truncation) to the converter's result.
    """

    column: str
    name: str
    schema: ConnectSchema
    face: EventConverter
    required: str | None
    unset: str
    unavailable: str
    required_value: object = None
    mapper: Mapper | None = None
    cut: int | None = None

    @property
    def expected(self) -> str:
        """The expected type of its values, for an error."""
        return self.schema.name or self.schema.type


def make_field(column: Column, face: EventConverter, context: EnvelopeContext, plan: Plan | None) -> Field:
    """Create the field of one column: schema with optionality, default, comment and parameters, and constants."""
    default = face.default_value(column.default_expression) if column.default_expression else None
    has_default = default is not None and face.schema.type != "struct"
    schema = face.schema.replace(optional=column.optional or face.schema.name == _ALWAYS_OPTIONAL)
    unset = json_of(default, face.arrow_type, face.schema) if has_default else "null"
    if has_default:
        schema = schema.replace(default=json.loads(unset), has_default=True)
    if plan is not None and plan.parameters:
        schema = schema.replace(parameters=(*schema.parameters, *plan.parameters))
    stand_in = default if has_default else face.fallback
    required = None if column.optional or stand_in is None else json_of(stand_in, face.arrow_type, face.schema)
    unavailable = unset if face.unavailable is None else json_of(face.unavailable, face.arrow_type, face.schema)
    cut = None if plan is None else plan.cut
    mapper = None if plan is None or cut is not None else plan.mapper
    name = context.names.field_name(column.name)
    return Field(column.name, name, schema, face, required, unset, unavailable, stand_in, mapper, cut)


class RowWriter:
    """Writes the structs of one table's rows; created once per version.

    ``fields`` are in the order of the struct. ``failure`` is event.converting.failure.handling.mode.
    """

    def __init__(self, table: TableSchema, fields: Iterable[Field], failure: FailureHandlingMode) -> None:
        self.fields = tuple(fields)
        self._table = table
        self._failure = failure

    def schema(self, name: str, *, optional: bool) -> ConnectSchema:
        """Return the struct's schema with that name."""
        pairs = tuple((field.name, field.schema) for field in self.fields)
        return ConnectSchema("struct", optional=optional, name=name, fields=pairs)

    def write(
        self, columns: RawColumns, *, rows: int, read: bool = False, lsn: np.ndarray | None = None
    ) -> pa.LargeStringArray:
        """Return the struct of every row as JSON text.

        Shape:  columns of N rows → text[N], never null.

        Nulls:  SQL NULL in a NOT NULL column becomes the default, else the type's fallback; an unchanged value becomes
        the placeholder. A value that cannot be read is null (warn, skip), or raises ConversionError (fail).

        ``read``: the rows are from a query, where some types are written differently than in the stream. ``lsn``: the
        LSN of each row's event, which messages about its values name.
        """
        position = {name: index for index, name in enumerate(columns.names)}
        parts: Parts = ["{"]
        for index, field in enumerate(self.fields):
            at = position.get(field.column)
            label = ("," if index else "") + dumps(field.name) + ":"
            if at is None:
                parts += [label, field.required or field.unset]
            else:
                parts += [label, *self._column(field, columns.text[at], columns.unchanged[at], read, lsn)]
        return join([*parts, "}"], rows)

    def structs(
        self, columns: RawColumns, *, rows: int, read: bool = False, lsn: np.ndarray | None = None
    ) -> pa.StructArray:
        """As ``write``, as structs. What ``write`` fills with a schema's default is null here."""
        position = {name: index for index, name in enumerate(columns.names)}
        arrays = []
        for field in self.fields:
            at = position.get(field.column)
            if at is None:
                value = None if field.required is None else field.required_value
                scalar = pa.array([value], type=field.face.arrow_type)
                arrays.append(scalar.take(pa.array(np.zeros(rows, dtype=np.int64))))
            else:
                arrays.append(self._typed(field, columns.text[at], columns.unchanged[at], read, lsn))
        return struct(self.schema("", optional=True), arrays, np.ones(rows, dtype=bool)).values

    def _typed(
        self, field: Field, text: pa.Array, unchanged: np.ndarray | None, read: bool, lsn: np.ndarray | None
    ) -> pa.Array:
        values, given, missing = self._converted(field, text, unchanged, read, lsn)
        if missing is not None and field.face.unavailable is not None:
            values = put(values, missing, field.face.unavailable)
        if field.required is not None and values.null_count:
            absent = pc.and_(values.is_null(), given.is_null())
            values = put(values, absent if missing is None else pc.and_not(absent, missing), field.required_value)
        return values

    def _column(
        self, field: Field, text: pa.Array, unchanged: np.ndarray | None, read: bool, lsn: np.ndarray | None
    ) -> Parts:
        values, source, missing = self._converted(field, text, unchanged, read, lsn)
        if missing is None and not values.null_count:
            return json_parts(values, field.schema)
        out = texts(values, field.schema)
        if missing is not None:
            out = pc.if_else(missing, pa.scalar(field.unavailable, TEXT), out)
        if field.required is not None and out.null_count:
            # Only SQL NULL is replaced: a value that could not be read stays unset.
            out = pc.if_else(pc.is_null(source), pc.fill_null(out, pa.scalar(field.required, TEXT)), out)
        return [out if field.unset == "null" or not out.null_count else pc.fill_null(out, pa.scalar(field.unset, TEXT))]

    def _converted(
        self, field: Field, text: pa.Array, unchanged: np.ndarray | None, read: bool, lsn: np.ndarray | None
    ) -> tuple[pa.Array, pa.Array, pa.Array | None]:
        """Return the converter's values, its input texts, and which values are still unavailable."""
        missing = None if unchanged is None or not unchanged.any() else pa.array(unchanged)
        if not (read or field.face.is_streamed):
            text, missing = pa.nulls(len(text), text.type), None
        source = text
        if field.mapper is not None:
            source = field.mapper(_stood_in(field, text, missing))
            if pa.types.is_string(field.face.arrow_type):
                missing = None  # the mapper was applied to the placeholder like to any other text
        convert = field.face.snapshot_convert if read and field.face.snapshot_convert else field.face.convert
        converted = convert(source)
        if converted.bad is not None and pc.any(converted.bad).as_py():
            self._report(field, np.flatnonzero(converted.bad.fill_null(False).to_numpy(zero_copy_only=False)), lsn)
        values = converted.values
        if field.cut is not None and _is_cuttable(field):
            values = _cut(field, field.cut, source, values, missing)
            missing = None  # the placeholder was truncated like any other value
        return values, source, missing

    def _report(self, field: Field, places: np.ndarray, lsn: np.ndarray | None) -> None:
        first = None if lsn is None else int(lsn[places[0]])
        error = ConversionError(str(self._table.id), field.column, field.expected, len(places), first)
        if self._failure is FailureHandlingMode.FAIL:
            raise error
        level = logging.WARNING if self._failure is FailureHandlingMode.WARN else logging.DEBUG
        _log.log(level, "%s The field is not set.", error.message)


def _stood_in(field: Field, text: pa.Array, missing: pa.Array | None) -> pa.Array:
    """Return a mapper's input. Debezium maps the converter's result, including placeholders and replaced NULLs."""
    if not pa.types.is_string(field.face.arrow_type):
        return text
    if missing is not None and isinstance(field.face.unavailable, str):
        text = pc.if_else(missing, pa.scalar(field.face.unavailable), text)
    if field.required is not None and text.null_count:
        text = pc.fill_null(text, pa.scalar(str(field.required_value)))
    return text


def _is_cuttable(field: Field) -> bool:
    """Whether Debezium's converter returns a String or a ByteBuffer; decimals and bits are neither, though bytes."""
    return field.schema.type == "string" or (field.schema.type == "bytes" and field.schema.name is None)


def _cut(field: Field, cut: int, source: pa.Array, values: pa.Array, missing: pa.Array | None) -> pa.Array:
    """Return the first ``cut`` UTF-16 units or bytes of every value, placeholders and NULLs' included."""
    kind = values.type
    if missing is not None and field.face.unavailable is not None:
        values = pc.if_else(missing, pa.scalar(field.face.unavailable, kind), values)
    if field.required_value is not None and field.required is not None and values.null_count:
        values = pc.if_else(pc.is_null(source), pc.fill_null(values, pa.scalar(field.required_value, kind)), values)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TruncateMapper(cut)(values)
    return pc.binary_slice(values, 0, cut)


def key_fields(
    table: TableSchema,
    names: Iterable[str],
    codecs: Mapping[str, ColumnCodec],
    context: EnvelopeContext,
    unknown: frozenset[str] = frozenset(),
) -> tuple[Field, ...]:
    """Return fields of the key. Plans do not apply: the key contains masked or excluded columns unchanged.

    ``unknown`` columns are optional and have no default, regardless of the table.
    """
    faces = ((_plain(table.column(name), name in unknown), codecs[name].event) for name in names)
    return tuple(make_field(column, face, context, None) for column, face in faces if face is not None)


def constant_field(name: str, value: str) -> Field:
    """Return a field that has the same text in every row and belongs to no column."""
    schema = ConnectSchema("string")
    face = EventConverter(schema, TEXT, Converted)
    return Field("", name, schema, face, dumps(value), "null", "null", value)


def _plain(column: Column, is_unknown: bool) -> Column:
    return replace(column, optional=True, default_expression=None) if is_unknown else column


def value_fields(
    table: TableSchema, codecs: Mapping[str, ColumnCodec], plans: Mapping[str, Plan], context: EnvelopeContext
) -> tuple[Field, ...]:
    """Return fields of ``before`` and ``after``, in the table's order.

    These are the included columns that have an event representation.
    """
    fields = []
    for column in table.columns:
        plan, face = plans.get(column.name), codecs[column.name].event
        if face is not None and (plan is None or plan.included):
            fields.append(make_field(column, face, context, plan))
    return tuple(fields)


def rows_of(columns: RawColumns, rows: np.ndarray) -> RawColumns:
    """Return these rows of every column."""
    taken = pa.array(rows)
    unchanged = tuple(None if mask is None else mask[rows] for mask in columns.unchanged)
    return RawColumns(columns.names, tuple(text.take(taken) for text in columns.text), unchanged, len(rows))


def filled_from(new: RawColumns, old: RawColumns) -> RawColumns:
    """Return ``new`` with its unchanged values taken from ``old`` where the server sent them there."""
    texts_, masks = [], []
    for text, mask, before in zip(new.text, new.unchanged, old.text, strict=True):
        if mask is not None and mask.any():
            from_old = mask & before.is_valid().to_numpy(zero_copy_only=False)
            texts_.append(pc.if_else(pa.array(from_old), before, text))
            masks.append(mask & ~from_old)
        else:
            texts_.append(text)
            masks.append(None)
    return RawColumns(new.names, tuple(texts_), tuple(masks), len(new))

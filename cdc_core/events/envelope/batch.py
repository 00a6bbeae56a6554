"""Records before they are written: keys, values and headers as typed columns with Connect's schemas.

Transforms convert batches to batches, formats convert them to text or bytes. All rows of a batch have one key schema
and one value schema; a transform whose result depends on the row returns several batches, and (seq, sub) orders them.

A struct's null field stays null here even if its schema has a default: ``filled`` returns what Connect's ``Struct.get``
would, the stored value is ``Struct.getWithoutDefault``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema import ConnectSchema

TEXT = pa.large_string()
STRING = ConnectSchema("string")
# Names of schemas for values of Connect that have none, and for texts whose schema there is a struct's or a list's,
# which they do not fit: only a converter that does not look at the schema writes those.
SCHEMALESS, MISFIT, MISFIT_LIST = "wal2lake.schemaless", "wal2lake.misfit", "wal2lake.misfit_list"
MISFITS = frozenset({MISFIT, MISFIT_LIST})

_ARROW: dict[str, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": TEXT,
    "bytes": pa.large_binary(),
}


def arrow_type(schema: ConnectSchema) -> pa.DataType:
    """Return an Arrow type that can contain a schema's values."""
    if schema.type == "struct":
        return pa.struct([pa.field(name, arrow_type(field)) for name, field in schema.fields])
    if schema.type == "array":
        return pa.list_(arrow_type(schema.element))
    if schema.type == "map":
        return pa.map_(arrow_type(schema.map_key), arrow_type(schema.element))
    return _ARROW[schema.type]


@dataclass(frozen=True, slots=True)
class Data:
    """Connect's data: ``values[N]`` and their schema. None: no schema; the values are then null.

    Shape:  the Arrow type corresponds to the schema: struct for struct, list for array, map for map.
    """

    schema: ConnectSchema | None
    values: pa.Array

    def __len__(self) -> int:
        return len(self.values)

    @property
    def connect_schema(self) -> ConnectSchema:
        """The schema; only for data that have one."""
        assert self.schema is not None
        return self.schema

    @property
    def is_struct(self) -> bool:
        """Whether the values are structs, which have fields."""
        return self.schema is not None and self.schema.type == "struct"

    @property
    def valid(self) -> np.ndarray:
        """bool[N]: whether the value is not null."""
        return np.asarray(self.values.is_valid().to_numpy(zero_copy_only=False), dtype=bool)

    def take(self, rows: np.ndarray) -> Data:
        """Return the data of some rows."""
        return Data(self.schema, self.values.take(pa.array(rows)))

    def index(self, name: str) -> int | None:
        """Return the position of a struct's field, None if it has no such field."""
        if self.schema is None:
            return None
        return next((at for at, (field, _) in enumerate(self.schema.fields) if field == name), None)

    def field(self, name: str) -> Data | None:
        """Return a field of every struct, None if there is no such field. Null where the struct is null."""
        at = self.index(name)
        if at is None or self.schema is None:
            return None
        return Data(self.schema.fields[at][1], self.columns()[at])

    def columns(self) -> list[pa.Array]:
        """Return the fields' values, null where the struct is null."""
        return list(self.values.flatten()) if self.schema is not None and self.schema.fields else []

    def filled(self) -> Data:
        """Return the values with the schema's default instead of null, as ``Struct.get`` of a field."""
        if self.schema is None or not self.values.null_count or not self.schema.has_default:
            return self
        if self.schema.default is None:
            return self
        return Data(self.schema, put(self.values, self.values.is_null(), default_of(self.schema)))


def no_data(rows: int) -> Data:
    """Return N nulls without a schema: the key of a table without one, the value of a tombstone."""
    return Data(None, pa.nulls(rows))


def constant(value: Any, schema: ConnectSchema, rows: int) -> Data:
    """Return N times the same value, a Python value of the schema's Arrow type."""
    kind = arrow_type(schema)
    return Data(schema, pa.array([value], type=kind).take(pa.array(np.zeros(rows, dtype=np.int64))))


def struct(schema: ConnectSchema, columns: Sequence[pa.Array], valid: np.ndarray) -> Data:
    """Return structs of the columns, null where not ``valid``."""
    if not columns:
        # row-wise: a struct without fields, which a table of excluded columns has
        return Data(schema, pa.array([{} if one else None for one in valid], type=pa.struct([])))
    fields = [pa.field(name, column.type) for (name, _), column in zip(schema.fields, columns, strict=True)]
    mask = None if valid.all() else pa.array(~valid)
    return Data(schema, pa.StructArray.from_arrays(list(columns), fields=fields, mask=mask))


def put(values: pa.Array, mask: pa.Array, value: Any) -> pa.Array:
    """Return ``values`` with the Python ``value`` where ``mask``; for every Arrow type, nested ones included."""
    rows = np.arange(len(values))
    where = np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), dtype=bool)
    rows[where] = len(values)
    return pa.concat_arrays([values, pa.array([value], type=values.type)]).take(pa.array(rows))


def default_of(schema: ConnectSchema) -> Any:
    """Return a schema's default as the Python value of its Arrow type: bytes are stored as base64 text, NaN as text."""
    return _python(schema, schema.default)


def _python(schema: ConnectSchema, value: Any) -> Any:
    if value is None:
        return None
    nested: dict[str, Callable[[], Any]] = {
        "bytes": lambda: base64.b64decode(value),
        "float": lambda: float(value),
        "double": lambda: float(value),
        "struct": lambda: {name: _python(field, value.get(name)) for name, field in schema.fields},
        "array": lambda: [_python(schema.element, item) for item in value],
        "map": lambda: list(value.items()) if isinstance(value, dict) else value,
    }
    return nested.get(schema.type, lambda: value)()


@dataclass(frozen=True, slots=True)
class Header:
    """One header of the records. ``present[N]``: which records have it, None for all."""

    key: str
    data: Data
    present: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Header:
        """Return the header of some records."""
        return Header(self.key, self.data.take(rows), None if self.present is None else self.present[rows])

    def has(self) -> np.ndarray:
        """bool[N]: which records have it."""
        return np.ones(len(self.data), dtype=bool) if self.present is None else self.present


@dataclass(frozen=True, slots=True)
class EventBatch:
    """N records. ``partition`` (int32) and ``timestamp`` (int64, milliseconds since 1970) are null if Kafka chooses.

    ``seq[N]`` and ``sub[N]`` are as in RECORDS, ``topic[N]`` is text. A tombstone is a null value without schema.
    """

    seq: np.ndarray
    sub: np.ndarray
    topic: pa.Array
    key: Data
    value: Data
    headers: tuple[Header, ...] = ()
    partition: pa.Array | None = None
    timestamp: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.seq)

    def take(self, rows: np.ndarray) -> EventBatch:
        """Return some of the records."""
        return EventBatch(
            self.seq[rows],
            self.sub[rows],
            self.topic.take(pa.array(rows)),
            self.key.take(rows),
            self.value.take(rows),
            tuple(header.take(rows) for header in self.headers),
            None if self.partition is None else self.partition.take(pa.array(rows)),
            None if self.timestamp is None else self.timestamp.take(pa.array(rows)),
        )

    def first(self) -> tuple[int, int]:
        """Return the place of the first record, (seq, sub). There must be one."""
        seq = int(self.seq.min())
        return seq, int(self.sub[self.seq == seq].min())

    def by_topic(self) -> list[tuple[str, EventBatch]]:
        """Return each topic with its records, by the topic's first row."""
        encoded = self.topic.dictionary_encode()
        # row-wise: once per topic, of which a batch has few
        names = encoded.dictionary.to_pylist()
        if len(names) <= 1:
            return [(name, self) for name in names]
        codes = encoded.indices.to_numpy()
        return [(name, self.take(np.flatnonzero(codes == at))) for at, name in enumerate(names)]

    def split(self, mask: np.ndarray) -> tuple[EventBatch, EventBatch]:
        """Return the records where ``mask``, and the others."""
        if mask.all():
            return self, self.take(np.zeros(0, dtype=np.int64))
        if not mask.any():
            return self.take(np.zeros(0, dtype=np.int64)), self
        return self.take(np.flatnonzero(mask)), self.take(np.flatnonzero(~mask))

    def with_header(self, key: str, data: Data, present: np.ndarray | None = None) -> EventBatch:
        """Return the records with one more header at the end."""
        return replace(self, headers=(*self.headers, Header(key, data, present)))

    def with_topics(self, rename: Callable[[str], str]) -> EventBatch:
        """Return the records with topics renamed; ``rename`` is called once for each topic."""
        encoded = self.topic.dictionary_encode()
        # row-wise: once per topic, of which a batch has few
        names = pa.array([rename(name) for name in encoded.dictionary.to_pylist()], type=TEXT)
        return replace(self, topic=names.take(encoded.indices))


def topics(topic: str, rows: int) -> pa.Array:
    """Return N times one topic."""
    return pa.repeat(pa.scalar(topic, TEXT), rows)


def one_batch(
    seq: int,
    sub: int,
    topic: str,
    key: tuple[ConnectSchema, dict[str, Any]],
    value: tuple[ConnectSchema, dict[str, Any]],
) -> EventBatch:
    """Return a record without headers, from the schemas and Python values of its key and value."""
    keys, values = (constant(payload, schema, 1) for schema, payload in (key, value))
    return EventBatch(np.array([seq]), np.array([sub]), topics(topic, 1), keys, values)

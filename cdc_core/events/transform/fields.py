"""What several transforms share: keys or values, structs with other fields, envelopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.errors import RecordError
from cdc_core.events.envelope.batch import Data, EventBatch, struct
from cdc_core.schema import ConnectSchema

OPTIONAL_STRING = ConnectSchema("string", optional=True)
ENVELOPE = ".Envelope"


class Transform(Protocol):
    """One transform. Created once; its state, if any, lasts as long as the run."""

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Return the records that result. Raises RecordError if a record cannot be transformed."""


class Side(StrEnum):
    """The part of a record that a transform changes: its class ends with ``$Key`` or ``$Value``."""

    KEY = "Key"
    VALUE = "Value"

    def get(self, batch: EventBatch) -> Data:
        """Return the records' keys or values."""
        return batch.key if self is Side.KEY else batch.value

    def put(self, batch: EventBatch, data: Data) -> EventBatch:
        """Return the records with other keys or values."""
        return replace(batch, key=data) if self is Side.KEY else replace(batch, value=data)


def where_set(batch: EventBatch, side: Side, change: Callable[[EventBatch], list[EventBatch]]) -> list[EventBatch]:
    """Apply ``change`` to the records whose key or value is not null; the others remain."""
    changed, others = batch.split(side.get(batch).valid)
    return [*(change(changed) if len(changed) else []), *([others] if len(others) else [])]


def is_envelope(data: Data) -> bool:
    """Whether the values are change events, by the name of their schema."""
    return data.is_struct and data.schema is not None and (data.schema.name or "").endswith(ENVELOPE)


def schema_of(data: Data, purpose: str) -> ConnectSchema:
    """Return the schema of structs. Raises RecordError for other values."""
    if not data.is_struct or data.schema is None:
        raise RecordError(f"Only structs are supported for {purpose}, found {kind_of(data)}.")
    return data.schema


def kind_of(data: Data) -> str:
    """Return the type of values for an error."""
    return "no schema" if data.schema is None else data.schema.type


def basics(schema: ConnectSchema, fields: Sequence[tuple[str, ConnectSchema]]) -> ConnectSchema:
    """Return a required struct with another's name, version, documentation and parameters: ``copySchemaBasics``."""
    names = [name for name, _ in fields]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RecordError(f"The struct would have the field {twice} twice.")
    return ConnectSchema(
        "struct",
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
        fields=tuple(fields),
    )


def plain(schema: ConnectSchema, *, optional: bool = True) -> ConnectSchema:
    """Return any schema's ``copySchemaBasics`` made optional: without its default."""
    return schema.replace(optional=optional, default=None, has_default=False)


def columns_of(data: Data, *, defaults: bool) -> list[pa.Array]:
    """Return the fields' values of structs; ``defaults``: nulls replaced by the fields' defaults."""
    columns = data.columns()
    if not defaults or data.schema is None:
        return columns
    return [Data(field, one).filled().values for (_, field), one in zip(data.schema.fields, columns, strict=True)]


def with_fields(schema: ConnectSchema, columns: Sequence[pa.Array], rows: int) -> Data:
    """Return structs of which none is null."""
    return struct(schema, columns, np.ones(rows, dtype=bool))


def text_field(data: Data, name: str) -> pa.Array:
    """Return a text field of structs, as ``Struct.getString``. Raises RecordError if it is missing or no text."""
    found = data.field(name)
    if found is None or found.schema is None:
        raise RecordError(f"{name} is not a field of {data.schema.name if data.schema else 'the value'}.")
    if found.schema.type != "string":
        raise RecordError(f"The field {name} is not of type string, but {found.schema.type}.")
    return found.filled().values

"""Types whose value is PostgreSQL's own text in both representations."""

from __future__ import annotations

import pyarrow as pa

from cdc_core.schema import ConnectSchema
from cdc_core.types._placeholder import placeholder_text
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions

NATURAL_TEXT = NaturalConverter(pa.string(), Converted)


def text_codec(options: TypeOptions, schema: ConnectSchema | None = None) -> ColumnCodec:
    """The server's text unchanged, in the lake and in events, there with ``schema`` (default: a plain string)."""
    if schema is None:
        schema = ConnectSchema("string", optional=True)
    event = EventConverter(
        schema, pa.string(), NATURAL_TEXT.convert, fallback="", unavailable=placeholder_text(options)
    )
    return ColumnCodec(NATURAL_TEXT, event)


def named(name: str, parameters: tuple[tuple[str, str], ...] = ()) -> ConnectSchema:
    """Return an optional string schema with a semantic name, version 1."""
    return ConnectSchema("string", optional=True, name=name, version=1, parameters=parameters)

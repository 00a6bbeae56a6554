"""bytea. The server prints ``\\x`` and hexadecimal digits; the older escape form is read row by row."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema import Column, ConnectSchema
from cdc_core.types import semantic
from cdc_core.types._kernels import base64_text, hex_bytes, hex_text
from cdc_core.types._placeholder import placeholder_bytes, placeholder_text
from cdc_core.types._slow_path import scatter
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import BinaryHandlingMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin

_ESCAPE = re.compile(rb"\\(\\|[0-7]{3})")


def convert(text: pa.Array) -> Converted:
    """Convert bytea's text to binary[N]."""
    octets, wrong = hex_bytes(text, 2)
    prefixed = pc.fill_null(pc.starts_with(text, "\\x"), True)
    rare = wrong | ~prefixed.to_numpy(zero_copy_only=False)
    if not rare.any():
        return Converted(octets)
    return scatter("bytea", text, octets, rare, _escaped)


def _escaped(text: str) -> bytes:
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    if re.fullmatch(r"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*", text) is None:
        raise ValueError("neither bytea's hex form nor its escape form")
    return _ESCAPE.sub(lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1], 8)]), text.encode())


def encoder(mode: BinaryHandlingMode) -> tuple[ConnectSchema, pa.DataType, Callable[[pa.Array], pa.Array]]:
    """Return how a binary handling mode writes octets: the schema, the Arrow type, and binary[N] → that type."""
    if mode is BinaryHandlingMode.BYTES:
        return semantic.plain("bytes"), pa.binary(), lambda octets: octets
    if mode is BinaryHandlingMode.HEX:
        return semantic.plain("string"), pa.string(), hex_text
    url_safe = mode is BinaryHandlingMode.BASE64_URL_SAFE
    return semantic.plain("string"), pa.string(), lambda octets: base64_text(octets, url_safe)


def event_converter(mode: BinaryHandlingMode) -> Convert:
    """Return the converter of bytea's text in a binary handling mode."""
    _, _, encode = encoder(mode)

    def convert_event(text: pa.Array) -> Converted:
        octets = convert(text)
        return Converted(encode(octets.values), octets.bad)

    return convert_event


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """binary in the lake; bytes or text in events."""
    mode = options.binary_handling_mode
    schema, arrow_type, _ = encoder(mode)
    unavailable = {
        BinaryHandlingMode.BYTES: placeholder_bytes(options),
        BinaryHandlingMode.HEX: placeholder_text(options),
    }
    fallback = b"" if mode is BinaryHandlingMode.BYTES else ""
    event = EventConverter(schema, arrow_type, event_converter(mode), fallback, unavailable.get(mode))
    return ColumnCodec(NaturalConverter(pa.binary(), convert), event)


RULES: tuple[TypeRule, ...] = (builtin("binary", build, "bytea"),)

"""Types unknown to Debezium: their text's octets in the binary handling mode, if they are included at all."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.types._placeholder import placeholder_bytes, placeholder_text
from cdc_core.types._strings import NATURAL_TEXT
from cdc_core.types.binary import encoder
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter
from cdc_core.types.options import BinaryHandlingMode, TypeOptions


def opaque_codec(options: TypeOptions, rewrite: Convert = Converted) -> ColumnCodec:
    """Text in the lake. In events nothing, or with ``include.unknown.datatypes`` the octets of the text.

    ``rewrite`` changes the text first, for types that the driver prints differently.
    """
    if not options.include_unknown_datatypes:
        return ColumnCodec(NATURAL_TEXT, None)
    mode = options.binary_handling_mode
    schema, arrow_type, encode = encoder(mode)

    def convert(text: pa.Array) -> Converted:
        return Converted(encode(pc.cast(rewrite(text).values, pa.binary())))

    fallback: Any = b"" if mode is BinaryHandlingMode.BYTES else ""
    event = EventConverter(schema, arrow_type, convert, fallback=fallback, unavailable=_unavailable(options))
    return ColumnCodec(NATURAL_TEXT, event)


def _unavailable(options: TypeOptions) -> Any:
    """The placeholder; the two base64 modes have none."""
    if options.binary_handling_mode is BinaryHandlingMode.BYTES:
        return placeholder_bytes(options)
    return placeholder_text(options) if options.binary_handling_mode is BinaryHandlingMode.HEX else None

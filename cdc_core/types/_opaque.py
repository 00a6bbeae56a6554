"""Types that Debezium does not know: their text's octets in the binary handling mode, if they are included at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema.connect import ConnectSchema
from cdc_core.types._flat import flatten, gather, masked
from cdc_core.types._placeholder import placeholder_bytes, placeholder_text
from cdc_core.types._strings import NATURAL_TEXT
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventFace
from cdc_core.types.options import BinaryHandlingMode, TypeOptions

_STANDARD = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)
_URL_SAFE = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def opaque_codec(options: TypeOptions, rewrite: Convert | None = None) -> ColumnCodec:
    """Text in the lake. In events nothing, or with ``include.unknown.datatypes`` the octets of the text.

    ``rewrite`` changes the text first, for types that the driver prints in its own way.
    """
    if not options.include_unknown_datatypes:
        return ColumnCodec(NATURAL_TEXT, None)
    mode = options.binary_handling_mode
    as_bytes = mode is BinaryHandlingMode.BYTES
    unavailable: Any = None  # the base64 modes have no placeholder
    if as_bytes:
        unavailable = placeholder_bytes(options)
    elif mode is BinaryHandlingMode.HEX:
        unavailable = placeholder_text(options)

    def convert(text: pa.Array) -> Converted:
        return Converted(_ENCODE[mode](rewrite(text).values if rewrite else text))

    event = EventFace(
        ConnectSchema("bytes" if as_bytes else "string", optional=True),
        pa.binary() if as_bytes else pa.string(),
        convert,
        fallback=b"" if as_bytes else "",
        unavailable=unavailable,
    )
    return ColumnCodec(NATURAL_TEXT, event)


def _base64(text: pa.Array, alphabet: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.Array:
    """Base64 with padding, three octets to four characters, all rows at once."""
    data, starts, ends, valid = flatten(text)
    data, starts, ends = gather(data, starts, ends)
    lengths = ends - starts
    groups = (lengths + 2) // 3
    group_ends = np.cumsum(groups)
    padded = np.zeros(3 * int(group_ends[-1]) if len(groups) else 0, dtype=np.uint8)
    shift = np.repeat((group_ends - groups) * 3 - starts, lengths)
    padded[np.arange(len(data)) + shift] = data
    a, b, c = padded.reshape(-1, 3).astype(np.uint32).T
    joined = (a << 16) | (b << 8) | c
    out = alphabet[np.stack([joined >> 18, joined >> 12 & 63, joined >> 6 & 63, joined & 63], axis=1)].ravel()
    left = lengths % 3
    out[group_ends[left != 0] * 4 - 1] = ord("=")
    out[group_ends[left == 1] * 4 - 2] = ord("=")
    return _strings(out, group_ends * 4, valid)


def _hex(text: pa.Array) -> pa.Array:
    data, starts, ends, valid = flatten(text)
    data, _, ends = gather(data, starts, ends)
    return _strings(np.stack([_HEX[data >> 4], _HEX[data & 15]], axis=1).ravel(), ends * 2, valid)


def _strings(data: Any, ends: Any, valid: Any) -> pa.Array:
    offsets = np.zeros(len(valid) + 1, dtype=np.int32)
    offsets[1:] = ends
    values = pa.StringArray.from_buffers(len(valid), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data)))
    return masked(values, ~valid)


_ENCODE = {
    BinaryHandlingMode.BYTES: lambda text: pc.cast(text, pa.binary()),
    BinaryHandlingMode.BASE64: lambda text: _base64(text, _STANDARD),
    BinaryHandlingMode.BASE64_URL_SAFE: lambda text: _base64(text, _URL_SAFE),
    BinaryHandlingMode.HEX: _hex,
}

"""JSON string literals of an entire string array, escaped as by Jackson."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.types._flat import flatten

_SHORT = {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r"}


def quoted(text: pa.Array) -> pa.Array:
    """Return each string in double quotes, with backslash, quote and control characters escaped; null stays null."""
    data, starts, ends, _ = flatten(text)
    used = data[int(starts[0]) : int(ends.max())] if len(starts) else data[:0]
    present = np.flatnonzero(np.bincount(used, minlength=256)) if len(used) else ()
    for byte in sorted(present, key=lambda byte: byte != 0x5C):  # backslash first: the other escapes contain it
        if byte in (0x5C, 0x22) or byte < 0x20:
            text = pc.replace_substring(text, chr(byte), _escape(int(byte)))
    return pc.binary_join_element_wise('"', text, '"', "")


def _escape(byte: int) -> str:
    if byte >= 0x20:
        return "\\" + chr(byte)
    return _SHORT.get(byte, f"\\u{byte:04X}")

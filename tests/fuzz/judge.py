"""One input, read by the product and by the oracle. Each function raises AssertionError if the product is wrong."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.decode.copy_text import decode_copy
from cdc_core.decode.pgoutput import decode_rows
from cdc_core.errors import NotUtf8Error, ProtocolError
from cdc_core.types.codec import Convert, Converted
from tests.support.decode_compare import assert_same, plain, sort_pieces
from tests.support.plain_pgoutput import plain_copy

_TYPED = (ProtocolError, NotUtf8Error)
_NAMES = tuple(f"c{index}" for index in range(8))


def stream(frames: list[bytes]) -> bool:
    """Frames of the replication stream; returns whether they were read, False if they were refused.

    What the plain decoder refuses must be refused with a typed error; what both read must be the same.
    """
    try:
        plain(frames)
    except Exception:  # the oracle checks by assertions and by whatever its slices and indices raise
        try:
            segments, _ = sort_pieces(frames)
            for run in (run for segment in segments for run in segment.runs):
                decode_rows(run.raw, run.relation)
        except _TYPED:
            return False
        raise AssertionError("read a stream that the plain decoder refuses") from None
    try:
        assert_same(frames)
    except _TYPED:
        return False
    return True


def copy(width: int, data: bytes) -> bool:
    """Lines of COPY of ``width`` columns; returns whether they were read."""
    expected = _plain_rows(width, data)
    try:
        columns = decode_copy(data, _NAMES[:width])
    except _TYPED:
        return False
    for column in columns.text:
        column.validate(full=True)
    assert expected is not None, "read lines that the plain decoder refuses"
    if not _has_numeric_escape(data):
        rows = [list(row) for row in zip(*(column.to_pylist() for column in columns.text), strict=True)]
        assert rows == expected, "other values than the plain decoder's"
    return True


def texts(convert: Convert, arrow_type: pa.DataType, values: list[str]) -> bool:
    """Texts of one type; returns whether all were read.

    A text that no server writes must not change what its neighbours become: the oracle is the converter itself, given
    one text at a time. Such a text may be read beside some neighbours and marked beside others (Arrow's parser reads
    more than a server writes, as a time without seconds), but is never read as two values.
    """
    together = _checked(convert, arrow_type, values)
    alone = [_checked(convert, arrow_type, [value]) for value in values]
    pairs = zip(together.values.to_pylist(), _flags(together), alone, strict=True)
    assert all(bad or _flags(one)[0] or repr(value) == repr(one.values[0].as_py()) for value, bad, one in pairs)
    return not any(_flags(together))


def _checked(convert: Convert, arrow_type: pa.DataType, values: list[str]) -> Converted:
    converted = convert(pa.array(values, pa.string()))
    converted.values.validate(full=True)
    assert converted.values.type == arrow_type
    assert len(converted.values) == len(values)
    bad = np.array(_flags(converted))
    assert not (bad & np.array(converted.values.is_valid().to_pylist())).any(), "a bad value that is not null"
    return converted


def _flags(converted: Converted) -> list[bool]:
    return [False] * len(converted.values) if converted.bad is None else converted.bad.to_pylist()


def _plain_rows(width: int, data: bytes) -> list[list[str | None]] | None:
    """Read the lines byte by byte, so that a value is checked to be UTF-8 after its escapes, as the product does."""
    try:
        rows = plain_copy(data.decode("latin-1").encode())
        values = [[None if value is None else value.encode("latin-1").decode() for value in row] for row in rows]
    except Exception:
        return None
    return values if all(len(row) == width for row in values) else None


def _has_numeric_escape(data: bytes) -> bool:
    """Whether ``\\x41`` or ``\\101`` may be in the data: legal, but the plain decoder does not know them."""
    return any(b"\\" + bytes([digit]) in data for digit in b"01234567x")

"""Reads big-endian numbers at many positions of one buffer at once."""

from __future__ import annotations

from typing import Any

import numpy as np

_PAD = 8


class ByteReader:
    """Vector reads from ``data`` (uint8[N]).

    Every method takes positions (int64[M]) and returns int64[M]. A position outside the buffer is not an error here:
    the nearest position inside is read, so that decoding of malformed messages continues up to the check that detects
    them.
    """

    __slots__ = ("_i64", "_u16", "_u32", "data")

    def __init__(self, data: np.ndarray) -> None:
        if len(data) < _PAD:  # so that each view below has at least one element
            data = np.concatenate([data, np.zeros(_PAD - len(data), dtype=np.uint8)])
        self.data = data
        self._u16 = _view(data, ">u2")
        self._u32 = _view(data, ">u4")
        self._i64 = _view(data, ">i8")

    def u8(self, at: np.ndarray) -> Any:
        """Bytes, as uint8[M]."""
        return self.data.take(at, mode="clip")

    def u16(self, at: np.ndarray) -> Any:
        """Unsigned 16-bit numbers."""
        return _read(self._u16, at)

    def u32(self, at: np.ndarray) -> Any:
        """Unsigned 32-bit numbers."""
        return _read(self._u32, at)

    def i64(self, at: np.ndarray) -> Any:
        """Signed 64-bit numbers."""
        return _read(self._i64, at)


def _view(data: np.ndarray, dtype: str) -> np.ndarray:
    """Return one element for every byte offset: with a stride of 1, unaligned reads are plain indexing."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((len(data) - width + 1,), dtype, data, 0, (1,))


def _read(view: np.ndarray, at: np.ndarray) -> Any:
    # take() would first copy the entire overlapping view; fancy indexing does not, but rejects positions outside it.
    if len(at) and (at[-1] >= len(view) or at.max() >= len(view)):
        at = np.minimum(at, len(view) - 1)
    return view[at].astype(np.int64)

"""Reads little-endian numbers, Protobuf's varints and constants at many positions of one buffer at once."""

from __future__ import annotations

from typing import Any

import numpy as np

_PAD = 32
_STOPS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
# The seven bits of each byte of a number, and how far they move.
_SEVENS = [(np.uint64(0x7F << (8 * place)), np.uint64(place)) for place in range(8)]
_MOST_BYTES = 10


class Wire:
    """Vector reads from ``data`` (uint8[N]).

    Positions are int64[M]; one outside the buffer is moved inside, so that a walk over malformed messages continues up
    to the comparison that detects them.
    """

    __slots__ = ("_u32", "_u64", "data", "size")

    def __init__(self, data: np.ndarray) -> None:
        self.size = len(data)
        self.data = np.concatenate([data, np.zeros(_PAD, dtype=np.uint8)])
        self._u32 = np.ndarray((len(self.data) - 3,), "<u4", self.data, 0, (1,))
        self._u64 = np.ndarray((len(self.data) - 7,), "<u8", self.data, 0, (1,))

    def inside(self, at: np.ndarray) -> Any:
        """Return the positions, moved inside."""
        return np.clip(at, 0, self.size)

    def u8(self, at: np.ndarray) -> Any:
        """Bytes, as uint8[M]."""
        return self.data[at]

    def u32(self, at: np.ndarray) -> Any:
        """Four bytes as a little-endian number, uint32[M]."""
        return self._u32[at]

    def u64(self, at: np.ndarray) -> Any:
        """Eight bytes as a little-endian number, uint64[M]."""
        return self._u64[at]

    def numbers(self, at: np.ndarray) -> tuple[Any, Any]:
        """Return varints as int64[M] (two's complement) and the positions behind them."""
        first = self.data[at]
        if (first < 0x80).all():
            return first.astype(np.int64), at + 1
        word = self._u64[at]
        stops = ~word & _STOPS
        low = stops & (~stops + _ONE)
        # All bits up to the first byte without a continuation bit; none if all eight continue.
        mask = low | (low - _ONE)
        word = word & mask
        value = np.zeros(len(at), dtype=np.uint64)
        longest = int(np.bitwise_count(mask).max()) // 8 if len(mask) else 0
        for bits, place in _SEVENS[: max(longest, 1)]:
            value |= (word & bits) >> place
        length = (np.bitwise_count(mask) // np.uint8(8)).astype(np.int64)
        long = np.flatnonzero(stops == 0)
        if len(long):
            value[long], length[long] = self._long(at[long])
        return value.view(np.int64), self.inside(at + length)

    def matches(self, at: np.ndarray, literal: bytes) -> Any:
        """Whether these bytes are at the positions: bool[M]."""
        same = np.ones(len(at), dtype=bool)
        for start in range(0, len(literal), 8):
            part = literal[start : start + 8]
            word = np.uint64(int.from_bytes(part, "little"))
            window = self._u64[self.inside(at + start)]
            if len(part) < 8:
                window = window & np.uint64((1 << (8 * len(part))) - 1)
            same &= window == word
        return same

    def _long(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of nine and ten bytes: all negative ones."""
        value, length = np.zeros(len(at), dtype=np.uint64), np.zeros(len(at), dtype=np.int64)
        going = np.ones(len(at), dtype=bool)
        for place in range(_MOST_BYTES):
            octet = self.data[self.inside(at + place)]
            value |= np.where(going, (octet & 0x7F).astype(np.uint64) << np.uint64(7 * place), np.uint64(0))
            length += going
            going &= octet >= 0x80
        return value, length

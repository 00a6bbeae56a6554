"""Transactions that a snapshot of the server shows: ``pg_snapshot`` and its transaction ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cdc_core.arrays import Bools, Ints

IdOrIds = TypeVar("IdOrIds", int, Ints)

_RANGE = 1 << 32


@dataclass(frozen=True, slots=True)
class Visibility:
    """A ``pg_snapshot``: which transactions are visible. Its ids have 64 bits.

    Those before ``xmin`` are visible, those from ``xmax`` on are not; those between are, except ``running``.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Visibility:
        """Parse the server's text, ``10:20:10,14``. Raises ValueError for another text."""
        low, high, running = text.strip().split(":")
        return cls(int(low), int(high), tuple(int(part) for part in running.split(",") if part))

    @property
    def xmin_32(self) -> int:
        """The xmin as the 32-bit id that the server stores in rows."""
        return self.xmin % _RANGE

    def shows(self, xids: Ints) -> Bools:
        """Whether each transaction is visible. Shape: int64[N] of 32-bit ids → bool[N].

        The stream's ids have 32 bits, the snapshot's 64: an id is interpreted as the one nearest to xmax, which is
        correct for two thousand million transactions in either direction. Source: PostgreSQL manual §9.27.8.
        """
        full = self._full(xids)
        is_shown: Bools = (full < self.xmin) | (
            (full < self.xmax) & ~np.isin(full, np.array(self.running, dtype=np.int64))
        )
        return is_shown

    def shows_for_good(self, xids: Ints) -> Bools:
        """Whether each transaction is visible to every later snapshot as well. Shape: int64[N] → bool[N]."""
        found: Bools = self._full(xids) < self.xmin
        return found

    def shows_all_before(self, xid: int) -> bool:
        """Whether every transaction with an id before this 32-bit one is visible."""
        return bool(self._full(np.array([xid], dtype=np.int64))[0] <= self.xmin)

    def _full(self, xids: Ints) -> Ints:
        return full_ids(xids, self.xmax)


def full_ids(xids: IdOrIds, near: int) -> IdOrIds:
    """Return the 64-bit ids, those nearest to ``near``, of 32-bit ones. Shape: int64[N] → int64[N], or one id"""
    half = _RANGE // 2
    return (xids - near % _RANGE + half) % _RANGE - half + near

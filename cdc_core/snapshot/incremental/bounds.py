"""Bounds: up to which LSN the snapshot of a chunk is known to show every commit, its *floor*.

Only later changes have to be checked for whether a chunk shows them. A bound is (R, X): transactions that had committed
by the end of WAL R had an id less than X, so a snapshot whose xmin is at least X shows all of them. While a transaction
older than every bound is open nothing is known, and the floor is 0.
"""

from __future__ import annotations

import time

from cdc_core.postgres import ChunkConnection, received_visibility

Bound = tuple[int, int]

_PROOF_SECONDS, _PROOF_PAUSE_SECONDS = 5.0, 0.05


def take_bound(connection: ChunkConnection) -> Bound:
    """Return a bound of now. Raises SourceError or TransientError."""
    end, before = connection.bound()
    return int(end), before


def floor_of(visible: str, bounds: tuple[Bound, ...]) -> int:
    """Return the LSN up to which a snapshot, by its text, is known to show every commit."""
    seen = received_visibility(visible)
    return max((end for end, before in bounds if seen.shows_all_before(before)), default=0)


def proven_floor(connection: ChunkConnection, bounds: tuple[Bound, ...]) -> int:
    """Return the floor of a snapshot of now, after waiting some seconds at most for older transactions to end."""
    deadline = time.monotonic() + _PROOF_SECONDS
    while True:
        floor = floor_of(connection.read().visible, bounds)
        if floor or time.monotonic() >= deadline:
            return floor
        time.sleep(_PROOF_PAUSE_SECONDS)

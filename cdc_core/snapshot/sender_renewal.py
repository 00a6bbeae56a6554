"""When a stream is to be restarted, from servers whose walsender uses outdated entries of the catalogue.

    older transaction  ──write a────────────────write b──commit──▶
    catalogue              ──ADD TABLE, RENAME VALUE, ADD ATTRIBUTE──▶
    walsender                                            decodes a, b and what follows as before the change ──▶│ closed
    another walsender                                                           begins behind the commit: ────▶│ right
    read of the table                                                                                          └─▶ here

The fault is ``OUTDATED_CATALOGUE`` of ``postgres/known_faults``, measured on PostgreSQL 15.4 and 15.12: a walsender
that decodes such a transaction keeps the entries until something else invalidates them, and so does each one that
decodes the transaction again. One that begins at a position behind the transaction's commit is right. What the former
one has sent, or has not, is repaired by reading the tables concerned; a read before the stream was begun anew would
miss what the former walsender does not send after it. So the order is: every transaction has ended that was open when
the change was seen; the slot is confirmed up to an end of WAL behind that; the stream is begun anew; the tables are
read.
"""

from __future__ import annotations

from threading import Lock
from typing import Protocol

from cdc_core.lsn import Lsn
from cdc_core.schema import TableId


class Server(Protocol):
    """The queries to the source (``cdc_core.postgres.source.Source``)."""

    def oldest_transaction(self) -> int:
        """Return an id (64 bits) below which every transaction has ended."""

    def wal_lsn(self) -> Lsn:
        """Return the end of the server's WAL."""


class SenderRenewal:
    """What the walsender of one connector has behind it. For any thread; lives as long as the process.

    ``has_begun``: a stream has begun in this process. ``stamp`` is the last known state of publication and types.
    ``bounds`` are those of tables that wait to be read (``snapshot/unsent``): for a table its catalogue's marks, and an
    id that no transaction had when these were seen first. All of it outlives each beginning of the stream.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._wanted = 0
        self._covered = 0
        self._ended: tuple[int, Lsn] | None = None
        self.has_begun = False
        self.stamp: str | None = None
        self.bounds: dict[TableId, tuple[object, int]] = {}

    def covers(self, bound: int) -> bool:
        """Whether the walsender began behind every transaction with an id below ``bound``; else one is requested."""
        with self._lock:
            self._wanted = max(self._wanted, bound)
            return self._covered >= bound

    def is_due(self, server: Server, confirmed: int) -> bool:
        """Whether the stream is to be restarted at ``confirmed``. For the thread of the stream; two small queries."""
        with self._lock:
            bound, covered, ended = self._wanted, self._covered, self._ended
        if bound <= covered:
            return False
        if ended is None or ended[0] < bound:
            oldest = server.oldest_transaction()
            if oldest < bound:
                return False
            # Queried after it: each of these transactions has written its commit before this position.
            ended = oldest, server.wal_lsn()
            with self._lock:
                self._ended = ended
        return confirmed >= ended[1]

    def begin(self, confirmed: int) -> None:
        """Note that a walsender begins at the slot's position."""
        with self._lock:
            self.has_begun = True
            if self._ended is not None and confirmed >= self._ended[1]:
                self._covered, self._ended = max(self._covered, self._ended[0]), None

"""How a destination takes over the stream of another connector, and where its own ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cdc_core.lsn import Lsn
from cdc_core.offsets.delivered import Delivered

FINISH = "Run wal2lake run with --until-idle 1, which completes it, and ask again."


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """The offset of another connector, in its slot. ``fills``: destinations with tables read all rows by a snapshot.

    ``start`` is where a stream begins that has everything after the offset, ``confirmed`` the slot's position.
    """

    offset_lsn: Lsn
    start: Lsn
    confirmed: Lsn
    fills: bool


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Where the stream of a destination ends: behind a transaction, whose id and commit time are known or None.

    ``name`` is what a user calls the destination. ``note``: what to say if no other destination has more, or empty.
    """

    name: str
    lsn: Lsn
    xid: int | None = None
    ts_us: int | None = None
    note: str = ""


class Takeover(Protocol):
    """What one destination does with an offer. Nothing is changed before ``write``."""

    @property
    def is_repeated(self) -> bool:
        """Whether the same offset was taken over before, and the destination has continued the slot since."""

    @property
    def has_moved_on(self) -> bool:
        """Whether the destination itself has moved a slot that is past the offset."""

    @property
    def reads_rows(self) -> bool:
        """Whether it gets all rows by a snapshot of its own."""

    def decide(self, delivered: Delivered) -> str:
        """Decide, from what the other connector has delivered; returns a sentence. Raises CdcError."""

    @property
    def is_new(self) -> bool:
        """Whether there is something to write."""

    def write(self) -> None:
        """Write what was decided, in one commit."""

"""The changes of a slot's stream that another connector has delivered, so that exactly the others are read.

Transactions are sent one after the other, in the order of their commits. So what was delivered is: all of those that
committed before an LSN, and of the next one the changes up to another LSN.

    commit_lsn   transactions whose commit record begins before it were delivered
    part         of the transaction that committed at ``part.commit_lsn``: its changes up to ``part.lsn``

Both are facts about the WAL, so they stay true at every restart, and once the stream has passed them they leave out
nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cdc_core.lsn import Lsn


@dataclass(frozen=True, slots=True)
class DeliveredPart:
    """The delivered part of one transaction: its changes before ``lsn``, and ``at_lsn`` of those at it (None: all).

    Changes of one WAL record, as COPY writes it, have one LSN. ``counts``: None unless its BEGIN event was sent, else
    how many of its events were, by table.
    """

    commit_lsn: Lsn
    lsn: Lsn
    at_lsn: int | None = None
    counts: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The delivered part of the stream. ``message_at_commit``: so was a message outside of transactions at the LSN."""

    commit_lsn: Lsn
    part: DeliveredPart | None = None
    message_at_commit: bool = False

    @property
    def last_lsn(self) -> Lsn:
        """A transaction whose commit record begins after it is new as a whole, as are all that follow."""
        return self.commit_lsn if self.part is None else max(self.commit_lsn, self.part.commit_lsn)

    def to_json(self) -> str:
        """Return it as text, LSNs as PostgreSQL prints them."""
        raw: dict[str, Any] = {"commit_lsn": str(self.commit_lsn), "message_at_commit": self.message_at_commit}
        if self.part is not None:
            counts = None if self.part.counts is None else dict(self.part.counts)
            at = {"commit_lsn": str(self.part.commit_lsn), "lsn": str(self.part.lsn)}
            raw["part"] = {**at, "at_lsn": self.part.at_lsn, "counts": counts}
        return json.dumps(raw)

    @classmethod
    def from_json(cls, text: str) -> Delivered:
        """Return what ``to_json`` wrote. Raises ValueError, KeyError or TypeError."""
        raw = json.loads(text)
        part = None if raw.get("part") is None else _part(raw["part"])
        return cls(Lsn.parse(raw["commit_lsn"]), part, bool(raw["message_at_commit"]))


@dataclass(frozen=True, slots=True)
class Adoption:
    """The decision when a lake took over a stream: ``fills`` it by a snapshot, or begins after ``delivered``.

    ``offset_lsn`` is the offset's, by which the same adoption is recognised.
    """

    fills: bool
    offset_lsn: Lsn
    delivered: Delivered

    def to_json(self) -> str:
        """Return it as text, for the record of the stream."""
        return json.dumps(
            {"fills": self.fills, "offset_lsn": str(self.offset_lsn), "delivered": self.delivered.to_json()}
        )

    @classmethod
    def from_json(cls, text: str) -> Adoption:
        """Return what ``to_json`` wrote. Raises ValueError, KeyError or TypeError."""
        raw = json.loads(text)
        return cls(bool(raw["fills"]), Lsn.parse(raw["offset_lsn"]), Delivered.from_json(raw["delivered"]))


def _part(raw: dict[str, Any]) -> DeliveredPart:
    counts = None if raw["counts"] is None else tuple((str(table), int(n)) for table, n in raw["counts"].items())
    return DeliveredPart(Lsn.parse(raw["commit_lsn"]), Lsn.parse(raw["lsn"]), raw["at_lsn"], counts)

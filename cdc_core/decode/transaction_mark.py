"""Begin and end marks of transactions, with their numbers of events (``provide.transaction.metadata``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """A transaction at its end: number of events, and by collection in Debezium's order."""

    total: int
    collections: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TransactionMark:
    """The begin of a transaction, or its end (``counts`` is not None).

    ``lsn`` is that of the Begin message, equal to its first change's, or the end of the transaction's WAL.
    """

    seq: int
    xid: int
    lsn: int
    commit_lsn: int
    commit_ts_us: int
    counts: TransactionCounts | None

    @property
    def id(self) -> str:
        """Debezium's id of a BEGIN or END record."""
        return f"{self.xid}:{self.lsn}"

    @property
    def status(self) -> str:
        """BEGIN or END."""
        return "BEGIN" if self.counts is None else "END"

    @property
    def collections(self) -> list[dict[str, Any]] | None:
        """The number of events by collection; None at the begin."""
        if self.counts is None:
            return None
        return [{"data_collection": name, "event_count": count} for name, count in self.counts.collections]

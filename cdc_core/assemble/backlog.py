"""The backlog of the slot, read with one cheap query."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lsn import Lsn


@dataclass(frozen=True, slots=True)
class SlotBacklog:
    """State of the slot. ``has_changes``: WAL was written after the confirmed position; None means unknown.

    ``is_claimed``: a run of wal2lake is using the slot, on any machine. ``has_signals``: the signal file that the next
    run reads is not empty. ``lag_seconds`` and ``inactive_seconds`` are as in ``postgres/replication/slot.SlotAges``.
    """

    slot_exists: bool
    slot_active: bool = False
    confirmed_lsn: Lsn | None = None
    wal_end_lsn: Lsn | None = None
    wal_status: str | None = None
    is_claimed: bool = False
    has_signals: bool = False
    lag_seconds: float | None = None
    inactive_seconds: float | None = None

    @property
    def lag_bytes(self) -> int | None:
        """Bytes of WAL between the confirmed position and the end of the WAL."""
        if self.confirmed_lsn is None or self.wal_end_lsn is None:
            return None
        return max(0, self.wal_end_lsn - self.confirmed_lsn)

    @property
    def has_changes(self) -> bool:
        """Whether there may be changes to read or signals to process. An idle server writes some WAL too."""
        return self.slot_exists and (self.has_signals or (self.lag_bytes or 0) > 0)

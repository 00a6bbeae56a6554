"""The source's rows of a table as a repair reads them again: with a snapshot of their own, by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_core.lake import ChangesInSlot, ShownBySource
from cdc_core.lsn import Lsn
from cdc_core.postgres import ChunkConnection
from cdc_core.reconcile.slot_changes import SlotChanges
from cdc_core.schema import Key
from cdc_core.snapshot import TableSelects


@dataclass(frozen=True, slots=True)
class RowsAgain:
    """Reads by ``selects``."""

    connection: ChunkConnection
    slot: SlotChanges
    selects: TableSelects

    def read(self, keys: Sequence[Key] | None) -> tuple[bytes, ShownBySource]:
        """Return the rows with some keys, None for all, as lines of COPY text, and what their snapshot shows."""
        bound = self.connection.bound()
        selects = self.selects.ranges if keys is None else self.selects.of_keys(keys)
        read = self.connection.read(*selects)
        # The end of WAL after the snapshot: all that it shows was committed before.
        return b"".join(read.rows), ShownBySource.of(read.visible, self.connection.wal_end(), bound)

    def waiting(self, lsn: Lsn) -> ChangesInSlot:
        """Return the changes up to an LSN that the changelogs may lack."""
        return self.slot.upto(lsn)

    def stream(self) -> tuple[Lsn, bool]:
        """Return the LSN up to which the changelogs have every change, and whether a run streams."""
        return self.slot.position()

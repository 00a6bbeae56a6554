"""The stored progress of the snapshots of one run: the present one, and that in the lake."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_core.lake import ProgressLog
from cdc_core.snapshot import Discarded, LakeProgress


class StoredProgress:
    """``now`` is the state; ``store`` makes it durable. For one thread."""

    def __init__(self, log: ProgressLog, state: LakeProgress) -> None:
        self._log = log
        self._written = state
        self.now = state

    def store(self, state: LakeProgress | None = None) -> None:
        """Make a state (None: the present one) durable. Raises LakeError, CommitConflictError."""
        self.now = self.now if state is None else state
        if self.now != self._written:
            self._log.write(self.now.to_json())
            self._written = self.now

    def discard(self, discarded: Iterable[Discarded]) -> None:
        """Store that ranges are not written, before they are removed."""
        self.store(self.now.discarding(discarded))

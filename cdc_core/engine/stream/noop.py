"""A sink that discards changes: every batch is decoded and converted on the workers, and nothing is stored.

It measures the throughput of decoding and conversion, and tests a connector file without a lake.
"""

from __future__ import annotations

from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reports import RoundReport
from cdc_core.lake import DiscardedSpool, Owner, TypingPlan
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId
from cdc_core.spark import StartSession


class NoopSink:
    """A ``stream.Sink`` without tables."""

    def __init__(self, spark: StartSession, plan: TypingPlan, owner: Owner) -> None:
        self._spool = DiscardedSpool(spark, plan, owner)
        self._to_lsn = Lsn(0)

    def append(self, batch: Batch | None, to_lsn: Lsn) -> None:
        """Decode and convert every row of the batch, then discard it."""
        self._to_lsn = to_lsn
        if batch is not None and batch.rows:
            self._spool.decode(batch.paths())

    def merge(self) -> RoundReport:
        """Return an empty report: there are no tables."""
        return RoundReport(self._to_lsn, ())

    def has_backlog(self, to_lsn: Lsn) -> bool:
        """Always False."""
        return False

    def call_all(self) -> None:
        """Do nothing: there are no tables."""

    def note_renamed(self) -> None:
        """Do nothing: nothing is stored."""

    @property
    def is_busy(self) -> bool:
        """Always False."""
        return False

    @property
    def unmerged(self) -> dict[TableId, str]:
        """Always empty."""
        return {}

    def between_rounds(self, passed: int) -> bool:
        """Do nothing: there is nothing to maintain."""
        return False

    def close(self) -> None:
        """Do nothing: there is no background work."""

"""A ``stream.Sink`` for the lake that also processes signals and takes the snapshots that they request."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_core.engine.backfill.snapshots import LakeSnapshots
from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reports import RoundReport
from cdc_core.engine.round.lake_sink import LakeSink
from cdc_core.engine.stream.requests import TableRequests
from cdc_core.lake import Replay
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId


class SignalSink:
    """Applies rounds to ``lake``; signals are processed between rounds, and ``requests`` in rounds, too."""

    def __init__(self, lake: LakeSink, snapshots: LakeSnapshots, requests: TableRequests) -> None:
        self._lake = lake
        self._snapshots = snapshots
        self._requests = requests
        self._replays: Mapping[TableId, Replay] = {}

    def append(self, batch: Batch | None, to_lsn: Lsn) -> None:
        """As for ``LakeSink``. Signals are processed, and the result is stored, before the position is confirmed."""
        if batch is not None:
            self._snapshots.note(batch.signals)
        self._replays = self._requests.due
        self._lake.append(batch, to_lsn, self._replays)

    def merge(self) -> RoundReport:
        """As for ``LakeSink``; replays that were requested are answered."""
        report = self._lake.merge()
        self._requests.note(report, self._replays)
        return report

    def has_backlog(self, to_lsn: Lsn) -> bool:
        """As for ``LakeSink``; also for a replay that was requested."""
        return bool(self._requests.due) or self._lake.has_backlog(to_lsn)

    def call_all(self) -> None:
        """As for ``LakeSink``."""
        self._lake.call_all()

    def note_renamed(self) -> None:
        """As for ``LakeSink``."""
        self._lake.note_renamed()

    @property
    def is_busy(self) -> bool:
        """Whether the lake is busy, a request is under way, or a snapshot is in progress that is not paused."""
        return self._lake.is_busy or self._requests.are_under_way or self._snapshots.is_busy

    @property
    def unmerged(self) -> dict[TableId, str]:
        """As for ``LakeSink``."""
        return self._lake.unmerged

    def between_rounds(self, passed: int) -> bool:
        """Run background work of the lake, then of the snapshots; returns whether these have more to do at once."""
        self._lake.between_rounds(passed, lambda: self._snapshots.needed)
        self._requests.look()
        return self._snapshots.between_rounds(self._lake.backfill, passed)

    def close(self) -> None:
        """End background work."""
        self._requests.close()
        self._snapshots.close()
        self._lake.close()

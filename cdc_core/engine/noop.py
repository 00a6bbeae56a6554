"""The sink that lets go: every batch is decoded and typed on the workers, and nothing is kept.

It measures how fast typed events can be had, and tries a connector file out without a lake.
"""

from __future__ import annotations

from typing import Any

from cdc_core.engine.batch import Batch
from cdc_core.engine.reports import RoundReport
from cdc_core.engine.spool import ReadSpoolFiles, in_groups
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.lsn import Lsn
from cdc_core.sink.noop import discard
from cdc_core.spark.errors import received
from cdc_core.spark.map_in_arrow import read_by_tasks


class NoopSink:
    """A ``stream.Sink`` without tables."""

    def __init__(self, spark: Any, plan: TypingPlan) -> None:
        self._spark = spark
        self._plan = plan

    def append(self, batch: Batch) -> None:
        """Decode and type every row of the batch, then forget it."""
        for versions in batch.versions.values():
            for version in versions:
                items = in_groups(version.paths, self._spark.sparkContext.defaultParallelism)
                schema = self._plan.typer(version.table).change_schema
                with received(f"decoding {version.table.id}"):
                    discard(read_by_tasks(self._spark, items, ReadSpoolFiles(self._plan), schema))

    def merge(self, to_lsn: Lsn) -> RoundReport:
        """There is nothing to merge."""
        return RoundReport(to_lsn, ())

    def has_news(self, to_lsn: Lsn) -> bool:
        """Never."""
        return False

    def expire(self) -> None:
        """There is nothing to let go of."""

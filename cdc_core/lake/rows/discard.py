"""Decodes spool files in tasks, and stores nothing: what a run without tables does with changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.spool import ReadSpoolFiles, in_groups
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.spark import StartSession, parallelism, run_tasks


@dataclass(frozen=True, slots=True)
class DiscardedSpool:
    """Decodes and converts the rows of spool files of ``owner`` in the session of ``spark``, then discards them."""

    spark: StartSession
    plan: TypingPlan
    owner: Owner

    def decode(self, paths: Sequence[Path]) -> None:
        """Decode the files, in one job. Raises CdcError as a task does."""
        spark = self.spark()
        groups = [[group] for group in in_groups(list(paths), parallelism(spark))]
        run_tasks(spark, groups, _Discard(ReadSpoolFiles(self.plan, self.owner)), "decoding changes")


@dataclass(frozen=True, slots=True)
class _Discard:
    read: ReadSpoolFiles

    def __call__(self, paths: tuple[str, ...]) -> int:
        return sum(batch.num_rows for batch in self.read(paths))

"""Settings of snapshots into the lake."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_core.lake import DeleteModes, FeaturePolicy, ReadChecks
from cdc_core.schema import LakeFeatures
from cdc_core.snapshot.options import SnapshotOptions


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Ranges of at most ``rows_per_range`` rows, ``threads`` at a time, 0 for the number of Spark's task slots.

    ``scope`` is that of the tables' positions (``lake/epochs``). ``reads``: wal2lake.changelog.reads.
    ``keeps_dropped``: if a delete mode keeps rows, columns dropped in the source stay. ``database``:
    wal2lake.lake.catalog.database. ``checks`` judge the rows that are read, None if checks are disabled.
    """

    options: SnapshotOptions
    rows_per_range: int
    threads: int
    scope: str
    reads: bool = False
    history_minutes: int = 0
    features: FeaturePolicy = field(default_factory=FeaturePolicy)
    modes: DeleteModes = field(default_factory=DeleteModes)
    keeps_dropped: bool = True
    database: str = ""
    checks: ReadChecks | None = None

    @property
    def has_features(self) -> bool:
        """Whether tables are to have Delta features from the start."""
        features = self.features
        has_layout = bool(features.clustered or features.tracked or features.fed) or features.commit_timestamps
        return has_layout or features.features is LakeFeatures.MODERN

    @property
    def may_resume(self) -> bool:
        """Whether an interrupted snapshot may be continued with these settings."""
        return not self.reads and not self.has_features

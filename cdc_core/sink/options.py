"""Where the lake is and how it is written."""

# option() is dataclasses.field with a declaration, so each call stands where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.option import at_least, option
from cdc_core.schema.changes import DroppedColumns, LakeFeatures, Policy, SchemaChanges


class MergeEngine(StrEnum):
    """Who applies a slice to the lake table: Arrow in the task (copy-on-write), Spark's MERGE, or as the size says."""

    AUTO = "auto"
    ARROW = "arrow"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What steers the lake's tables."""

    lake_path: str = option(
        "wal2lake.lake.path",
        "",
        "Root of the lake: a folder or a URI of any Hadoop file system. Needed by the sink lake.",
    )
    changelog_reads: bool = option(
        "wal2lake.changelog.reads",
        False,
        "Whether snapshot rows also go to the changelog tables, as op r.",
    )
    changelog_retention_days: int = option(
        "wal2lake.changelog.retention.days",
        0,
        "Days that change rows stay in the changelog tables once they are merged; 0 for ever. The files themselves go "
        "with Delta's VACUUM.",
        parse=at_least(0),
    )
    merge_engine: MergeEngine = option(
        "wal2lake.merge.engine",
        MergeEngine.AUTO,
        "Who applies changes to lake tables: arrow (files that hold changed rows are rewritten in the task), spark "
        "(Spark's MERGE with deletion vectors), or auto, which takes spark above wal2lake.merge.rewrite.max.bytes and "
        "for tables with Delta features that only Spark writes.",
    )
    merge_rewrite_max_bytes: int = option(
        "wal2lake.merge.rewrite.max.bytes",
        64 * 1024 * 1024,
        "Most bytes of lake files that may have to be rewritten for one table's part of a round; above it Spark's "
        "MERGE marks rows as deleted instead.",
        parse=at_least(1),
    )
    lake_history_minutes: int = option(
        "wal2lake.lake.history.minutes",
        15,
        "How long lake and changelog tables can be read as they were, by time travel. Data files that were replaced "
        "stay an hour at least, for queries under way; 0 for ever, where OPTIMIZE and VACUUM are left to others.",
        parse=at_least(0),
    )
    lake_schema_changes: SchemaChanges = option(
        "wal2lake.lake.schema.changes",
        SchemaChanges.REREAD,
        "What happens to a table whose rows the source rewrote, or changed in another way that the stream does not "
        "carry: it alone is read again, or it alone pauses until somebody acts. schema-changes.md lists the cases.",
    )
    lake_features: LakeFeatures = option(
        "wal2lake.lake.features",
        LakeFeatures.AUTO,
        "When Delta features that shut other readers out (column mapping, type widening) come on: when a change of the "
        "source first needs one and the lake table is larger than wal2lake.merge.rewrite.max.bytes (auto), never "
        "(widest: such a change writes the lake table anew), or from the start (modern). schema-changes.md says who "
        "can still read a table.",
    )
    lake_dropped_columns: DroppedColumns = option(
        "wal2lake.lake.dropped.columns",
        DroppedColumns.KEEP,
        "Whether a column that the source dropped stays in the lake, null in rows written from then on, or goes.",
    )

    @property
    def schema_policy(self) -> Policy:
        """The three that decide what a schema change does to the lake."""
        return Policy(self.lake_schema_changes, self.lake_features, self.lake_dropped_columns)

"""Where the lake is and how it is written."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import at_least, option


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
    merge_parallelism: int = option(
        "wal2lake.merge.parallelism", 4, "Tables appended to or merged side by side.", parse=at_least(1)
    )

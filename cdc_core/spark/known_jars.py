"""The list of Delta's jars that an earlier start resolved, which shows that Spark has started on this machine."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

JARS_VARIABLE = "WAL2LAKE_DELTA_JARS"


def cache() -> Path:
    """Return the folder of what starts have in common."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wal2lake"


def jars_file() -> Path:
    """Return the file of the list, for the versions of Spark and Delta that are installed."""
    return cache() / f"jars-delta-{version('delta-spark')}-spark-{version('pyspark')}.txt"


def listed_jars() -> list[str]:
    """Return the jars of an earlier start; none if there was no start, or one of them was removed."""
    try:
        files = jars_file().read_text().split("\n")
    except OSError:
        return []
    return files if all(Path(file).is_file() for file in files) else []


def has_started() -> bool:
    """Whether Spark has started here, with the jars that the next start has, too."""
    return not os.environ.get(JARS_VARIABLE) and bool(listed_jars())

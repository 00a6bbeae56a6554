"""The kinds of slices, by how they change a lake table."""

from __future__ import annotations

import enum


class MergeStrategy(enum.Enum):
    """How a slice is merged into the table's next version.

    APPEND     only inserts, past the snapshot's overlap: as the source's key is unique, none of them is there yet
    MERGE      everything else with a key; for a table that keeps deleted rows (``soft``) inserts and truncates, too
    MULTISET   everything else without one
    VERSIONS   everything else of a history table (``reduce/history``)
    PLACED     late changes of a history table, replayed from quarantine (``past_versions``)
    REPLACE    the slice contains a truncate: the changes after it are the table's entire content
    """

    APPEND = "append"
    MERGE = "merge"
    VERSIONS = "versions"
    PLACED = "placed"
    MULTISET = "multiset"
    REPLACE = "replace"

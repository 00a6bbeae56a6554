"""The plans by which a slice is merged: what is chosen before anything is written, as a value (``lake_merge``).

Nothing       the lake table is past the slice's LSN: another attempt merged it
AddFiles      other tasks wrote lake files of a slice of inserts, which are committed as they are
SurplusFirst  surplus rows of the snapshot in force are deleted in a commit of their own; then a plan is chosen again
Whole         the changes are merged in one part, with the replay of those in quarantine if one is requested
Divide        they are too large for that, or a truncate ends rows: they are divided among tasks (``divided``)
CommitShares  what these tasks did is committed

All changes of a plan identify their rows by one key: where the table's key changed, a later round merges the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.slice.divided import DividedSlice
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.schema_versions import Decoded
from cdc_core.lake.slice.shares import JoinedShares
from cdc_core.quality import CheckReport


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing is left to be merged."""


@dataclass(frozen=True, slots=True)
class AddFiles:
    """The rows are in ``files`` of the lake table already; ``check`` is their judgement."""

    merge: Merge
    files: tuple[DataFile, ...]
    check: CheckReport | None


@dataclass(frozen=True, slots=True)
class SurplusFirst:
    """A snapshot was read in several attempts: what ``first``, but not ``last``, shows may be in the table wrongly.

    Both are texts of a pg_snapshot.
    """

    merge: Merge
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Whole:
    """Change rows by schema version, in stream order, without those that the snapshot in force shows.

    ``merged``: the LSN after which they are. A replay that discards what is in quarantine has none.
    """

    merge: Merge
    rows: tuple[Decoded, ...]
    merged: int


@dataclass(frozen=True, slots=True)
class Divide:
    """Changes of the changelog that several tasks merge."""

    slice: DividedSlice


@dataclass(frozen=True, slots=True)
class CommitShares:
    """What the tasks of a divided slice did."""

    joined: JoinedShares


Plan = Nothing | AddFiles | SurplusFirst | Whole | Divide | CommitShares

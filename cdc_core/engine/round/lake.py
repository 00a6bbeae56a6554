"""Shared dependencies of a round: the lake, the processing of slices, and facts that the stream lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cdc_core.engine.schema.catalogue_watch import CatalogueWatch
from cdc_core.engine.schema.known_tables import KnownTables
from cdc_core.engine.schema.pauses import Pauses
from cdc_core.engine.schema.versions import SchemaVersions
from cdc_core.lake import LakeOptions, LakePaths
from cdc_core.selection import NumberByTable
from cdc_core.snapshot import Rereads

_AT_ONCE = NumberByTable(0.0)


@dataclass(frozen=True, slots=True)
class Lake:
    """The lake that a run writes to. ``scope`` is that of its positions (``lake/epochs``).

    ``freshness``: the target lag of each table in seconds. ``run`` is the one whose workers merge.
    """

    paths: LakePaths
    scope: str
    options: LakeOptions
    freshness: NumberByTable = _AT_ONCE
    run: str = ""


@dataclass(frozen=True, slots=True)
class SourceWatch:
    """What follows when the source's tables themselves change: the states of ``tables``, and what changes them.

    ``catalogue`` finds what the stream does not announce; ``wal_lsn`` returns the server's end of WAL.
    """

    tables: KnownTables
    pauses: Pauses
    schema_versions: SchemaVersions
    catalogue: CatalogueWatch
    rereads: Rereads
    wal_lsn: Callable[[], int]

"""A connector's lake, opened by its path: which tables it has at which position."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cdc_core.errors import ConfigError, LakeError
from cdc_core.lake.delta.storage import Storage
from cdc_core.lake.epochs import scope_of
from cdc_core.lake.object_stores import parse_lake_path
from cdc_core.lake.paths import LakePaths, name_of
from cdc_core.lake.readers.consistent_tables import ConsistentTables
from cdc_core.lake.readers.table_at_version import TableAtVersion
from cdc_core.lake.readers.table_changes import TableChanges
from cdc_core.lake.stores.round_lookup import Cut, find_cut
from cdc_core.lake.stores.stream_log import StreamLog
from cdc_core.lsn import Lsn, lsn_or_time
from cdc_core.schema import TableId

Place = Lsn | datetime | str
"""An LSN (``Lsn`` or text such as 16/B374D848), or a commit time of the source (text in ISO 8601; UTC if naive)."""


@dataclass(frozen=True, slots=True)
class OpenedLake:
    """The lake of one connector. Reads only; needs no server, no Java and no connector file.

    ``scope`` is that of the lake's positions (``epochs``).
    """

    paths: LakePaths
    scope: str

    def read(self, *tables: str, at: Place | None = None, all_rows: bool = False) -> ConsistentTables:
        """Return tables (``schema.table``; none: all) at the newest round at or before ``at`` (None: the newest).

        Together they show the source at one LSN: every transaction that committed up to it, and no other. Rows that the
        source has not are left out unless ``all_rows``: deleted ones in delete mode soft, earlier versions in delete
        mode history. Raises LakeError if no round was recorded, ``at`` is not between the oldest and the newest round,
        or a named table cannot be read there; tables that were not named and cannot be read are in ``missing``.
        """
        cut = self.versions(at, [_named(name) for name in tables])
        readable = {
            str(entry.table): TableAtVersion(entry.table, entry.version, entry.path, all_rows)
            for entry in cut.tables
            if entry.version is not None
        }
        missing = {str(entry.table): entry.state.value for entry in cut.tables if entry.version is None}
        return ConsistentTables(readable, cut.lsn, cut.committed_at, cut.epoch, missing)

    def changes(self, table: str) -> TableChanges:
        """Return the change events of a table (``schema.table``), from its changelog. Raises LakeError."""
        named = _named(table)
        return TableChanges(named, self.paths.changelog(named), self.paths.lake(named), self.scope)

    def versions(self, at: Place | None = None, tables: Sequence[TableId] = ()) -> Cut:
        """Return the Delta version of each table at a round; arguments and errors as for ``read``."""
        return find_cut(self.paths, self.scope, None if at is None else lsn_or_time(at), tables)


def open_lake(path: str | os.PathLike[str], storage: Storage | None = None) -> OpenedLake:
    """Open the lake at ``<wal2lake.lake.path>/<topic.prefix>``. Raises LakeError if wal2lake has written none there.

    ``storage`` are the settings of object stores; without them the environment's credentials are used. Raises
    ConfigError for a path in a store that is not supported.
    """
    try:
        text = parse_lake_path(os.fspath(path)).rstrip("/")
    except ValueError as error:
        raise ConfigError(f"The lake's path {os.fspath(path)!r} is not valid.", f"Expected is {error}.") from None
    if "://" not in text:
        text = os.path.abspath(text)
    root, _, prefix = text.rpartition("/")
    paths = LakePaths(root, name_of(prefix), storage or Storage())
    record = StreamLog(paths.stream, 0).read()
    if record is None:
        raise LakeError(
            f"{text} is not the lake of a connector: it has no table __stream.",
            "Give <wal2lake.lake.path>/<topic.prefix> of a connector that has streamed into its lake.",
        )
    return OpenedLake(paths, scope_of(record.slot, record.epoch))


def _named(name: str) -> TableId:
    try:
        return TableId.of_text(name)
    except ValueError as error:
        raise LakeError(f"{name!r} does not name a table: expected {error}.") from None

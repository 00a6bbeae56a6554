"""What the tables of a lake hold of their stream, by the positions in their commits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.errors import SourceError, UnreadableError
from cdc_core.lake import LakeTable, LastCommit, StreamRecord, scope_of
from cdc_core.lsn import Lsn
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema

_THREADS = 8


@dataclass(frozen=True, slots=True)
class Held:
    """What the tables of a lake hold, and which of them have any position.

    ``lsn``: the lowest LSN at which a history has all of it. ``changelog_lsn``: the newest commit in a changelog, that
    of the table ``at``. ``epoch``: the latest of any lake table's content.
    """

    lsn: Lsn = field(default_factory=Lsn)
    changelog_lsn: Lsn = field(default_factory=Lsn)
    at: TableId | None = None
    tables: frozenset[TableId] = frozenset()
    epoch: int = 0


def held_by(lake: ConnectorLake, record: StreamRecord | None, tables: Iterable[TableId]) -> Held:
    """Return what the tables of the lake hold in the epoch of the record."""
    paths = lake.paths
    scope = lake.slot if record is None else scope_of(record.slot, record.epoch)

    def look(table: TableId) -> tuple[TableId, int, int, bool, int]:
        try:
            position = LakeTable(paths, scope, table).position()
        except UnreadableError:
            return table, 0, 0, False, 0  # it is paused; the record and the other tables tell what the lake holds
        merged, changes = position.place, position.changelog
        at = 0 if changes is None else changes.commit_lsn
        # A changelog's position is where the record of a commit begins; a lake table may be merged up to the WAL's end.
        is_held = changes is not None or merged != (None, None)
        return table, at, max(at + bool(at), merged.lsn or 0), is_held, position.epoch

    with ConnectorThreadPool(_THREADS) as pool:
        contents = list(pool.map(look, tables))
    at = max(contents, key=lambda content: content[1], default=None)
    return Held(
        Lsn(max((content[2] for content in contents), default=0)),
        Lsn(0 if at is None else at[1]),
        None if at is None or not at[1] else at[0],
        frozenset(content[0] for content in contents if content[3]),
        max((content[4] for content in contents), default=0),
    )


def last_commit(lake: ConnectorLake, record: StreamRecord | None, content: Held) -> LastCommit | None:
    """Return the newest transaction of the changelogs (``Held.changelog_lsn``); None if its rows have expired."""
    if content.at is None:
        return None
    epoch = 0 if record is None else record.epoch
    return LakeTable(lake.paths, lake.scope, content.at).last_transaction(content.changelog_lsn, epoch)


def require_read(
    lake: ConnectorLake, record: StreamRecord | None, content: Held, source: Source, tables: Iterable[TableSchema]
) -> None:
    """Raise SourceError if a table has rows from before the present epoch, which new changes do not continue.

    A table that the stream reads by itself, because it has no snapshot, is left to it.
    """
    first = lake.mode.first
    if record is None or not record.epoch:
        return
    names = [table.id for table in tables if source.selection.is_table(table.id)]
    unread = [name for name in names if name not in content.tables]
    left = [
        name for name in unread if not (first and source.selection.includes_in_snapshot(name)) and _has_rows(lake, name)
    ]
    if left:
        raise SourceError(
            f"The lake's rows of {', '.join(map(str, left))} are from another server or from before changes that are "
            "missing: they were not read again yet.",
            f"Run wal2lake snapshot with {' '.join(map(str, left))}.",
        )


def _has_rows(lake: ConnectorLake, table: TableId) -> bool:
    try:
        return LakeTable(lake.paths, lake.scope, table).has_rows()
    except UnreadableError:
        return False  # the stream pauses it

"""How far a Delta table is, read from the table's own commits.

A Delta commit may carry ``txn`` actions, an application id and a version each, kept forever in the checkpoints.
The table's data and its position are thus one atomic write, and no second store can disagree with the lake:

    changelog   wal2lake:<slot>:<schema.table>:changelog     commit LSN of the last transaction that is whole in it
    changelog   wal2lake:<slot>:<schema.table>:open          commit LSN of the transaction that the last append cut, or
                                                             of the last whole one
    changelog   wal2lake:<slot>:<schema.table>:open_index    index of the cut transaction's last row
    changelog   wal2lake:<slot>:<schema.table>:reads         token of the last snapshot whose rows are in it
    changelog   wal2lake:<slot>:<schema.table>:expired       day (since 1970) on which old rows were last taken out
    lake        wal2lake:<slot>:<schema.table>:snapshot      token of the snapshot in force
    lake        wal2lake:<slot>:<schema.table>:<token>       commit LSN to which it is merged since that snapshot
    lake        wal2lake:<slot>:<schema.table>:shape         number of the source's version that it stands at
    lake        wal2lake:<slot>:<schema.table>:landings      how often rows of incremental snapshots have landed
    changelog   wal2lake:<slot>:<schema.table>:chunks        ordinal of the last such rows that are in it

A crash before a commit leaves the old position, a crash after it the new one; there is nothing between. The token is
part of the merge's id, so a new snapshot forgets the merges into the content that it replaced, in its own commit.

Every commit names the ids of its table whose versions it read, so two writers of one table conflict, and the later one
reads the positions again (``table``): a writer that outlives its run can neither double nor lose a row.
"""

from __future__ import annotations

from typing import NamedTuple

from cdc_core.schema.table import TableId
from cdc_core.sink.delta.table import DeltaTable

COMPLETE = 2**62 - 1
"""As a ``tx_index``: the whole transaction is there."""


class ChangelogPosition(NamedTuple):
    """Rows at or before it are in the changelog. ``tx_index`` is COMPLETE when the transaction is whole."""

    commit_lsn: int
    tx_index: int


class LakePosition(NamedTuple):
    """The snapshot in force and the LSN merged since; None where there is none."""

    token: int | None
    lsn: int | None


def changelog_app(slot: str, table: TableId) -> str:
    """The id under which a changelog's position is kept."""
    return f"wal2lake:{slot}:{table}:changelog"


def open_app(slot: str, table: TableId) -> str:
    """The id under which a changelog keeps the commit LSN of a transaction of which it has only a part."""
    return f"wal2lake:{slot}:{table}:open"


def open_index_app(slot: str, table: TableId) -> str:
    """The id under which a changelog keeps how far that part reaches."""
    return f"wal2lake:{slot}:{table}:open_index"


def reads_app(slot: str, table: TableId) -> str:
    """The id under which a changelog keeps the snapshot whose rows it has."""
    return f"wal2lake:{slot}:{table}:reads"


def expired_app(slot: str, table: TableId) -> str:
    """The id under which a changelog keeps the day of its last clearing."""
    return f"wal2lake:{slot}:{table}:expired"


def snapshot_app(slot: str, table: TableId) -> str:
    """The id under which the snapshot in force is kept."""
    return f"wal2lake:{slot}:{table}:snapshot"


def shape_app(slot: str, table: TableId) -> str:
    """The id under which the lake keeps the number of the shape it stands at (``shape_log``)."""
    return f"wal2lake:{slot}:{table}:shape"


def landings_app(slot: str, table: TableId) -> str:
    """The id under which the lake counts landings of rows that incremental snapshots have read."""
    return f"wal2lake:{slot}:{table}:landings"


def chunks_app(slot: str, table: TableId) -> str:
    """The id under which a changelog keeps the ordinal of the last such rows that are in it."""
    return f"wal2lake:{slot}:{table}:chunks"


def merge_app(slot: str, table: TableId, token: int) -> str:
    """The id under which the merged LSN since the snapshot ``token`` is kept."""
    return f"wal2lake:{slot}:{table}:{token}"


def changelog_position(changelog: DeltaTable | None, slot: str, table: TableId) -> ChangelogPosition | None:
    """How far the changelog is, or None when it holds nothing of this slot."""
    if changelog is None:
        return None
    whole = changelog.txn(changelog_app(slot, table))
    cut = changelog.txn(open_app(slot, table))
    if cut is not None and (whole is None or cut > whole):
        return ChangelogPosition(cut, changelog.txn(open_index_app(slot, table)) or 0)
    return None if whole is None else ChangelogPosition(whole, COMPLETE)


def lake_position(lake: DeltaTable | None, slot: str, table: TableId) -> LakePosition:
    """Which snapshot the lake table shows and how far it is merged since. Both None for a table that is not there.

    A table that never had a snapshot is merged under token 0.
    """
    if lake is None:
        return LakePosition(None, None)
    token = lake.txn(snapshot_app(slot, table))
    return LakePosition(token, lake.txn(merge_app(slot, table, token or 0)))

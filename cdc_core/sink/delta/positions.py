"""Positions of Delta tables, read from the table's own commits.

A Delta commit may contain ``txn`` actions, each an application id and a version, which checkpoints keep forever. The
table's data and its position are thus one atomic write, and no second store can disagree with the lake:

    changelog   wal2lake:<slot>:<schema.table>:changelog     commit LSN of the last complete transaction in it
    changelog   wal2lake:<slot>:<schema.table>:open          commit LSN of the transaction incomplete after the last
                                                             append, or of the last complete one
    changelog   wal2lake:<slot>:<schema.table>:open_index    index of the incomplete transaction's last row
    changelog   wal2lake:<slot>:<schema.table>:reads         token of the last snapshot whose rows are in it
    changelog   wal2lake:<slot>:<schema.table>:expired       day (since 1970) on which old rows were last removed
    lake        wal2lake:<slot>:<schema.table>:snapshot      token of the snapshot in force
    lake        wal2lake:<slot>:<schema.table>:<token>       commit LSN to which it is merged since that snapshot
    lake        wal2lake:<slot>:<schema.table>:shape         number of the source's version that it has
    lake        wal2lake:<slot>:<schema.table>:landings      number of writes of incremental snapshots' rows
    changelog   wal2lake:<slot>:<schema.table>:chunks        ordinal of the last such rows that are in it

A crash before a commit leaves the old position, a crash after it the new one; there is no state in between. The token
is part of the merge's id, so a new snapshot invalidates, in its own commit, the merges into the content that it
replaced. Every commit contains the ids of its table whose versions it read, so two writers of one table conflict, and
the later one reads the positions again (``table``): a writer that outlasts its run can neither duplicate nor lose a
row.
"""

from __future__ import annotations

from typing import NamedTuple

from cdc_core.schema.table import TableId
from cdc_core.sink.delta.table import DeltaTable

COMPLETE = 2**62 - 1
"""As a ``tx_index``: the transaction is complete."""


class ChangelogPosition(NamedTuple):
    """Rows at or before it are in the changelog. ``tx_index`` is COMPLETE if the transaction is complete."""

    commit_lsn: int
    tx_index: int


class LakePosition(NamedTuple):
    """The snapshot in force and the LSN merged since; None if there is none."""

    token: int | None
    lsn: int | None


def changelog_app(slot: str, table: TableId) -> str:
    """The id for a changelog's position."""
    return f"wal2lake:{slot}:{table}:changelog"


def open_app(slot: str, table: TableId) -> str:
    """The id for the commit LSN of a transaction of which a changelog has only a part."""
    return f"wal2lake:{slot}:{table}:open"


def open_index_app(slot: str, table: TableId) -> str:
    """The id for the index of that part's last row."""
    return f"wal2lake:{slot}:{table}:open_index"


def reads_app(slot: str, table: TableId) -> str:
    """The id for the snapshot whose rows a changelog has."""
    return f"wal2lake:{slot}:{table}:reads"


def expired_app(slot: str, table: TableId) -> str:
    """The id for the day on which old changes were last removed from a changelog."""
    return f"wal2lake:{slot}:{table}:expired"


def snapshot_app(slot: str, table: TableId) -> str:
    """The id for the snapshot in force."""
    return f"wal2lake:{slot}:{table}:snapshot"


def shape_app(slot: str, table: TableId) -> str:
    """The id for the number of a lake table's shape (``shape_log``)."""
    return f"wal2lake:{slot}:{table}:shape"


def landings_app(slot: str, table: TableId) -> str:
    """The id for the number of writes of rows of incremental snapshots to a lake table."""
    return f"wal2lake:{slot}:{table}:landings"


def chunks_app(slot: str, table: TableId) -> str:
    """The id for the ordinal of the last such rows in a changelog."""
    return f"wal2lake:{slot}:{table}:chunks"


def merge_app(slot: str, table: TableId, token: int) -> str:
    """The id for the LSN merged since the snapshot ``token``."""
    return f"wal2lake:{slot}:{table}:{token}"


def changelog_position(changelog: DeltaTable | None, slot: str, table: TableId) -> ChangelogPosition | None:
    """Return the changelog's position; None if it has no rows of this slot."""
    if changelog is None:
        return None
    whole = changelog.txn(changelog_app(slot, table))
    cut = changelog.txn(open_app(slot, table))
    if cut is not None and (whole is None or cut > whole):
        return ChangelogPosition(cut, changelog.txn(open_index_app(slot, table)) or 0)
    return None if whole is None else ChangelogPosition(whole, COMPLETE)


def lake_position(lake: DeltaTable | None, slot: str, table: TableId) -> LakePosition:
    """Return the snapshot that the lake table shows and the LSN merged since. Both None if it does not exist.

    A table that never had a snapshot is merged under token 0.
    """
    if lake is None:
        return LakePosition(None, None)
    token = lake.txn(snapshot_app(slot, table))
    return LakePosition(token, lake.txn(merge_app(slot, table, token or 0)))

"""Positions of Delta tables, read from the table's own commits.

A Delta commit may contain ``txn`` actions, each an application id and a version, which checkpoints keep forever. The
table's data and its position are thus one atomic write, and no second store can disagree with the lake:

    changelog   wal2lake:<scope>:<schema.table>:changelog     commit LSN of the last complete transaction in it
    changelog   wal2lake:<scope>:<schema.table>:open          commit LSN of the transaction incomplete after the last
                                                             append, or of the last complete one
    changelog   wal2lake:<scope>:<schema.table>:open_index    index of the incomplete transaction's last row
    changelog   wal2lake:<scope>:<schema.table>:reads         token of the last snapshot whose rows are in it
    changelog   wal2lake:<scope>:<schema.table>:expired       day (since 1970) on which old rows were last removed
    changelog   wal2lake:<scope>:<schema.table>:expired_to    greatest commit LSN of a change that was removed
    lake        wal2lake:<scope>:<schema.table>:snapshot      token of the snapshot in force
    lake        wal2lake:<scope>:<schema.table>:<token>       commit LSN to which it is merged since that snapshot
    lake        wal2lake:<scope>:<schema.table>:schema version         number of the source's version that it has
    lake        wal2lake:<scope>:<schema.table>:chunk-writes  number of writes of incremental snapshots' rows
    changelog   wal2lake:<scope>:<schema.table>:chunks        ordinal of the last such rows that are in it
    lake        wal2lake:<schema.table>:epoch                 epoch of its content, from epoch 1 on

The *scope* is the slot's name in epoch 0 and ``<slot>@<epoch>`` in later ones (``epochs``): positions of different
servers or histories are never compared, because none is found under the id of another.

A crash before a commit leaves the old position, a crash after it the new one; there is no state in between. The token
is part of the merge's id, so a new snapshot invalidates, in its own commit, the merges into the content that it
replaced. Every commit contains the ids of its table whose versions it read, so two writers of one table conflict, and
the later one reads the positions again (``table``): a writer that outlasts its run can neither duplicate nor lose a
row.

Contract, for everything that writes a table of the lake

* Rows and the position that says so are in one commit. A position in a commit of its own, before or after, would
  lose or repeat rows in a crash between the two.
* A position is only moved to an LSN at which *every* change of the table up to it is in the commit, is in an earlier
  one, or is in quarantine. It never moves back within a scope and a token.
* The order of what becomes durable, for one change:

      1  spool file            not durable: lost with the machine, and sent again
      2  changelog             rows and ``:changelog`` or ``:open``; rows at or before it are dropped when sent again
                               (a new schema version is recorded before its first row, in ``stores/schema_log``)
      3  record of the stream  the LSN that is about to be confirmed (``stores/stream_log``)
      4  slot                  confirmed: the server may remove the WAL, and 2 is the only copy from here on
      5  quarantine            rows that 6 leaves out; each names the LSN of 6, and applies from then on
      6  lake table            rows, and the LSN under the token: a slice that is repeated finds the LSN and is skipped
      7  record of the round   versions of all tables at one LSN (``stores/rounds``)

  4 before 2 loses changes. 4 before 3 makes the slot look advanced by somebody else after a crash. 6 before 2 shows
  rows that the changelog lacks, so that a re-read cannot know them. 6 before 5 loses a refused row. 7 before 6 sends
  readers to a version that does not show what is recorded. 5 and 6 do not wait for 3 and 4: usually they are first,
  because a task appends and merges at once and confirmations are bounded in rate. This costs only WAL that the server
  keeps.
* A step may be repeated after any crash, by another process, and has the same result.
* One writer at a time. A second one is not expected, but may exist (a run that was thought dead): each of its commits
  conflicts, and it reads the positions again before it writes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdc_core.arrays import Bools
from cdc_core.errors import TransientError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of, scope_of, slot_of
from cdc_core.schema import TableId

COMPLETE = 2**62 - 1
"""As a ``tx_index``: the transaction is complete. Greater than the index of every row of a transaction."""


class ChangelogPosition(NamedTuple):
    """Rows at or before it are in the changelog. ``tx_index`` is COMPLETE if the transaction is complete."""

    commit_lsn: int
    tx_index: int = COMPLETE

    def covers(self, commit_lsn: np.ndarray, tx_index: np.ndarray) -> Bools:
        """Return which rows are at or before this position. Shape: int64[N], int64[N] -> bool[N]."""
        covered: np.ndarray = (commit_lsn < self.commit_lsn) | (
            (commit_lsn == self.commit_lsn) & (tx_index <= self.tx_index)
        )
        return covered


class LakePosition(NamedTuple):
    """The snapshot in force and the LSN merged since; None if there is none."""

    token: int | None
    lsn: int | None

    @property
    def merge_token(self) -> int:
        """The token under which changes are merged: 0 for a table that never had a snapshot."""
        return self.token or 0

    @property
    def merged(self) -> int:
        """The LSN merged since the snapshot, 0 for none."""
        return self.lsn or 0


def _app(scope: str, table: TableId, name: str) -> str:
    """The id of one of a table's positions in a scope."""
    return f"wal2lake:{scope}:{table}:{name}"


def changelog_app(scope: str, table: TableId) -> str:
    """The id for a changelog's position."""
    return _app(scope, table, "changelog")


def open_app(scope: str, table: TableId) -> str:
    """The id for the commit LSN of a transaction of which a changelog has only a part."""
    return _app(scope, table, "open")


def open_index_app(scope: str, table: TableId) -> str:
    """The id for the index of that part's last row."""
    return _app(scope, table, "open_index")


def reads_app(scope: str, table: TableId) -> str:
    """The id for the snapshot whose rows a changelog has."""
    return _app(scope, table, "reads")


def expired_app(scope: str, table: TableId) -> str:
    """The id for the day on which old changes were last removed from a changelog."""
    return _app(scope, table, "expired")


def expired_to_app(scope: str, table: TableId) -> str:
    """The id for the greatest commit LSN of a change that was removed from a changelog."""
    return _app(scope, table, "expired_to")


def snapshot_app(scope: str, table: TableId) -> str:
    """The id for the snapshot in force."""
    return _app(scope, table, "snapshot")


def schema_version_app(scope: str, table: TableId) -> str:
    """The id for the number of a lake table's schema version (``stores/schema_log``)."""
    return _app(scope, table, "schema-version")


def chunk_writes_app(scope: str, table: TableId) -> str:
    """The id for the number of writes of rows of incremental snapshots to a lake table."""
    return _app(scope, table, "chunk-writes")


def chunks_app(scope: str, table: TableId) -> str:
    """The id for the ordinal of the last such rows in a changelog."""
    return _app(scope, table, "chunks")


def merge_app(scope: str, table: TableId, token: int) -> str:
    """The id for the LSN merged since the snapshot ``token``."""
    return _app(scope, table, str(token))


def epoch_app(table: TableId) -> str:
    """The id for the epoch of a lake table's content. It is the same in every epoch, and for every slot."""
    return f"wal2lake:{table}:epoch"


def changelog_position(changelog: DeltaTable | None, scope: str, table: TableId) -> ChangelogPosition | None:
    """Return the changelog's position; None if it has no rows of this scope."""
    if changelog is None:
        return None
    whole = changelog.txn(changelog_app(scope, table))
    cut = changelog.txn(open_app(scope, table))
    if cut is not None and (whole is None or cut > whole):
        return ChangelogPosition(cut, changelog.txn(open_index_app(scope, table)) or 0)
    return None if whole is None else ChangelogPosition(whole)


def lake_position(lake: DeltaTable | None, scope: str, table: TableId) -> LakePosition:
    """Return the snapshot that the lake table shows and the LSN merged since. Both None if it does not exist.

    A table that never had a snapshot is merged under token 0. Both are None for content of another epoch.
    """
    if lake is None or content_epoch(lake, table) > epoch_of(scope):
        return LakePosition(None, None)
    token = lake.txn(snapshot_app(scope, table))
    return LakePosition(token, lake.txn(merge_app(scope, table, token or 0)))


def has_rows_of_changes(lake: DeltaTable) -> bool:
    """Whether a lake table has a row that a change has written, so that it has had a changelog."""
    return any(file.maximum.get("__tx_index", -1) >= 0 for file in lake.files)


def content_epoch(lake: DeltaTable, table: TableId) -> int:
    """Return the epoch of a lake table's content, 0 for an empty table that was never read."""
    return lake.txn(epoch_app(table)) or 0


def is_of_earlier_epoch(lake: DeltaTable, scope: str, table: TableId) -> bool:
    """Whether the table has content of an earlier epoch than the scope's: it must be read before anything is merged."""
    if content_epoch(lake, table) >= epoch_of(scope):
        return False
    return bool(lake.files) or bool(former_merges(lake, scope, table))


def former_merges(lake: DeltaTable, scope: str, table: TableId) -> dict[str, int]:
    """Return the ids of merges into the table in earlier epochs, with their present versions.

    A commit that contains them conflicts with those of a run that has outlasted its epoch.
    """
    versions = {}
    for epoch in range(epoch_of(scope)):
        before = scope_of(slot_of(scope), epoch)
        token = lake.txn(snapshot_app(before, table))
        app = merge_app(before, table, token or 0)
        merged = lake.txn(app)
        if token is not None or merged is not None:
            versions[app] = merged or 0
    return versions


def check_epoch(lake: DeltaTable, scope: str, table: TableId) -> None:
    """Raise TransientError if the table's content is of a later epoch than the scope's."""
    if content_epoch(lake, table) > epoch_of(scope):
        raise TransientError(
            f"The lake table of {table} was read from another server, or again after a gap, by another run.",
            "Stop this run: only one run may write to a lake at a time.",
        )

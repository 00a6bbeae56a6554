"""How far a Delta table is, read from the table's own commits.

A Delta commit may carry a ``txn`` action: an application id and a version, kept for ever in the table's checkpoints.
The table's data and its position are thus one atomic write, and no second store can disagree with the lake:

    changelog   wal2lake:<slot>:<schema.table>:changelog     commit LSN of the last transaction that is whole in it
    changelog   wal2lake:<slot>:<schema.table>:reads         token of the last snapshot whose rows are in it
    changelog   wal2lake:<slot>:<schema.table>:expired       day (since 1970) on which old rows were last taken out
    lake        wal2lake:<slot>:<schema.table>:snapshot      token of the snapshot in force
    lake        wal2lake:<slot>:<schema.table>:<token>       commit LSN to which it is merged since that snapshot

A crash before a commit leaves the old position, a crash after it the new one; there is nothing between. The token is
part of the merge's id, so a new snapshot forgets the merges into the content that it replaced, in its own commit.

Delta skips a write whose version is not above the stored one, without an error. That is what makes a repeated merge
harmless, and what could lose a changelog append; ``guarded_write`` turns such a skip into an error where it is not
wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc_core.errors import InvariantError
from cdc_core.schema.table import TableId

COMPLETE = 2**63 - 1
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


def reads_app(slot: str, table: TableId) -> str:
    """The id under which a changelog keeps the snapshot whose rows it has."""
    return f"wal2lake:{slot}:{table}:reads"


def expired_app(slot: str, table: TableId) -> str:
    """The id under which a changelog keeps the day of its last clearing."""
    return f"wal2lake:{slot}:{table}:expired"


def snapshot_app(slot: str, table: TableId) -> str:
    """The id under which the snapshot in force is kept."""
    return f"wal2lake:{slot}:{table}:snapshot"


def merge_app(slot: str, table: TableId, token: int) -> str:
    """The id under which the merged LSN since the snapshot ``token`` is kept."""
    return f"wal2lake:{slot}:{table}:{token}"


def table_exists(spark: SparkSession, path: str) -> bool:
    """Whether a Delta table lies at ``path``."""
    return bool(_snapshot(spark, path).version() >= 0)


def table_version(spark: SparkSession, path: str) -> int:
    """The newest Delta version of the table; -1 when there is none."""
    return int(_snapshot(spark, path).version())


def count_rows(spark: SparkSession, path: str) -> int:
    """Rows of the table at ``path``."""
    return int(spark.read.format("delta").load(path).count())


def txn_versions(spark: SparkSession, path: str) -> dict[str, int]:
    """Application id → version of every ``txn`` the table keeps; empty when there is no table."""
    snapshot = _snapshot(spark, path)
    if snapshot.version() < 0:
        return {}
    known = snapshot.setTransactionsIfKnown()
    actions = known.get() if known.isDefined() else snapshot.setTransactions()
    found = (actions.apply(number) for number in range(actions.length()))
    return {str(action.appId()): int(action.version()) for action in found}


def changelog_position(spark: SparkSession, path: str, slot: str, table: TableId) -> ChangelogPosition | None:
    """How far the changelog is, or None when it holds nothing of this slot.

    Rows beyond the last whole transaction belong to one that was being written when a batch ended: they count too.
    Snapshot reads (index -1) do not.
    """
    whole = txn_versions(spark, path).get(changelog_app(slot, table))
    if not table_exists(spark, path):
        return None
    rows = spark.read.format("delta").load(path).filter(F.col("__tx_index") >= 0)
    beyond = rows if whole is None else rows.filter(F.col("__commit_lsn") > whole)
    last = beyond.agg(F.max(F.struct("__commit_lsn", "__tx_index")).alias("last")).collect()[0]["last"]
    if last is not None:
        return ChangelogPosition(last["__commit_lsn"], last["__tx_index"])
    return None if whole is None else ChangelogPosition(whole, COMPLETE)


def lake_position(spark: SparkSession, path: str, slot: str, table: TableId) -> LakePosition:
    """Which snapshot the lake table shows and how far it is merged since. Both None for a table that is not there.

    A table that never had a snapshot is merged under token 0.
    """
    versions = txn_versions(spark, path)
    token = versions.get(snapshot_app(slot, table))
    return LakePosition(token, versions.get(merge_app(slot, table, token or 0)))


def guarded_write(spark: SparkSession, path: str, what: str, write: Callable[[], None]) -> int:
    """Run ``write`` and return the Delta version it made.

    Raises InvariantError when the table has no new version afterwards: Delta took the write for a repetition.
    """
    before = table_version(spark, path)
    write()
    after = table_version(spark, path)
    if after <= before:
        raise InvariantError(f"Delta skipped the {what} at version {before}: its position is not above the stored one.")
    return after


def _snapshot(spark: SparkSession, path: str) -> Any:
    jvm: Any = spark._jvm
    none = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    return log.update(False, none, none)

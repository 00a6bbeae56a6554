"""A survey of change rows of one table: operations, order, and unsent values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Ints
from cdc_core.errors import LakeError, MissingKeyError, RereadNeededError, TableError
from cdc_core.lake.rows.images import column, validity
from cdc_core.schema import TableId, TableSchema, identity_remedy, named_remedy
from cdc_core.visibility import Visibility


@dataclass(frozen=True, slots=True)
class Survey:
    """Summary of change rows. ``ops`` counts them by operation.

    ``truncated_at`` is the position of the last truncate. ``without_before`` counts updates and deletes without an old
    tuple, ``lost`` the deletes among them.
    """

    ops: dict[str, int]
    truncated_at: tuple[int, int] | None
    without_before: int
    lost: int

    @property
    def rows(self) -> int:
        """The number of change rows."""
        return sum(self.ops.values())

    def plus(self, other: Survey) -> Survey:
        """Return the summary of the rows of both."""
        ops = Counter(self.ops) + Counter(other.ops)
        at = max(
            (position for position in (self.truncated_at, other.truncated_at) if position is not None), default=None
        )
        return Survey(dict(ops), at, self.without_before + other.without_before, self.lost + other.lost)

    @property
    def only_inserts(self) -> bool:
        """Whether all rows are inserts."""
        return set(self.ops) <= {"c"}


NO_ROWS = Survey({}, None, 0, 0)


def survey(rows: pa.Table) -> Survey:
    """Summarize change rows (``RowTyper.change_schema``; columns that are not used may be missing)."""
    if not rows.num_rows:
        return NO_ROWS
    counts = pc.value_counts(column(rows, "__op"))
    ops = Counter(dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)))
    at = None
    if ops["t"]:
        cut = rows.filter(is_op(rows, "t")).select(["__commit_lsn", "__tx_index"])
        last = np.lexsort((cut.column(1).to_numpy(), cut.column(0).to_numpy()))[-1]
        at = (cut.column(0)[int(last)].as_py(), cut.column(1)[int(last)].as_py())
    bare = lost = 0
    if ops["u"] or ops["d"]:
        no_before = ~validity(column(rows, "before"))
        lost = int(np.count_nonzero(no_before & is_op(rows, "d")))
        bare = lost + int(np.count_nonzero(no_before & is_op(rows, "u")))
    return Survey({op: count for op, count in ops.items() if count}, at, bare, lost)


def is_op(rows: pa.Table, op: str) -> Bools:
    """Return the rows of one operation. Shape: table[N] -> bool[N]."""
    return np.asarray(pc.equal(column(rows, "__op"), op).to_numpy(zero_copy_only=False))


def check_old_rows(facts: Survey, keyed: bool, table: TableSchema, lake: Collection[str] | None = None) -> None:
    """Raise TableError if deletes (without a key updates too) do not identify the changed row.

    MissingKeyError, which pauses the table, if the server leaves out columns of its key, or sends names in them.
    ``lake`` are the lake table's columns, None if it has all of the table's.
    """
    refers = not keyed and bool(facts.ops.get("u") or facts.ops.get("d"))
    known = None if lake is None else {name.lower() for name in lake}
    named = [name for name in table.named_identity if known is None or name.lower() in known]
    if refers and named:
        raise MissingKeyError(
            f"{table.id} has updates or deletes, and rows are identified by {', '.join(named)}, of which the server "
            "sends the names of objects: once one is renamed, an old row does not identify the changed row.",
            f"{named_remedy(table)} Then run wal2lake snapshot with {table.id}.",
            str(table.id),
        )
    if refers and table.unsent_identity:
        raise MissingKeyError(
            f"{table.id} has updates or deletes, and the server does not send {', '.join(table.unsent_identity)} of "
            "its replica identity, so they do not identify the changed row.",
            f"{identity_remedy(table)} Then run wal2lake snapshot with {table.id}.",
            str(table.id),
        )
    if facts.lost if keyed else facts.without_before:
        parts = (
            " for the table and each of its partitions"
            if table.fingerprint and table.fingerprint.is_partitioned
            else ""
        )
        raise TableError(
            f"{table.id} has updates or deletes that do not identify the changed row.",
            f"Add a primary key, or run ALTER TABLE {table.id.quoted} REPLICA IDENTITY FULL{parts}, and take a new "
            "snapshot of the table.",
            str(table.id),
        )


def invisible(rows: pa.Table, snapshot: str) -> pa.Table:
    """Return the rows whose transaction a ``pg_snapshot`` does not show. Raises LakeError as ``hidden`` does."""
    keep = hidden(rows, snapshot)
    return rows if keep.all() else rows.filter(pa.array(keep))


def hidden(rows: pa.Table, snapshot: str) -> Bools:
    """Whether a ``pg_snapshot`` does not show a row's transaction (``__xid``). Shape: table[N] -> bool[N].

    A row without an xid counts as hidden. Raises LakeError if the text is not a pg_snapshot.
    """
    xid = column(rows, "__xid")
    xids = xid.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.asarray(~stored_visibility(snapshot).shows(xids) | ~validity(xid))


def stored_visibility(text: str) -> Visibility:
    """Parse a ``pg_snapshot`` that is stored in the lake. Raises LakeError for another text."""
    try:
        return Visibility.parse(text)
    except ValueError:
        raise LakeError("Expected a pg_snapshot such as 10:20:10,14, found another text.") from None


def after_position(rows: pa.Table, at: tuple[int, int]) -> pa.Table:
    """Return the rows after a position."""
    lsn, index = rows.column("__commit_lsn").to_numpy(), rows.column("__tx_index").to_numpy()
    return rows.filter(pa.array((lsn > at[0]) | ((lsn == at[0]) & (index > at[1]))))


def unsent(rows: pa.Table) -> dict[str, np.ndarray]:
    """Return, for each column omitted by some update as unchanged, these rows. Shape: table[N] -> bool[N] each."""
    lists = column(rows, "__unchanged")
    names = lists.flatten()
    if not len(names):
        return {}
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    at = np.repeat(np.arange(len(lists)), lengths)
    out = {}
    for name in names.unique().to_pylist():
        mask = np.zeros(len(lists), dtype=bool)
        mask[at[pc.equal(names, name).to_numpy(zero_copy_only=False)]] = True
        out[name] = mask
    return out


def check_inserts(rows: pa.Table, table: TableId) -> None:
    """Raise RereadNeededError if an insert omits values.

    The server sends an UPDATE that makes a row pass the publication's row filter as an insert, without unchanged values
    that are stored out of line (TOAST) and are not part of the replica identity: there is no earlier value of the row.
    """
    lists = column(rows, "__unchanged")
    if len(lists.flatten()) and any((mask & is_op(rows, "c")).any() for mask in unsent(rows).values()):
        raise RereadNeededError(
            f"An UPDATE made rows of {table} pass the publication's row filter, and the server did not send values of "
            "these rows that are stored out of line.",
            f"Run ALTER TABLE {table.quoted} REPLICA IDENTITY FULL, so that the server sends them; then run wal2lake "
            f"replay with {table}.",
            str(table),
        )


def in_order(rows: pa.Table) -> pa.Table:
    """Return the rows ordered by (commit LSN, index in the transaction)."""
    lsn, index = rows.column("__commit_lsn").to_numpy(), rows.column("__tx_index").to_numpy()
    if len(lsn) < 2 or bool(np.all((lsn[1:] > lsn[:-1]) | ((lsn[1:] == lsn[:-1]) & (index[1:] > index[:-1])))):
        return rows
    return rows.take(pa.array(order_of(rows)))


def order_of(rows: pa.Table) -> Ints:
    """Return the indexes of rows in stream order; those of one position keep theirs. Shape: table[N] -> int64[N]"""
    return np.lexsort((rows.column("__tx_index").to_numpy(), rows.column("__commit_lsn").to_numpy()))

"""A micro-batch: spool files by table version, and the positions that are reached at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdc_core.lake import ChangelogPosition, StreamTable
from cdc_core.observe import LagCounts
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import SignalRow


def rows_in_changelog(position: ChangelogPosition, raw: pa.RecordBatch) -> np.ndarray | None:
    """Return which rows of RAW_SCHEMA are at or before a changelog's position: bool[N], or None if none are.

    Rows are in commit order, so a batch whose first row is past the position is entirely new. This is the usual case,
    and it requires one comparison.
    """
    if raw.num_rows == 0 or raw.column("commit_lsn")[0].as_py() > position.commit_lsn:
        return None
    return position.covers(raw.column("commit_lsn").to_numpy(), raw.column("tx_index").to_numpy())


class Commits(NamedTuple):
    """Transactions in commit order: their LSNs, commit times in microseconds since 1970, and numbers of rows.

    Shape: int64[N] each
    """

    lsns: np.ndarray
    times_us: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, raw: pa.RecordBatch) -> Commits:
        """Return the transactions of rows of RAW_SCHEMA, at least one, which are in commit order."""
        lsns = raw.column("commit_lsn").to_numpy()
        first = np.flatnonzero(np.diff(lsns, prepend=lsns[0] - 1))
        return cls(lsns[first], raw.column("commit_ts_us").to_numpy()[first], np.diff(first, append=len(lsns)))


@dataclass(slots=True)
class VersionFiles:
    """The files of one table version in a batch.

    ``commits`` are the transactions in them, ``last`` is the last row's commit LSN and its index in the transaction.
    """

    table: TableSchema
    paths: list[Path] = field(default_factory=list)
    rows: int = 0
    commits: list[Commits] = field(default_factory=list)
    last: tuple[int, int] = (0, -1)
    only_inserts: bool = True

    def note(self, raw: pa.RecordBatch, only_inserts: bool = False) -> None:
        """Record the rows of ``raw`` (at least one); ``only_inserts``: all of them are inserts."""
        self.rows += raw.num_rows
        self.commits.append(Commits.of(raw))
        # Truncates are recorded after the rows around them, so the rows recorded last need not be last in stream order.
        last = int(raw.column("commit_lsn").to_numpy()[-1]), int(raw.column("tx_index").to_numpy()[-1])
        self.last = max(self.last, last)
        self.only_inserts = self.only_inserts and only_inserts

    def last_commit_before(self, bound: int | None) -> int | None:
        """Return the largest commit LSN in the files that is less than ``bound`` (None: any); None if there is none."""
        known = np.concatenate([commits.lsns for commits in self.commits])
        inside = known if bound is None else known[known < bound]
        return int(inside.max()) if len(inside) else None


@dataclass(slots=True)
class Batch:
    """The content of one micro-batch.

    ``versions`` maps each table to its versions in stream order. ``complete_lsn`` is the commit LSN of the last
    complete transaction, ``confirm_lsn`` the end LSN of that transaction (which may be confirmed to the slot); both are
    None if no transaction ended in the batch. ``open_lsn`` is the commit LSN of the transaction that continues in the
    next batch, else None. ``last_xid`` and ``last_ts_us`` are of the last complete transaction. ``signals`` are the
    rows of the signal table in stream order, ``own_rows`` those of the stream's own tables.
    """

    number: int
    versions: dict[TableId, list[VersionFiles]] = field(default_factory=dict)
    complete_lsn: int | None = None
    confirm_lsn: int | None = None
    open_lsn: int | None = None
    last_commit_ts_us: int | None = None
    last_xid: int = 0
    last_ts_us: int = 0
    rows: int = 0
    bytes: int = 0
    signals: list[SignalRow] = field(default_factory=list)
    own_rows: dict[StreamTable, list[pa.Table]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is to be stored: only transactions without captured changes end in it."""
        return not (self.rows or self.signals or self.own_rows)

    def files_of(self, table: TableSchema) -> VersionFiles:
        """Return the files of this table version; creates the entry for a new version."""
        known = self.versions.setdefault(table.id, [])
        if not known or known[-1].table.version != table.version:
            known.append(VersionFiles(table))
        return known[-1]

    def complete_to(self, table: TableId) -> int | None:
        """Return the commit LSN up to which the table's changelog is complete after the batch is appended.

        None if the batch contains no complete transaction of the table. A transaction that continues in the next batch
        is not complete: if its LSN were stored with the first part, a crash before the second part would lose the
        second part.
        """
        lsns = [version.last_commit_before(self.open_lsn) for version in self.versions[table]]
        return max((lsn for lsn in lsns if lsn is not None), default=None)

    def last_commit(self, table: TableId) -> int:
        """The largest commit LSN among the table's rows."""
        return max(int(commits.lsns[-1]) for version in self.versions[table] for commits in version.commits)

    def open_at(self, table: TableId) -> tuple[int, int] | None:
        """Return the table's last row in a transaction continued in the next batch: (commit LSN, index), or None."""
        last = max(version.last for version in self.versions[table])
        return last if last[0] == self.open_lsn else None

    def lags(self, committed_us: Mapping[TableId, int]) -> LagCounts:
        """Return the time from the complete transactions of tables to the commits of their lake tables.

        Of a transaction that is divided among batches, the rows of the last one are counted.
        """
        open_lsn, lags, changes = -1 if self.open_lsn is None else self.open_lsn, [], []
        for table, at_us in committed_us.items():
            for commits in chain.from_iterable(version.commits for version in self.versions.get(table, ())):
                is_complete = commits.lsns != open_lsn
                lags.append(at_us - commits.times_us[is_complete])
                changes.append(commits.rows[is_complete])
        if not lags:
            return LagCounts()
        return LagCounts.of(np.maximum(np.concatenate(lags), 0) / 1e6, np.concatenate(changes))

    def only_inserts(self, table: TableId) -> bool:
        """Whether all of the table's rows are inserts of one table version and of complete transactions."""
        versions = self.versions[table]
        return len(versions) == 1 and versions[0].only_inserts and self.open_at(table) is None

    def paths(self) -> list[Path]:
        """Every file of the batch."""
        return [path for versions in self.versions.values() for version in versions for path in version.paths]

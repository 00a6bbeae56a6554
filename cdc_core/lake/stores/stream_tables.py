"""The stream's own tables: logical messages, and transaction metadata.

They are appended as changelogs are: rows and the position that they reach are one commit, and rows at or before the
table's position are dropped, so what the slot sends again is not repeated. ``__tx_index`` is not the index of a change
here: it is a message's LSN, or 0 at a transaction's begin and 1 at its end. A message outside of transactions is a
transaction of its own, whose ``__commit_lsn`` is the message's LSN; the WAL has no time for it, so ``__commit_ts`` is
when it was received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa

from cdc_core.lake.delta.log_table import log_table
from cdc_core.lake.delta.readable import open_complete
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows, epoch_of
from cdc_core.lake.maintenance.compaction import maintain_after
from cdc_core.lake.maintenance.retention import expire_changes
from cdc_core.lake.names import EPOCH
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import changelog_position
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.schema.lake_schema import changelog_properties
from cdc_core.lake.stores.changelog import append_changes, commit_time
from cdc_core.lake.stores.stream_table import StreamTable

_ANY = 2**62  # greater than any LSN


class StreamTables:
    """The tables of one connector's lake, each created by its first rows. For one thread.

    Only the active run appends rows.
    """

    def __init__(self, paths: LakePaths, scope: str, history_minutes: int) -> None:
        self._paths, self._scope, self._history_minutes = paths, scope, history_minutes
        self._opened: dict[StreamTable, DeltaTable] = {}

    def append(self, rows: Mapping[StreamTable, Sequence[pa.Table]], open_lsn: int | None) -> None:
        """Append rows that are not in the tables yet, one commit a table; they are durable when this returns.

        ``open_lsn``: the commit LSN of a transaction of which more rows may follow. Raises TransientError after
        repeated conflicts with other writers, and LakeError.
        """
        for table, parts in rows.items():
            self._append(table, pa.concat_tables(parts), open_lsn)

    def _append(self, table: StreamTable, rows: pa.Table, open_lsn: int | None) -> None:
        minutes = self._history_minutes
        schema = table.schema.append(pa.field(EPOCH, pa.int64()))
        log = log_table(self._opened.get(table), table.path(self._paths), schema, changelog_properties(minutes))
        self._opened[table], since = log, log.version
        rows = rows.append_column(schema.field(EPOCH), pa.repeat(epoch_of(self._scope), rows.num_rows))
        append_changes(log, rows, self._scope, table.id, _reached(rows, open_lsn))
        maintain_after(log, since, minutes)

    def last_row(self, table: StreamTable) -> tuple[int, datetime | None] | None:
        """Return the LSN of a table's last row, and when the source committed it; None without a row. For any thread.

        Raises UnreadableError if the folder is of another program, or lacks files.
        """
        opened = open_complete(table.path(self._paths))
        end = changelog_position(opened, self._scope, table.id)
        if opened is None or end is None:
            return None
        return end.commit_lsn, commit_time(EpochRows.of(opened, self._scope), end.commit_lsn)

    def expire(self, table: StreamTable, now_us: int, days: int) -> None:
        """Delete rows older than ``days``, which nothing reads again; may be repeated."""
        expire_changes(table.path(self._paths), self._scope, table.id, _ANY, now_us, days)


def _reached(rows: pa.Table, open_lsn: int | None) -> Reached:
    lsn, index = (rows.column(name).to_numpy() for name in ("__commit_lsn", "__tx_index"))
    is_open = lsn == (-1 if open_lsn is None else open_lsn)
    whole = int(lsn[~is_open].max()) if not is_open.all() else None
    return Reached(whole, (int(open_lsn or 0), int(np.max(index[is_open]))) if is_open.any() else None)

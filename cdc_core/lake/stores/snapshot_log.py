"""The transactions that each snapshot of each table shows.

Written before a snapshot's rows are committed; the token in the lake table's own commit then determines which of these
entries is in force. An entry without a commit (after a crash in between) is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from cdc_core.lake.delta.log_table import all_rows, append_rows, log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId

_SCHEMA = pa.schema(
    [
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("token", pa.int64()),
        ("lsn", pa.int64()),
        ("visible", pa.string()),
        ("floor", pa.int64()),
        ("since", pa.string()),
        ("recorded_at", pa.timestamp("us", tz="UTC")),
        ("epoch", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """A snapshot of one table. ``visible`` is pg_current_snapshot()'s text; what ends after ``lsn`` is invisible.

    Every transaction that committed up to ``floor`` is visible; None if this is unknown. ``since`` is the text of an
    earlier pg_snapshot if the table was read in several attempts (``snapshot/copy/resume``): the lake may then also
    contain rows whose keys were deleted, or changed, between the two. None if it contains exactly the rows shown.
    """

    token: int
    lsn: Lsn
    visible: str
    floor: Lsn | None = None
    since: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotLog:
    """The record of snapshots at ``path``, in an ``epoch`` of the stream (``epochs``)."""

    path: str
    epoch: int = 0

    def add(self, taken: Mapping[TableId, TakenSnapshot]) -> None:
        """Record snapshots that are about to be committed, one entry per table."""
        now = datetime.now(UTC)
        rows = [
            {
                "schema_name": table.schema,
                "table_name": table.table,
                "token": snapshot.token,
                "lsn": int(snapshot.lsn),
                "visible": snapshot.visible,
                "floor": None if snapshot.floor is None else int(snapshot.floor),
                "since": snapshot.since,
                "recorded_at": now,
                "epoch": self.epoch,
            }
            for table, snapshot in taken.items()
        ]
        append_rows(log_table(None, self.path, _SCHEMA, {}), rows, _SCHEMA)

    def read(self) -> dict[tuple[TableId, int], TakenSnapshot]:
        """Return the entries of the epoch by table and token."""
        rows = all_rows(DeltaTable.open(self.path), _SCHEMA).to_pylist()  # row-wise: one per snapshot of a table
        return {
            (TableId(row["schema_name"], row["table_name"]), row["token"]): TakenSnapshot(
                row["token"],
                Lsn(row["lsn"]),
                row["visible"],
                None if row["floor"] is None else Lsn(row["floor"]),
                row["since"],
            )
            for row in rows
            if (row["epoch"] or 0) == self.epoch
        }

    def times(self) -> dict[tuple[TableId, int], datetime]:
        """Return when the snapshots of the epoch were recorded (UTC), by table and token."""
        rows = all_rows(DeltaTable.open(self.path), _SCHEMA).to_pylist()  # row-wise: one per snapshot of a table
        return {
            (TableId(row["schema_name"], row["table_name"]), row["token"]): row["recorded_at"]
            for row in rows
            if (row["epoch"] or 0) == self.epoch
        }

    def former_tokens(self) -> dict[TableId, set[int]]:
        """Return each table's tokens of all epochs before: none of them is given again.

        Tables of wal2lake's own that are not divided by epoch (quarantine, rounds) name a snapshot by its token.
        """
        tokens: dict[TableId, set[int]] = {}
        # row-wise: one per snapshot of a table, and only in a later epoch
        for row in all_rows(DeltaTable.open(self.path), _SCHEMA).to_pylist() if self.epoch else ():
            if (row["epoch"] or 0) < self.epoch:
                tokens.setdefault(TableId(row["schema_name"], row["table_name"]), set()).add(row["token"])
        return tokens

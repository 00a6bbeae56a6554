"""The results of comparisons with the source: one row a table and comparison, in ``__reconciliations``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.log_table import all_rows, append_rows, log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import maintain_after
from cdc_core.lake.schema.lake_schema import lake_properties
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId

_COUNTS = ("missing", "extra", "changed", "quarantined", "undecided", "repaired")
_TIME = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("kind", pa.string()),
        ("lsn", pa.int64()),
        ("epoch", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("rows", pa.int64()),
        *((name, pa.int64()) for name in _COUNTS),
        ("keys", pa.string()),
        ("lake_version", pa.int64()),
        ("bytes_read", pa.int64()),
        ("seconds", pa.float64()),
        ("recorded_at", _TIME),
    ]
)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One result. ``run`` identifies the comparison; ``kind`` is all, since or sample: which rows were compared.

    ``counts`` are those of ``_COUNTS``; ``keys`` maps missing, extra and changed to the keys that were named. ``rows``
    is None for a table that was left out.
    """

    run: str
    kind: str
    lsn: Lsn
    epoch: int
    table: TableId
    state: str
    reason: str
    rows: int | None
    counts: Mapping[str, int]
    keys: Mapping[str, Sequence[Sequence[str | None]]]
    lake_version: int | None
    bytes_read: int
    seconds: float
    recorded_at: datetime


class ReconciliationLog:
    """The results of one connector, in an ``epoch``. For one thread; rows are kept for ``keep_days``."""

    def __init__(self, path: str, history_minutes: int, keep_days: int, epoch: int = 0) -> None:
        self._path = path
        self._history_minutes = history_minutes
        self._keep_days = keep_days
        self._epoch = epoch
        self._opened: DeltaTable | None = None

    def read(self) -> list[Reconciliation]:
        """Return the results of the epoch, oldest first."""
        return read_reconciliations(self._path, self._epoch)

    def add(self, results: Sequence[Reconciliation]) -> None:
        """Append results in one commit. Raises TransientError after repeated conflicts with other writers."""
        if not results:
            return
        log = log_table(self._opened, self._path, _SCHEMA, lake_properties(self._history_minutes))
        self._opened, since = log, log.version
        append_rows(log, [_plain(reconciliation) for reconciliation in results], _SCHEMA)
        maintain_after(log, since, self._history_minutes)

    def expire(self, now: datetime) -> None:
        """Remove the rows that are older than is configured."""
        self._opened = self._opened or DeltaTable.open(self._path)
        if self._opened is None:
            return
        log, before = self._opened, pa.scalar(now - timedelta(days=self._keep_days), _TIME)

        def attempt() -> None:
            rows = all_rows(log, _SCHEMA)
            kept = rows.filter(pc.greater_equal(rows.column("recorded_at"), before))
            if kept.num_rows < rows.num_rows:
                log.commit([log.write(kept)] if kept.num_rows else [], log.files)

        on_conflict(attempt, log)


def read_reconciliations(path: str, epoch: int | None = None) -> list[Reconciliation]:
    """Return the results, of one epoch if it is given, oldest first; empty if there are none."""
    rows = all_rows(DeltaTable.open(path), _SCHEMA).sort_by([("recorded_at", "ascending")])
    # row-wise: one per table and comparison
    reconciliations = [_result(row) for row in rows.to_pylist()]
    return [reconciliation for reconciliation in reconciliations if epoch is None or reconciliation.epoch == epoch]


def _plain(reconciliation: Reconciliation) -> dict[str, Any]:
    return {
        "run": reconciliation.run,
        "kind": reconciliation.kind,
        "lsn": int(reconciliation.lsn),
        "epoch": reconciliation.epoch,
        "schema_name": reconciliation.table.schema,
        "table_name": reconciliation.table.table,
        "state": reconciliation.state,
        "reason": reconciliation.reason,
        "rows": reconciliation.rows,
        **{name: reconciliation.counts.get(name, 0) for name in _COUNTS},
        "keys": json.dumps(reconciliation.keys),
        "lake_version": reconciliation.lake_version,
        "bytes_read": reconciliation.bytes_read,
        "seconds": reconciliation.seconds,
        "recorded_at": reconciliation.recorded_at.astimezone(UTC),
    }


def _result(row: Mapping[str, Any]) -> Reconciliation:
    return Reconciliation(
        row["run"],
        row["kind"],
        Lsn(row["lsn"]),
        row["epoch"] or 0,
        TableId(row["schema_name"], row["table_name"]),
        row["state"],
        row["reason"] or "",
        row["rows"],
        {name: row[name] or 0 for name in _COUNTS},
        json.loads(row["keys"] or "{}"),
        row["lake_version"],
        row["bytes_read"] or 0,
        row["seconds"] or 0.0,
        row["recorded_at"],
    )

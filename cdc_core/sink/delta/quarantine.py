"""Change rows that a quality rule refused, kept with their reasons in a Delta table beside the lake."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from cdc_core.sink.delta.append import on_conflict
from cdc_core.sink.delta.table import DeltaTable

QUARANTINED_AT = "__quarantined_at"

# Every commit names it, so that of two writers with the same rows the later one looks again.
_APP = "wal2lake:quarantine"

_POSITION = ["__commit_lsn", "__tx_index"]


def write_quarantine(rows: pa.Table, path: str) -> int:
    """Append refused rows that the quarantine table does not hold yet; how many were new.

    ``rows`` holds the position columns, ``reasons`` array<string> and ``row`` (JSON text). A row is known by its
    position, so a round that is done again after a crash, to another LSN or by other rules, adds each row once. Write
    it before the merge: a crash between the two then repeats the check and finds the rows here.
    """
    at = pa.array(np.full(rows.num_rows, int(datetime.now(UTC).timestamp() * 1e6)), pa.timestamp("us", tz="UTC"))
    stamped = rows.append_column(QUARANTINED_AT, at)
    table = DeltaTable.open(path) or DeltaTable.create(path, stamped.schema, {})

    def attempt() -> int:
        new = _unknown(stamped, table)
        if new.num_rows:
            table.commit([table.write(new)], txns={_APP: (table.txn(_APP) or 0) + 1})
        return int(new.num_rows)

    return on_conflict(attempt, table)


def _unknown(rows: pa.Table, table: DeltaTable) -> pa.Table:
    """The rows whose position no row of the table has."""
    held = [table.read(file, _POSITION) for file in table.files]
    if not held:
        return rows
    placed = rows.select(_POSITION).append_column("at", pa.array(np.arange(rows.num_rows)))
    new = placed.join(pa.concat_tables(held), keys=_POSITION, join_type="left anti")
    return rows.take(new.column("at").combine_chunks().sort())

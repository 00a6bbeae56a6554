"""The effect of a delete in the source on a lake table, and the columns that record it.

    hard      the row is deleted
    soft      the row is kept with its last values, and ``__deleted`` is true
    history   every version of a row is kept, with the positions and times between which it was valid

The mode of a lake table is determined by its columns, so its schema is sufficient to apply a change. Their names are
reserved in every mode: a column of the source must not have one of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.errors import TableError
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.schema import TableId

DELETED = "__deleted"
CURRENT = "__current"
FROM_LSN, TO_LSN, TO_INDEX = "__valid_from_lsn", "__valid_to_lsn", "__valid_to_index"
FROM_TIME, TO_TIME = "__valid_from", "__valid_to"
TO = (TO_LSN, TO_INDEX, TO_TIME)
POSITION = ("__commit_lsn", "__tx_index", "__commit_ts")
"""The position and time of the event that wrote a row of a lake table; in history mode, that began the version."""

_TIME = pa.timestamp("us", tz="UTC")


COLUMNS: dict[DeleteMode, tuple[pa.Field, ...]] = {
    DeleteMode.HARD: (),
    DeleteMode.SOFT: (pa.field(DELETED, pa.bool_()),),
    DeleteMode.HISTORY: (
        pa.field(FROM_LSN, pa.int64()),
        pa.field(TO_LSN, pa.int64()),
        pa.field(TO_INDEX, pa.int64()),
        pa.field(FROM_TIME, _TIME),
        pa.field(TO_TIME, _TIME),
        pa.field(CURRENT, pa.bool_()),
    ),
}
NAMES = frozenset(each.name for fields in COLUMNS.values() for each in fields)


def mode_of(columns: Iterable[str]) -> DeleteMode:
    """Return the mode of the lake table that has these columns."""
    names = set(columns)
    if FROM_LSN in names:
        return DeleteMode.HISTORY
    return DeleteMode.SOFT if DELETED in names else DeleteMode.HARD


def check_mode(lake: pa.Schema, mode: DeleteMode, table: TableId) -> None:
    """Raise TableError if the lake table was created in another mode than the configured one."""
    lake_mode = mode_of(lake.names)
    if lake_mode is not mode:
        raise TableError(
            f"The lake table of {table} is in delete mode {lake_mode.value}, but the configuration sets {mode.value}.",
            f"Set wal2lake.lake.delete.mode.{lake_mode.value}={table}, or re-read the table in the new mode: "
            f"wal2lake snapshot with {table}.",
            str(table),
        )


def live_column(mode: DeleteMode) -> str | None:
    """Return the Boolean column that marks rows by whether the source has them; None if it has all of them."""
    return {DeleteMode.HARD: None, DeleteMode.SOFT: DELETED, DeleteMode.HISTORY: CURRENT}[mode]


def is_live(rows: pa.Table) -> Bools:
    """Return which lake rows the source has now; all of them in hard mode. Shape: table[N] -> bool[N]."""
    if CURRENT in rows.schema.names:
        return _flags(rows, CURRENT, missing=False)
    if DELETED in rows.schema.names:
        return ~_flags(rows, DELETED, missing=False)
    return np.ones(rows.num_rows, dtype=bool)


def as_live(rows: pa.Table, mode: DeleteMode) -> pa.Table:
    """Set the columns of the mode to the values of rows that the source has.

    Shape: table[N] with the columns of POSITION -> table[N]
    """
    count = rows.num_rows
    if mode is DeleteMode.SOFT:
        return with_column(rows, DELETED, pa.array(np.zeros(count, dtype=bool)))
    if mode is DeleteMode.HISTORY:
        rows = with_column(rows, FROM_LSN, rows.column(POSITION[0]))
        rows = with_column(rows, TO_LSN, pa.nulls(count, pa.int64()))
        rows = with_column(rows, TO_INDEX, pa.nulls(count, pa.int64()))
        rows = with_column(rows, FROM_TIME, rows.column(POSITION[2]))
        rows = with_column(rows, TO_TIME, pa.nulls(count, _TIME))
        rows = with_column(rows, CURRENT, pa.array(np.ones(count, dtype=bool)))
    return rows


def with_column(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the rows with a column replaced, or appended if it does not exist."""
    at = rows.schema.get_field_index(name)
    return rows.append_column(name, values) if at < 0 else rows.set_column(at, rows.schema.field(at), values)


def _flags(rows: pa.Table, name: str, *, missing: bool) -> np.ndarray:
    return np.asarray(rows.column(name).fill_null(missing).to_numpy())

"""Ranges of tables that a snapshot has read, and the files written for them, before the table's own commit.

One row per finished range, in one Delta table of the lake. The recorded files are in no lake table yet, and
``snapshot/copy/resume`` decides whether they may be used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.log_table import all_rows, append_rows, log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.survey import stored_visibility
from cdc_core.schema import TableId
from cdc_core.visibility import Visibility

_log = logging.getLogger(__name__)

_SCHEMA = pa.schema(
    [
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("token", pa.int64()),
        ("lsn", pa.int64()),
        ("since", pa.string()),
        ("marks", pa.string()),
        ("first_block", pa.int64()),
        ("end_block", pa.int64()),
        ("files", pa.string()),
        ("recorded_at", pa.timestamp("us", tz="UTC")),
        ("epoch", pa.int64()),
    ]
)


_ORDER = [("token", "ascending"), ("first_block", "ascending")]


@dataclass(frozen=True, slots=True)
class FinishedRange:
    """Pages ``first_block`` up to ``end_block`` (None: to the end) that were read, and the files with their rows.

    ``since`` is the text of the pg_snapshot of the first attempt, whose LSN is ``lsn``: rows written since must not be
    taken from the files. ``token`` is that of the attempt that read the range. ``marks`` is a digest of everything that
    the files' rows depend on except the table's own rows.
    """

    token: int
    lsn: int
    since: str
    marks: str
    first_block: int
    end_block: int | None
    files: tuple[DataFile, ...]

    @property
    def shown(self) -> Visibility:
        """What the first attempt's snapshot shows. Raises LakeError."""
        return stored_visibility(self.since)

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(file.rows for file in self.files)


class RangeLog:
    """The log of one connector. For one thread; small, and no longer needed once the tables are committed.

    ``epoch``: ranges of another one (``epochs``) are not used: their rows are of another server or history. ``former``
    are those, as of the last ``read``: their files are of no use.
    """

    def __init__(self, path: str, properties: dict[str, str], epoch: int = 0) -> None:
        self._path = path
        self._epoch = epoch
        self._properties = properties
        self._opened: DeltaTable | None = None
        self.former: dict[TableId, list[FinishedRange]] = {}

    def read(self) -> dict[TableId, list[FinishedRange]]:
        """Return the recorded ranges that were not cleared, by table, those of the last attempt last.

        In the order of positions: the clock of an attempt's host may be wrong.
        """
        self._opened = DeltaTable.open(self._path)
        rows = all_rows(self._opened, _SCHEMA)
        ranges: dict[TableId, list[FinishedRange]] = {}
        self.former = {}
        for row in rows.sort_by(_ORDER).to_pylist():  # row-wise: one per range of a million rows
            table = TableId(row["schema_name"], row["table_name"])
            of_epoch = ranges if (row["epoch"] or 0) == self._epoch else self.former
            of_epoch.setdefault(table, []).append(_finished(row))
        for table in sorted(self.former):
            _log.info("The interrupted snapshot of %s was of another server or history and is not continued.", table)
        return ranges

    def add(self, table: TableId, ranges: Iterable[FinishedRange]) -> None:
        """Record ranges whose files are complete."""
        self._append(
            [
                {
                    "schema_name": table.schema,
                    "table_name": table.table,
                    "recorded_at": datetime.now(UTC),
                    "epoch": self._epoch,
                    "token": finished.token,
                    "lsn": finished.lsn,
                    "since": finished.since,
                    "marks": finished.marks,
                    "first_block": finished.first_block,
                    "end_block": finished.end_block,
                    "files": json.dumps([_plain(file) for file in finished.files]),
                }
                for finished in ranges
            ]
        )

    def clear(self, tables: Collection[TableId]) -> None:
        """Remove the entries of these tables."""
        log = self._opened or DeltaTable.open(self._path)
        if log is None or not tables:
            return
        self._opened = log
        gone = {(table.schema, table.table) for table in tables}

        def attempt() -> None:
            files = log.files
            if files:
                rows = all_rows(log, _SCHEMA)
                names = zip(rows.column("schema_name").to_pylist(), rows.column("table_name").to_pylist(), strict=True)
                rest = rows.filter(pa.array([name not in gone for name in names], pa.bool_()))
                log.commit([log.write(rest)] if rest.num_rows else [], files)

        on_conflict(attempt, log)

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if rows:
            self._opened = log_table(self._opened, self._path, _SCHEMA, self._properties)
            append_rows(self._opened, rows, _SCHEMA)


def _finished(row: dict[str, Any]) -> FinishedRange:
    files = tuple(
        DataFile(
            entry["path"],
            entry["size"],
            entry["rows"],
            _bounds(entry["minimum"]),
            _bounds(entry["maximum"]),
            entry["nulls"],
        )
        for entry in json.loads(row["files"])
    )
    marks = row["token"], row["lsn"], row["since"], row["marks"], row["first_block"], row["end_block"]
    return FinishedRange(*marks, files)


def _plain(file: DataFile) -> dict[str, Any]:
    bounds = {
        name: {key: {"date": value.isoformat()} if isinstance(value, date) else value for key, value in limits.items()}
        for name, limits in (("minimum", file.minimum), ("maximum", file.maximum))
    }
    return {"path": file.path, "size": file.size, "rows": file.rows, "nulls": dict(file.nulls), **bounds}


def _bounds(plain: dict[str, Any]) -> dict[str, Any]:
    return {
        name: date.fromisoformat(value["date"]) if isinstance(value, dict) else value for name, value in plain.items()
    }

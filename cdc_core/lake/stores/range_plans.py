"""How large tables are divided into ranges of their keys: one plan for each table and key, kept until it is replaced.

A range is selected, retried and reported by its number, so the same number must mean the same keys in every process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.log_table import all_rows, log_table
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.schema import TableId

Bound = tuple[str | None, ...]
"""The values of a key's columns as PostgreSQL's texts; None for NULL."""

_SCHEMA = pa.schema(
    [
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("plan", pa.string()),
        ("oid", pa.int64()),
        ("key", pa.string()),
        ("bounds", pa.string()),
        ("rows", pa.int64()),
        ("planned_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class RangePlan:
    """The ranges of one table's ``key``: each ends at one of ``bounds``, inclusive, and the last has no end.

    ``oid`` is the table's, ``rows`` the server's estimate when it was planned (None: never analysed).
    """

    id: str
    table: TableId
    oid: int
    key: tuple[str, ...]
    bounds: tuple[Bound, ...]
    rows: int | None

    @property
    def count(self) -> int:
        """The number of ranges."""
        return len(self.bounds) + 1

    def range(self, number: int) -> tuple[Bound | None, Bound | None]:
        """Return the keys after which the range begins and at which it ends; None for the table's ends."""
        after = self.bounds[number - 2] if number > 1 else None
        return after, self.bounds[number - 1] if number < self.count else None


class RangePlans:
    """The stored plans. For one thread."""

    def __init__(self, path: str, properties: dict[str, str]) -> None:
        self._path = path
        self._properties = properties

    def read(self) -> dict[tuple[TableId, tuple[str, ...]], RangePlan]:
        """Return the plans by table and key. Raises LakeError."""
        return _plans(DeltaTable.open(self._path))

    def put(self, plan: RangePlan) -> None:
        """Store a plan instead of the one of its table and key. Raises TransientError after repeated conflicts."""
        log = log_table(None, self._path, _SCHEMA, self._properties)
        row = {
            "schema_name": plan.table.schema,
            "table_name": plan.table.table,
            "plan": plan.id,
            "oid": plan.oid,
            "key": json.dumps(plan.key),
            "bounds": json.dumps(plan.bounds),
            "rows": plan.rows,
            "planned_at": datetime.now(UTC),
        }
        made = log.write(pa.Table.from_pylist([row], schema=_SCHEMA))

        def attempt() -> list[DataFile]:
            # One file has one plan.
            before = [file for file in log.files if _of(log.read(file).to_pylist()[0]) == (plan.table, plan.key)]
            log.commit([made], before)
            return before

        log.discard(on_conflict(attempt, log))


def _plans(log: DeltaTable | None) -> dict[tuple[TableId, tuple[str, ...]], RangePlan]:
    rows = all_rows(log, _SCHEMA).to_pylist()  # row-wise: one a table
    return {_of(row): _plan(row) for row in rows}


def _of(row: dict[str, Any]) -> tuple[TableId, tuple[str, ...]]:
    return TableId(row["schema_name"], row["table_name"]), tuple(json.loads(row["key"]))


def _plan(row: dict[str, Any]) -> RangePlan:
    table, key = _of(row)
    bounds = tuple(tuple(bound) for bound in json.loads(row["bounds"]))
    return RangePlan(row["plan"], table, row["oid"], key, bounds, row["rows"])

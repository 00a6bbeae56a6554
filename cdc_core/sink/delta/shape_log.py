"""Which versions of its source each lake table has gone through, and whether it is paused or to be re-read.

A *shape* is a numbered version of a table that the lake stands at. It is written down here before the lake table's own
commit puts it in force, by a ``txn`` that carries the number (``positions.shape_app``): an entry without a commit is
never looked at. Change rows carry the number of the shape they were decoded under, so that they are read by it however
late they are merged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from cdc_core.schema.changes import Projected
from cdc_core.schema.table import Column, TableId, TableSchema, column_from_plain
from cdc_core.sink.delta.log_table import all_rows, append_rows, log_table
from cdc_core.sink.delta.table import DeltaTable

_SCHEMA = pa.schema(
    [
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("kind", pa.string()),
        ("shape", pa.int64()),
        ("lsn", pa.int64()),
        ("source", pa.string()),
        ("parent", pa.int64()),
        ("projection", pa.string()),
        ("reason", pa.string()),
        ("remedy", pa.string()),
        ("recorded_at", pa.timestamp("us", tz="UTC")),
    ]
)
_SHAPE, _PAUSED, _RESUMED, _REREAD = "shape", "paused", "resumed", "reread"


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape. ``projection`` makes the lake's rows under it from those of the shape ``parent``; None where there is
    no such way (a snapshot begins again). ``table`` holds the columns that the stream brings, with attnums and marks.

    The parent is not always the number before: what a run decided and did not come to is decided again by the next.
    """

    number: int
    table: TableSchema
    projection: tuple[Projected, ...] | None = None
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a table is not merged, what to do about it, and since when; ``lsn`` is where it stopped."""

    reason: str
    remedy: str
    lsn: int
    since: datetime


@dataclass(slots=True)
class History:
    """What the log holds of one table: its shapes by number, the pause in force, and why it is to be re-read.

    ``reread`` holds for a lake table at a shape up to the number beside it: re-reading it brings a later one.
    """

    shapes: dict[int, Shape]
    paused: Pause | None = None
    reread: tuple[int, str] | None = None


class ShapeLog:
    """The log of one connector. For one thread; small, a few rows a change of a table."""

    def __init__(self, path: str, properties: dict[str, str]) -> None:
        self._path = path
        self._properties = properties
        self._opened: DeltaTable | None = None

    def read(self) -> dict[TableId, History]:
        """Every table's history."""
        self._opened = DeltaTable.open(self._path)
        rows = all_rows(self._opened, _SCHEMA)
        found: dict[TableId, History] = {}
        # row-wise: one row a change of a table's description
        for row in rows.sort_by([("recorded_at", "ascending"), ("shape", "ascending")]).to_pylist():
            history = found.setdefault(TableId(row["schema_name"], row["table_name"]), History({}))
            if row["kind"] == _SHAPE:
                table = TableSchema.from_json(row["source"])
                history.shapes[row["shape"]] = Shape(row["shape"], table, _projection(row["projection"]), row["parent"])
            elif row["kind"] == _REREAD:
                history.reread = (row["shape"], row["reason"])
            elif row["kind"] == _PAUSED:
                history.paused = Pause(row["reason"], row["remedy"], row["lsn"], row["recorded_at"])
            else:
                history.paused = None
        return found

    def add_shapes(self, shapes: Sequence[tuple[TableId, Shape]], lsn: int) -> None:
        """Write shapes down before a lake commit puts them in force."""
        self._append(
            [
                self._row(
                    table,
                    _SHAPE,
                    lsn,
                    shape=shape.number,
                    source=_bare(shape.table).to_json(),
                    parent=shape.parent,
                    projection=None if shape.projection is None else _to_json(shape.projection),
                )
                for table, shape in shapes
            ]
        )

    def pause(self, table: TableId, reason: str, remedy: str, lsn: int) -> Pause:
        """Write down that a table stops at ``lsn``."""
        self._append([self._row(table, _PAUSED, lsn, reason=reason, remedy=remedy)])
        return Pause(reason, remedy, lsn, datetime.now(UTC))

    def resume(self, table: TableId, lsn: int) -> None:
        """Record that a table is resumed."""
        self._append([self._row(table, _RESUMED, lsn)])

    def want_reread(self, table: TableId, reason: str, shape: int, lsn: int) -> None:
        """Record that a table at a shape up to ``shape`` must be re-read, so that it is kept if this run ends."""
        self._append([self._row(table, _REREAD, lsn, shape=shape, reason=reason)])

    @staticmethod
    def _row(table: TableId, kind: str, lsn: int, **facts: object) -> dict[str, object]:
        named = {"schema_name": table.schema, "table_name": table.table, "kind": kind, "lsn": int(lsn)}
        return {**named, "recorded_at": datetime.now(UTC), **facts}

    def _append(self, rows: list[dict[str, object]]) -> None:
        if rows:
            self._opened = log_table(self._opened, self._path, _SCHEMA, self._properties)
            append_rows(self._opened, rows, _SCHEMA)


def _bare(table: TableSchema) -> TableSchema:
    """The table without the values that older rows take: a masked column's would be clear text."""
    return replace(table, columns=tuple(replace(column, missing=None) for column in table.columns))


def _to_json(projection: Sequence[Projected]) -> str:
    return json.dumps([asdict(each) for each in projection])


def _projection(text: str | None) -> tuple[Projected, ...] | None:
    if text is None:
        return None
    return tuple(
        Projected(each["name"], each["source"], each["fill"], _column(each["column"])) for each in json.loads(text)
    )


def _column(raw: dict[str, object] | None) -> Column | None:
    return None if raw is None else column_from_plain(raw)

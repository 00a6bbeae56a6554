"""Compares lake tables with their source, row by row, without code of the pipeline.

The source is read with plain SQL, the lake with delta-rs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from cdc_core.postgres import Connection, PostgresOptions, connect
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table's result. ``missing`` rows are only in the source, ``extra`` ones only in the lake.

    ``absent`` are the columns of the source that the lake table does not have, as before an ALTER TABLE has reached it;
    the rows are then compared by the columns of both.
    """

    table: TableId
    source_rows: int
    lake_rows: int
    missing: int
    extra: int
    absent: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether both sides have exactly the same columns of the source, and the same rows."""
        return self.missing == 0 and self.extra == 0 and not self.absent


@dataclass(frozen=True, slots=True)
class LakeState:
    """State of a lake table. ``age_seconds`` is the time since its newest row was committed in the source.

    It is None if no change was streamed yet.
    """

    rows: int
    age_seconds: float | None


def count_source(options: PostgresOptions, tables: Sequence[TableId]) -> dict[TableId, int]:
    """Return the current number of rows of each table, all in one snapshot."""
    with connect(options) as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read read only")
        return {t: int(connection.execute(_select("count(*)", t)).fetchall()[0][0]) for t in tables}


def lake_state(path: Path) -> LakeState | None:
    """Return a lake table's state, None if there is no table yet."""
    table = _lake_table(path)
    if table is None:
        return None
    found = _query(table, 'select count(*) as n, max("__commit_ts") as at from lake')
    newest = found.column("at")[0].as_py()
    age = None if newest is None else (datetime.now(UTC) - newest).total_seconds()
    return LakeState(int(found.column("n")[0].as_py()), age)


def compare(options: PostgresOptions, tables: Mapping[TableId, Path]) -> list[Comparison]:
    """Compare every row of each table with the lake table at its path, one table after the other, not in one snapshot.

    Text is compared as text, numbers as numbers, timestamps as timestamps.
    """
    with connect(options) as connection:
        return [_compared(connection, table, path) for table, path in tables.items()]


def _compared(connection: Connection, table: TableId, path: Path) -> Comparison:
    described = connection.execute(
        "select attname, format_type(atttypid, atttypmod) from pg_attribute"
        " where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum",
        [table.quoted],
    ).fetchall()
    lake_table = _lake_table(path)
    held_names = None if lake_table is None else {field.name for field in lake_table.schema().fields}
    absent = tuple(name for name, _ in described if held_names is not None and name not in held_names)
    described = [column for column in described if column[0] not in absent]
    select = ", ".join(_source_expression(name, kind) for name, kind in described)
    source = Counter(tuple(map(_plain, row)) for row in connection.execute(_select(select, table)))
    lake: Counter[tuple[Any, ...]] = Counter()
    if lake_table is not None:
        names = ", ".join(f'"{name}"' for name in ["__rescued", *(name for name, _ in described)])
        lake_rows = _query(lake_table, f"select {names} from lake")
        rescued, *columns = [column.to_pylist() for column in lake_rows.columns]
        kinds: dict[str, str] = dict(described)
        values = zip(*columns, strict=True) if columns else [()] * len(rescued)
        rows = zip(rescued, values, strict=True)
        lake = Counter(tuple(map(_plain, _whole(row, texts, kinds))) for texts, row in rows)
    missing, extra = source - lake, lake - source
    return Comparison(table, source.total(), lake.total(), missing.total(), extra.total(), absent)


def _select(what: str, table: TableId) -> bytes:
    return f"select {what} from {table.quoted}".encode()


def _source_expression(name: str, kind: str) -> str:
    # Values stored in the lake as PostgreSQL's text are selected as text; the others as the driver reads them.
    if kind == "real":
        return f'"{name}"::float8'  # the exact value of its 32 bits, not their shortest decimal
    as_text = ("json", "uuid", "time without", "time(", "shop.", "interval")
    return f'"{name}"::text' if kind.startswith(as_text) else f'"{name}"'


def _whole(row: tuple[Any, ...], texts: Any, kinds: dict[str, str]) -> tuple[Any, ...]:
    """Return the row with the values that its columns' types cannot represent, which the lake stores as text."""
    if not texts:
        return row
    kept = dict(texts)
    return tuple(
        value if name not in kept else Decimal(kept[name]) if kind == "numeric" else kept[name]
        for value, (name, kind) in zip(row, kinds.items(), strict=True)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, float) and math.isnan(value):
        return "NaN"  # equal to itself here, as in PostgreSQL
    return bytes(value) if isinstance(value, memoryview) else value


def _lake_table(path: Path) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(str(path))
    except TableNotFoundError:
        return None


def _query(table: Any, sql: str) -> Any:
    import pyarrow as pa
    from deltalake import QueryBuilder

    return pa.table(QueryBuilder().register("lake", table).execute(sql))

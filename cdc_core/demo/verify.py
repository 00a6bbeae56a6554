"""Compares lake tables with their source, row by row, with nothing of wal2lake's own in between.

The source is read with plain SQL, the lake with delta-rs: two readers that share no code with the pipeline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from cdc_core.postgres.connect import connect
from cdc_core.postgres.options import PostgresOptions
from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table's verdict. ``missing`` rows stand only in the source, ``extra`` ones only in the lake."""

    table: TableId
    source_rows: int
    lake_rows: int
    missing: int
    extra: int

    @property
    def is_equal(self) -> bool:
        """Whether both sides hold exactly the same rows."""
        return self.missing == 0 and self.extra == 0


@dataclass(frozen=True, slots=True)
class LakeState:
    """A lake table at one look. ``age_seconds`` is how long ago its newest row was committed at the source.

    It is None while no change came through the stream.
    """

    rows: int
    age_seconds: float | None


def count_source(options: PostgresOptions, tables: Sequence[TableId]) -> dict[TableId, int]:
    """Rows of each table now, all in one snapshot."""
    with connect(options) as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read read only")
        return {t: int(connection.execute(_select("count(*)", t)).fetchall()[0][0]) for t in tables}


def lake_state(path: Path) -> LakeState | None:
    """What a lake table shows now, None where there is no table yet."""
    table = _lake_table(path)
    if table is None:
        return None
    found = _query(table, 'select count(*) as n, max("__commit_ts") as at from lake')
    newest = found.column("at")[0].as_py()
    age = None if newest is None else (datetime.now(UTC) - newest).total_seconds()
    return LakeState(int(found.column("n")[0].as_py()), age)


def compare(options: PostgresOptions, table: TableId, path: Path) -> Comparison:
    """Compare every row. Text is compared as text, numbers as numbers, instants as instants."""
    with connect(options) as connection:
        described = connection.execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute"
            " where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum",
            [f'"{table.schema}"."{table.table}"'],
        ).fetchall()
        select = ", ".join(_source_expression(name, kind) for name, kind in described)
        source = Counter(tuple(map(_plain, row)) for row in connection.execute(_select(select, table)))
    lake: Counter[tuple[Any, ...]] = Counter()
    found = _lake_table(path)
    if found is not None:
        names = ", ".join(f'"{name}"' for name, _ in described)
        held = _query(found, f'select "__rescued", {names} from lake')
        rescued, *columns = [column.to_pylist() for column in held.columns]
        kinds: dict[str, str] = dict(described)
        rows = zip(rescued, zip(*columns, strict=True), strict=True)
        lake = Counter(tuple(map(_plain, _whole(row, texts, kinds))) for texts, row in rows)
    missing, extra = source - lake, lake - source
    return Comparison(table, source.total(), lake.total(), missing.total(), extra.total())


def _select(what: str, table: TableId) -> bytes:
    return f'select {what} from "{table.schema}"."{table.table}"'.encode()


def _source_expression(name: str, kind: str) -> str:
    # What the lake keeps as PostgreSQL's own text is asked for as text; the rest comes as the driver reads it.
    if kind == "real":
        return f'"{name}"::float8'  # the exact value of its 32 bits, not their shortest decimal
    as_text = ("json", "uuid", "time without", "time(", "shop.", "interval")
    return f'"{name}"::text' if kind.startswith(as_text) else f'"{name}"'


def _whole(row: tuple[Any, ...], texts: Any, kinds: dict[str, str]) -> tuple[Any, ...]:
    """The row with the values that its columns' types could not hold, which the lake keeps as text."""
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
        return "NaN"  # which equals itself here, as it does in PostgreSQL
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

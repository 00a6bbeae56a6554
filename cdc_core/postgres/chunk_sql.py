"""The statements of incremental snapshots: a table's largest key, and the rows between two keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that chunks are cut by. NULL, where it may be, sorts behind every value."""

    name: str
    optional: bool = False


def largest_key_sql(table: TableId, key: Sequence[KeyColumn], condition: str = "", *, only: bool = False) -> str:
    """The query for the key of the last row by key: one row, or none for a table without rows. ``only`` leaves out
    the rows of tables that inherit from it.
    """
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in key)
    order = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(column.name)) for column in key)
    return _statement(names, table, [_given(condition)], order, 1, only)


def chunk_sql(
    table: TableId,
    columns: Sequence[str],
    key: Sequence[KeyColumn],
    size: int,
    *,
    after: Sequence[str | None] | None,
    upto: Sequence[str | None],
    condition: str = "",
    only: bool = False,
    bounded: bool = False,
) -> str:
    """The query for the next ``size`` rows by key: behind ``after`` (None: from the first on), at most ``upto``.

    Keys are PostgreSQL's texts of their columns' values, None for NULL. The first chunk has no upper end, as Debezium's
    has none, unless ``bounded``. ``only`` leaves out the rows of tables that inherit from it.
    """
    names = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    order = sql.SQL(", ").join(sql.Identifier(column.name) for column in key)
    conditions = [_given(condition)]
    if after is not None:
        conditions = [_behind(key, after), _at_most(key, upto), *conditions]
    elif bounded:
        conditions = [_at_most(key, upto), *conditions]
    return _statement(names, table, conditions, order, size, only)


def keys_sql(
    table: TableId,
    columns: Sequence[str],
    key: Sequence[str],
    keys: Sequence[Sequence[str | None]],
    *,
    condition: str = "",
    only: bool = False,
) -> str:
    """The query for the rows of certain keys, at least one. Keys are PostgreSQL's texts, none of them NULL."""
    names = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    left = sql.SQL(", ").join(sql.Identifier(name) for name in key)
    values = sql.SQL(", ").join(
        sql.SQL("({})").format(sql.SQL(", ").join(sql.Literal(value) for value in one)) for one in keys
    )
    wanted = sql.SQL("({}) IN ({})").format(left, values)
    kept = [each for each in (wanted, _given(condition)) if each is not None]
    return (
        sql.SQL("SELECT {} FROM {}{} WHERE {}")
        .format(names, _only(only), sql.Identifier(*table), sql.SQL(" AND ").join(kept))
        .as_string()
    )


def _statement(
    names: sql.Composable,
    table: TableId,
    conditions: Sequence[sql.Composable | None],
    order: sql.Composable,
    rows: int,
    only: bool,
) -> str:
    kept = [condition for condition in conditions if condition is not None]
    where = sql.SQL(" WHERE ") + sql.SQL(" AND ").join(kept) if kept else sql.SQL("")
    return (
        sql.SQL("SELECT {} FROM {}{}{} ORDER BY {} LIMIT {}")
        .format(names, _only(only), sql.Identifier(*table), where, order, sql.Literal(rows))
        .as_string()
    )


def _only(only: bool) -> sql.Composable:
    return sql.SQL("ONLY " if only else "")


def _given(condition: str) -> sql.Composable | None:
    # The user's own SQL, as the signal gives it.
    return sql.Composed([sql.SQL("("), _Text(condition), sql.SQL(")")]) if condition.strip() else None


class _Text(sql.Composable):
    """Text as it is: sql.SQL takes only constants and would read braces in it as places."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def as_bytes(self, context: object = None) -> bytes:
        return str(self._obj).encode()


def _behind(key: Sequence[KeyColumn], values: Sequence[str | None]) -> sql.Composable:
    if any(column.optional for column in key):
        return _greater(key, values)
    return _compared(key, values, ">")


def _at_most(key: Sequence[KeyColumn], values: Sequence[str | None]) -> sql.Composable:
    if any(column.optional for column in key):
        return sql.SQL("NOT {}").format(_greater(key, values))
    return _compared(key, values, "<=")


def _compared(key: Sequence[KeyColumn], values: Sequence[str | None], operator: str) -> sql.Composable:
    # A text literal takes the type of the column that it is compared with.
    left = sql.SQL(", ").join(sql.Identifier(column.name) for column in key)
    right = sql.SQL(", ").join(sql.Literal(value) for value in values)
    one, many = sql.SQL("{} {} {}"), sql.SQL("ROW({}) {} ROW({})")
    return (one if len(key) == 1 else many).format(left, _Text(operator), right)


def _greater(key: Sequence[KeyColumn], values: Sequence[str | None]) -> sql.Composable:
    """Whether a row's key sorts behind the values, NULL sorting last in each column. Never NULL itself."""
    name, value, rest = sql.Identifier(key[0].name), values[0], key[1:]
    if value is None:
        # Nothing sorts behind NULL but what has it too and differs further on.
        if not rest:
            return sql.SQL("FALSE")
        return sql.SQL("({} IS NULL AND {})").format(name, _greater(rest, values[1:]))
    behind = sql.SQL("{0} > {1} OR {0} IS NULL").format(name, sql.Literal(value))
    if not rest:
        return sql.SQL("({})").format(behind)
    return sql.SQL("({} OR ({} = {} AND {}))").format(behind, name, sql.Literal(value), _greater(rest, values[1:]))

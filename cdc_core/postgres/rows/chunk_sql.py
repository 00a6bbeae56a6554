"""The statements of incremental snapshots: a table's largest key, the ends of ranges, and the rows between two keys.

Operators of other schemas than the catalogue's are named with them. Without its schema in search_path, a key of type
citext would be compared as text in silence, while ORDER BY sorts it as citext.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from cdc_core.postgres.rows.copy_out import select_from
from cdc_core.schema import TableId

_CATALOGUE = "pg_catalog"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key. NULL, if allowed, sorts after every value. ``operators``: the schema of its operators."""

    name: str
    optional: bool = False
    operators: str = _CATALOGUE

    def compared(self, operator: str, value: str | None) -> sql.Composable:
        """Return the comparison with a text, which gets the type of the column."""
        return sql.SQL("{} {} {}").format(sql.Identifier(self.name), _operator(operator, self), sql.Literal(value))


def largest_key_sql(table: TableId, key: Sequence[KeyColumn], condition: str = "", *, only: bool = False) -> str:
    """Return the query for the key of the last row by key: one row, or none for a table without rows.

    ``only`` excludes the rows of tables that inherit from it.
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
    with_ties: bool = False,
) -> str:
    """Return the query for the next ``size`` rows by key: after ``after`` (None: from the first on), at most ``upto``.

    Keys are PostgreSQL's texts of their columns' values, None for NULL. As in Debezium, the first chunk has no upper
    bound, unless ``bounded``. ``only`` excludes the rows of tables that inherit from it. ``with_ties`` adds all rows
    whose key is equal to the last one's (since PostgreSQL 13): the next chunk begins behind them.
    """
    names = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    order = sql.SQL(", ").join(sql.Identifier(column.name) for column in key)
    conditions = [_given(condition)]
    if after is not None:
        conditions = [_behind(key, after), _at_most(key, upto), *conditions]
    elif bounded:
        conditions = [_at_most(key, upto), *conditions]
    return _statement(names, table, conditions, order, size, only, with_ties=with_ties)


def own_chunk_sql(
    statement: str,
    columns: Sequence[str],
    key: Sequence[KeyColumn],
    after: Sequence[str | None] | None,
    upto: Sequence[str | None],
    condition: str = "",
) -> str:
    """Return the query for the rows of a user's own SELECT after a key (None: from the first on), at most ``upto``.

    All of them, in any order: with a limit, a statement that sorts its rows otherwise would be sorted for each chunk.
    """
    behind = None if after is None else _behind(key, after)
    kept = [part for part in (behind, _at_most(key, upto), _given(condition)) if part is not None]
    return f"{select_from(statement, columns)} WHERE {sql.SQL(' AND ').join(kept).as_string()}"


def bounds_sql(table: TableId, key: Sequence[KeyColumn], ranges: int, percent: float, *, only: bool = False) -> str:
    """Return the query for the ends of all of ``ranges`` ranges of the key but the last, in order.

    They are those of a sample of ``percent`` of the table's pages, so the ranges have about equally many rows.
    """
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in key)
    order = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(column.name)) for column in key)
    part = sql.Identifier("wal2lake range")
    sample = _Text("" if percent >= 100 else f" TABLESAMPLE SYSTEM ({percent:.6f})")
    inner = sql.SQL("SELECT {}, ntile({}) OVER (ORDER BY {}) AS {} FROM {}{}{}").format(
        names, sql.Literal(ranges), names, part, _only(only), sql.Identifier(*table), sample
    )
    return (
        sql.SQL("SELECT DISTINCT ON ({}) {} FROM ({}) AS sample WHERE {} < {} ORDER BY {}, {}")
        .format(part, names, inner, part, sql.Literal(ranges), part, order)
        .as_string()
    )


def keys_sql(
    table: TableId,
    columns: Sequence[str],
    key: Sequence[KeyColumn],
    keys: Sequence[Sequence[str | None]],
    *,
    condition: str = "",
    only: bool = False,
) -> str:
    """Return the query for the rows of at least one given key. Keys are PostgreSQL's texts, none of them NULL."""
    names = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    kept = [part for part in (_among(key, keys), _given(condition)) if part is not None]
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
    *,
    with_ties: bool = False,
) -> str:
    kept = [condition for condition in conditions if condition is not None]
    limit = sql.SQL("FETCH FIRST {} ROWS WITH TIES" if with_ties else "LIMIT {}").format(sql.Literal(rows))
    where = sql.SQL(" WHERE ") + sql.SQL(" AND ").join(kept) if kept else sql.SQL("")
    return (
        sql.SQL("SELECT {} FROM {}{}{} ORDER BY {} {}")
        .format(names, _only(only), sql.Identifier(*table), where, order, limit)
        .as_string()
    )


def _only(only: bool) -> sql.Composable:
    return sql.SQL("ONLY " if only else "")


def _given(condition: str) -> sql.Composable | None:
    # The user's own SQL, from the signal.
    return sql.Composed([sql.SQL("("), _Text(condition), sql.SQL(")")]) if condition.strip() else None


class _Text(sql.Composable):
    """Text without interpretation: sql.SQL accepts only constants and would treat braces in it as placeholders."""

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


def _among(key: Sequence[KeyColumn], keys: Sequence[Sequence[str | None]]) -> sql.Composable:
    if any(column.operators != _CATALOGUE for column in key):
        rows = [sql.SQL(" AND ").join(map(KeyColumn.compared, key, ["="] * len(key), values)) for values in keys]
        return sql.SQL("({})").format(sql.SQL(" OR ").join(rows))
    left = sql.SQL(", ").join(sql.Identifier(column.name) for column in key)
    rows = [sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, values))) for values in keys]
    return sql.SQL("({}) IN ({})").format(left, sql.SQL(", ").join(rows))


def _operator(operator: str, column: KeyColumn) -> sql.Composable:
    if column.operators == _CATALOGUE:
        return _Text(operator)
    return sql.SQL("OPERATOR({}.{})").format(sql.Identifier(column.operators), _Text(operator))


def _compared(key: Sequence[KeyColumn], values: Sequence[str | None], operator: str) -> sql.Composable:
    """Compare row by row. ``operator`` is > or <=."""
    if len(key) == 1:
        return key[0].compared(operator, values[0])
    if len({column.operators for column in key}) > 1:
        # One operator for rows has one schema. The first condition is for an index, the second decides.
        first = key[0].compared(operator[0] + "=", values[0])
        return sql.SQL("{} AND {}").format(
            first, sql.SQL("{}{}").format(sql.SQL("NOT " if operator == "<=" else ""), _greater(key, values))
        )
    left = sql.SQL(", ").join(sql.Identifier(column.name) for column in key)
    right = sql.SQL(", ").join(map(sql.Literal, values))
    return sql.SQL("ROW({}) {} ROW({})").format(left, _operator(operator, key[0]), right)


def _greater(key: Sequence[KeyColumn], values: Sequence[str | None]) -> sql.Composable:
    """Whether a row's key sorts after the values, with NULL last in each column. Never NULL itself."""
    column, value, rest = key[0], values[0], key[1:]
    name = sql.Identifier(column.name)
    if value is None:
        # Only rows that also have NULL here can sort after NULL, by their further columns.
        if not rest:
            return sql.SQL("FALSE")
        return sql.SQL("({} IS NULL AND {})").format(name, _greater(rest, values[1:]))
    behind = column.compared(">", value)
    if column.optional:
        behind = sql.SQL("{} OR {} IS NULL").format(behind, name)
    if not rest:
        return sql.SQL("({})").format(behind)
    return sql.SQL("({} OR ({} AND {}))").format(behind, column.compared("=", value), _greater(rest, values[1:]))

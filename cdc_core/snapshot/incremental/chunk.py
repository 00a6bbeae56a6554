"""One table's chunks: by which columns it is divided, and the statements that read it in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cdc_core.decode import RawColumns, decode_copy
from cdc_core.postgres import KeyColumn, bounds_sql, chunk_sql, keys_sql, largest_key_sql, own_chunk_sql
from cdc_core.schema import Key, TableSchema


@dataclass(frozen=True, slots=True)
class ChunkQuery:
    """Reads the columns ``names`` of a table in the order of ``key``, which they include, ``size`` rows at a time.

    ``condition``: which rows, empty for all. ``only``: without the rows of tables that inherit from it. ``bounded``:
    every chunk has an upper bound, not only one that follows another. ``statement``: the user's own SELECT, of which
    chunks have the rows, empty for the table's. What divides the table into ranges and chunks are its own keys.
    """

    table: TableSchema
    names: tuple[str, ...]
    key: tuple[KeyColumn, ...]
    size: int
    condition: str = ""
    only: bool = False
    bounded: bool = False
    statement: str = ""

    @property
    def is_users(self) -> bool:
        """Whether the statements have SQL of the user's: a condition, or a SELECT."""
        return bool(self.condition or self.statement)

    @property
    def keys(self) -> ChunkQuery:
        """The table's keys, independent of the columns that are read."""
        return replace(self, names=self.key_names, condition="", statement="")

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key's columns."""
        return tuple(column.name for column in self.key)

    def largest(self) -> str:
        """Return the statement for the largest key of the rows; of the table's, if the user's statement is read."""
        condition = "" if self.statement else self.condition
        return largest_key_sql(self.table.id, self.key, condition, only=self.only)

    def largest_key(self, lines: bytes) -> Key | None:
        """Return the key that ``largest`` read as lines of COPY text; None without rows."""
        return _last_row(decode_copy(lines, self.key_names, str(self.table.id))) if lines else None

    def bounds(self, ranges: int, percent: float) -> str:
        """Return the statement for the ends of ranges of the key, from a sample of the table's pages."""
        return bounds_sql(self.table.id, self.key, ranges, percent, only=self.only)

    def bounds_of(self, lines: bytes) -> list[Key]:
        """Return the keys that ``bounds`` read as lines of COPY text, each once."""
        if not lines:
            return []
        texts = [text.to_pylist() for text in decode_copy(lines, self.key_names, str(self.table.id)).text]
        return list(dict.fromkeys(zip(*texts, strict=True)))  # row-wise: one a range

    @property
    def divides_rows(self) -> bool:
        """Whether no two rows of the table have the same key: a chunk may then end behind any row."""
        return divides_rows(self.table, self.key_names)

    def chunk(self, after: Key | None, upto: Key, size: int = 0) -> str:
        """Return the statement for the rows after a key (None: from the first), at most up to another.

        They are ``size`` at most (0: the query's), or all between the keys if the user's statement is read.
        """
        if self.statement:
            return own_chunk_sql(self.statement, self.names, self.key, after, upto, self.condition)
        return chunk_sql(
            self.table.id,
            self.names,
            self.key,
            size or self.size,
            after=after,
            upto=upto,
            condition=self.condition,
            only=self.only,
            bounded=self.bounded,
            with_ties=not self.divides_rows,
        )

    def of_keys(self, keys: Sequence[Key]) -> str:
        """Return the statement for the rows with these values of the row's key."""
        return keys_sql(
            self.table.id, self.names, key_columns(self.table), keys, condition=self.condition, only=self.only
        )

    def decoded(self, lines: bytes) -> RawColumns:
        """Decode rows read as lines of COPY text."""
        return decode_copy(lines, self.names, str(self.table.id))

    def last_key(self, lines: bytes) -> Key:
        """Return the key of the last row (at least one) read as lines of COPY text."""
        last = lines[lines.rfind(b"\n", 0, len(lines) - 1) + 1 :]
        return _last_row(columns_of(self.decoded(last), self.key_names))


def key_columns(table: TableSchema) -> tuple[KeyColumn, ...]:
    """Return the columns by which changes identify rows, none of them NULL, as parts of conditions."""
    return tuple(KeyColumn(name, operators=table.column(name).type.operators) for name in table.row_key)


def columns_of(rows: RawColumns, names: Sequence[str]) -> RawColumns:
    """Return the columns with these names, in their order."""
    position = {name: index for index, name in enumerate(rows.names)}
    at = [position[name] for name in names]
    return RawColumns(tuple(names), tuple(rows.text[i] for i in at), tuple(rows.unchanged[i] for i in at), len(rows))


def divides_rows(table: TableSchema, names: Sequence[str]) -> bool:
    """Whether no two rows of the table have equal values of the columns."""
    return any(set(key) <= set(names) for key in unique_keys(table))


def unique_keys(table: TableSchema) -> Iterator[tuple[str, ...]]:
    """Yield the table's keys without NULLs, of which all columns are streamed."""
    not_null = {column.name for column in table.columns if not column.optional}
    for key in (table.primary_key, table.unique_key, table.row_key):
        if key and not_null.issuperset(key):
            yield key


def _last_row(rows: RawColumns) -> Key:
    return tuple(text[len(rows) - 1].as_py() for text in rows.text)

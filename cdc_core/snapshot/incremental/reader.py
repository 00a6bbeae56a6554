"""Reads the next chunk of a table: its current columns and key, and the rows after the last key."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cdc_core.arrays import Ints
from cdc_core.errors import TransientError
from cdc_core.postgres import ChunkConnection, KeyColumn
from cdc_core.schema import Key, KeyRule, TableSchema
from cdc_core.selection import SelectionOptions, key_columns, plan_columns
from cdc_core.snapshot.incremental.chunk import ChunkQuery, divides_rows, unique_keys
from cdc_core.snapshot.incremental.progress import Collection, Progress
from cdc_core.snapshot.incremental.window import ChunkWindow
from cdc_core.visibility import Visibility

_PAUSE_SECONDS = 0.02
# Attempts to read a chunk whose snapshot does not show all streamed transactions yet.
_TRIES = 250


@dataclass(frozen=True, slots=True)
class ChunkReader:
    """``size`` is incremental.snapshot.chunk.size, ``rules`` are those of message.key.columns."""

    connection: ChunkConnection
    selection: SelectionOptions
    rules: tuple[KeyRule, ...]
    size: int

    def key_of(self, table: TableSchema, collection: Collection) -> tuple[KeyColumn, ...]:
        """Return the columns by which the table is divided, empty if it has no key.

        The surrogate key, else the event's key. If these do not identify rows and the table has a key that does, that
        key is appended. Otherwise chunks do not divide rows with equal keys (``divides_rows``).
        """
        own = next(iter(unique_keys(table)), ())
        if collection.surrogate_key:
            names: tuple[str, ...] = (collection.surrogate_key,)
        else:
            names = key_columns(table, self.rules) or own
        if own and not divides_rows(table, names):
            names = (*names, *(name for name in own if name not in names))
        known = {column.name: column for column in table.columns}
        if any(name not in known for name in names):
            return ()
        return tuple(KeyColumn(name, known[name].optional, known[name].type.operators) for name in names)

    def largest_key(self, table: TableSchema, collection: Collection) -> Key | None:
        """Return the largest key of the rows to be read, None without rows. Raises as ChunkConnection does."""
        key = self.key_of(table, collection)
        query = ChunkQuery(table, (), key, self.size, collection.condition)
        return query.largest_key(self.connection.read(query.largest(), is_users=query.is_users).rows[0])

    def read(
        self,
        table: TableSchema,
        collection: Collection,
        progress: Progress,
        hidden: Callable[[Visibility], Ints],
    ) -> ChunkWindow:
        """Read the next chunk; without rows at the table's end.

        ``hidden`` returns the transactions already streamed that a snapshot does not show: a server makes a commit
        visible to readers shortly after its WAL is written. In this case the chunk is read again. Raises SourceError,
        or TransientError if the same call may succeed later.
        """
        assert progress.maximum_key is not None
        key = self.key_of(table, collection)
        at_key = tuple(column.name for column in key)
        # Changes identify rows by the columns of the old tuple, which may differ from the key of chunks.
        matched = table.row_key or at_key
        names = [plan.name for plan in plan_columns(table, self.selection, snapshot=True) if plan.included]
        names += [name for name in dict.fromkeys((*at_key, *matched)) if name not in names]
        query = ChunkQuery(table, tuple(names), key, self.size, collection.condition)
        select = query.chunk(progress.last_key, progress.maximum_key)
        lines, visible = self._read(select, hidden, is_users=query.is_users)
        last = query.last_key(lines) if lines else None
        return ChunkWindow(str(uuid.uuid4()), table, matched, query.decoded(lines), visible, last)

    def _read(self, select: str, hidden: Callable[[Visibility], Ints], *, is_users: bool) -> tuple[bytes, Visibility]:
        for _ in range(_TRIES):
            answer = self.connection.read(select, is_users=is_users)
            visible = answer.visibility
            if not len(hidden(visible)):
                return answer.rows[0], visible
            time.sleep(_PAUSE_SECONDS)
        raise TransientError(
            f"A streamed transaction has not become visible to readers within {_TRIES * _PAUSE_SECONDS:g} s.",
            "Check what delays commits, for example a synchronous standby; the chunk is re-read automatically.",
        )


class Streamed:
    """Recently streamed transactions, kept as long as a snapshot may not show them."""

    def __init__(self, most: int = 200_000) -> None:
        self._xids = np.zeros(0, dtype=np.int64)
        self._most = most

    def add(self, xids: Ints) -> None:
        """Add committed transactions, by their 32-bit ids."""
        if len(xids):
            self._xids = np.concatenate([self._xids, xids])[-self._most :]

    def hidden(self, visible: Visibility) -> Ints:
        """Return those that a snapshot does not show. Transactions older than its xmin are removed."""
        self._xids = self._xids[~visible.shows_for_good(self._xids)]
        return self._xids[~visible.shows(self._xids)]

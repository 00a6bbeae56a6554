"""Progress of a connector's incremental snapshots: stored with each position of the stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cdc_core.schema import Key, TableId


@dataclass(frozen=True, slots=True)
class Collection:
    """A table to be read. ``condition`` is SQL, empty for all rows; ``surrogate_key`` a column to divide it by."""

    table: TableId
    condition: str = ""
    surrogate_key: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """``queue``: tables to be read in chunks, the current one first.

    ``last_key``: the key of its last row that is in the stream, ``maximum_key`` its largest key when it was started;
    None before. ``key`` names these keys' columns.
    ``paused``: no chunk is read. ``blocking``: tables to be read while streaming is paused.
    """

    queue: tuple[Collection, ...] = ()
    last_key: Key | None = None
    maximum_key: Key | None = None
    key: tuple[str, ...] = ()
    paused: bool = False
    blocking: tuple[Collection, ...] = ()

    @property
    def current(self) -> Collection | None:
        """The table that is being read."""
        return self.queue[0] if self.queue else None

    def with_tables(self, collections: tuple[Collection, ...]) -> Progress:
        """Add tables to the queue, except those that are in it already."""
        waiting = self.queue if self.maximum_key is None else self.queue[1:]
        return replace(
            self, queue=(*self.queue, *(collection for collection in collections if collection not in waiting))
        )

    def without(self, is_stopped: Callable[[TableId], bool]) -> Progress:
        """Remove tables from the queue."""
        queue = tuple(collection for collection in self.queue if not is_stopped(collection.table))
        if queue[:1] == self.queue[:1]:
            return replace(self, queue=queue)
        return replace(self, queue=queue).restarted()

    def begun(self, key: tuple[str, ...], maximum_key: Key) -> Progress:
        """Set the current table's key columns and largest key."""
        return replace(self, key=key, maximum_key=maximum_key)

    def restarted(self) -> Progress:
        """Read the current table again from its first row."""
        return replace(self, last_key=None, maximum_key=None, key=())

    def behind(self, last_key: Key) -> Progress:
        """Set the last key after a chunk was inserted into the stream."""
        return replace(self, last_key=last_key)

    def next_table(self) -> Progress:
        """Remove the current table after its end."""
        return replace(self, queue=self.queue[1:]).restarted()

    def postponed(self) -> Progress:
        """Read the other tables of the queue before the current one, which is then read from its first row."""
        return replace(self, queue=(*self.queue[1:], *self.queue[:1])).restarted() if len(self.queue) > 1 else self

    def pausing(self, paused: bool) -> Progress:
        """Pause or resume the reading of chunks."""
        return replace(self, paused=paused)

    def with_blocking(self, collections: tuple[Collection, ...]) -> Progress:
        """Add tables to be read while streaming is paused."""
        return replace(
            self,
            blocking=(*self.blocking, *(collection for collection in collections if collection not in self.blocking)),
        )

    def without_blocking(self) -> Progress:
        """Remove the tables of blocking snapshots after they were read."""
        return replace(self, blocking=())

    def to_json(self) -> str:
        """Return a text that ``from_json`` converts to an equal value; empty if nothing is in progress."""
        if self == Progress():
            return ""
        raw = {
            "queue": [[*collection.table, collection.condition, collection.surrogate_key] for collection in self.queue],
            "last_key": self.last_key,
            "maximum_key": self.maximum_key,
            "key": self.key,
            "paused": self.paused,
            "blocking": [
                [*collection.table, collection.condition, collection.surrogate_key] for collection in self.blocking
            ],
        }
        return json.dumps(raw, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """The inverse of ``to_json``. Raises ValueError for another text."""
        if not text:
            return cls()
        try:
            raw = json.loads(text)
            return cls(
                _collections(raw["queue"]),
                _key(raw["last_key"]),
                _key(raw["maximum_key"]),
                tuple(raw["key"]),
                bool(raw["paused"]),
                _collections(raw["blocking"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError("not the progress of incremental snapshots") from error


def _collections(raw: list[list[str]]) -> tuple[Collection, ...]:
    return tuple(Collection(TableId(schema, table), condition, key) for schema, table, condition, key in raw)


def _key(raw: Any) -> Key | None:
    return None if raw is None else tuple(raw)

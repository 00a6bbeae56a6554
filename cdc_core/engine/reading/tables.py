"""Registry of captured tables: one current version each, a new version for each change in the source."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from cdc_core.postgres import ResolvedRelation
from cdc_core.schema import Relation, TableId, TableSchema


class TableCatalog(Protocol):
    """The part of the catalogue that the registry uses (``cdc_core.postgres.catalog.tables.Catalog``)."""

    def resolve_relation(self, relation: Relation, xid: int) -> ResolvedRelation:
        """Return the announced table, completed from the current catalogue, and the table as it is in the catalogue.

        The catalogue shows what the transaction ``xid`` (32 bits, 0 for none) has altered.
        """


@dataclass(frozen=True, slots=True)
class SeenName:
    """A name under which changes of the table ``oid`` were sent; ``is_captured``: they are stored under that name."""

    oid: int
    name: TableId
    is_captured: bool


class TableRegistry:
    """Current versions by table. Written by the reader's sorter thread, read by the engine; locked."""

    def __init__(
        self, catalog: TableCatalog, includes: Callable[[TableId], bool], tables: Iterable[TableSchema]
    ) -> None:
        self._catalog = catalog
        self._includes = includes
        self._lock = threading.Lock()
        self._current: dict[TableId, TableSchema] = {}
        self._resolved: dict[tuple[TableId, int], TableSchema | None] = {}
        self._attnums: dict[TableId, dict[str, int]] = {}
        self._names: dict[SeenName, None] = {}
        for table in tables:
            self._enter(table, attnums(table))

    def describe(self, relation: Relation, xid: int) -> TableSchema | None:
        """Return the version in force from this Relation message on; None if the table is not captured.

        ``xid`` (32 bits, 0 if unknown) is the transaction in which it was sent, and the table perhaps altered.
        Relation messages are repeated after every reconnect and cache reset: an unchanged table keeps its version. A
        column that was dropped and added again with its name and type creates a new version: it is a different column.
        """
        name = TableId(relation.namespace, relation.name)
        is_captured = self._includes(name)
        with self._lock:
            # The newest name of a table is the last one.
            seen = SeenName(relation.oid, name, is_captured)
            self._names.pop(seen, None)
            self._names[seen] = None
        if not is_captured:
            return None
        resolved = self._catalog.resolve_relation(relation, xid)
        entered = self._enter(resolved.announced, attnums(resolved.current))
        with self._lock:
            self._resolved.setdefault((name, entered.version), resolved.current)
        return entered

    def resolved_at(self, version: TableSchema) -> TableSchema | None:
        """The table in the catalogue when this version was announced; None if it did not exist or was not queried."""
        with self._lock:
            return self._resolved.get((version.id, version.version))

    def take_names(self) -> list[SeenName]:
        """Return and clear the names that were announced since the last call, in the order of the stream."""
        with self._lock:
            names, self._names = list(self._names), {}
            return names

    def current(self, table: TableId) -> TableSchema:
        """Return the newest known version; raises KeyError for an unknown table."""
        with self._lock:
            return self._current[table]

    def __iter__(self) -> Iterator[TableSchema]:
        with self._lock:
            return iter(list(self._current.values()))

    def __contains__(self, table: object) -> bool:
        with self._lock:
            return table in self._current

    def _enter(self, table: TableSchema, numbers: dict[str, int]) -> TableSchema:
        with self._lock:
            known, before = self._current.get(table.id), self._attnums.get(table.id, {})
            is_other = any(before.get(c.name, 0) != numbers[c.name] for c in table.columns if numbers.get(c.name))
            if known is not None and not is_other and dataclasses.replace(table, version=known.version) == known:
                return known
            self._attnums[table.id] = numbers
            entered = dataclasses.replace(table, version=known.version + 1 if known else 1)
            self._current[table.id] = entered
            return entered


def attnums(table: TableSchema | None) -> dict[str, int]:
    """Return the columns' attnums by name, if known."""
    return {} if table is None else {column.name: column.attnum for column in table.columns if column.attnum}

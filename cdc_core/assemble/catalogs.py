"""Lake tables in catalogs: registered after their first commit, changed and removed with their source."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.describe import describe
from cdc_core.assemble.observers import Observer
from cdc_core.catalogs import CatalogClient, CatalogEntry, NamePatterns, Registrar, opened_catalogs
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import SnapshotReport

_CLOSE_SECONDS = 10.0


class CatalogObserver(Observer):
    """Keeps the catalogs of a connector equal to its lake tables."""

    def __init__(self, context: RunContext) -> None:
        options = context.config.catalogs
        self._context = context
        self._names = NamePatterns(options.catalogs_database, options.catalogs_table, context.name)
        self._owner = options.catalogs_owner
        self._registrars = [Registrar(catalog) for catalog in opened_catalogs(options, context.lake.paths.base)]
        self._lock = threading.Lock()
        self._tables: dict[TableId, TableSchema] = {}
        self._registered: set[TableId] = set()

    def opened(self, tables: Sequence[TableSchema]) -> None:
        """Register those of the tables that the lake has, and remove entries of tables that are not captured."""
        with self._lock:
            self._tables = {table.id: table for table in tables}
        for registrar in self._registrars:
            registrar.later(partial(self._begin, registrar, tables))

    def described(self, table: TableSchema) -> None:
        """Follow a change of a table that is registered."""
        with self._lock:
            is_registered, is_same = table.id in self._registered, self._tables.get(table.id) == table
            self._tables[table.id] = table
        if is_registered and not is_same:
            self._put(table)

    def read(self, report: SnapshotReport) -> None:
        """Register a table that was read."""
        with self._lock:
            table = self._tables.get(report.table)
            self._registered.add(report.table)
        if table is not None:
            self._put(table)

    def gone(self, table: TableId) -> None:
        """Remove the entry of a table that was dropped or renamed; its lake table stays."""
        with self._lock:
            was_registered = table in self._registered
            self._registered.discard(table)
        if was_registered:
            for registrar in self._registrars:
                registrar.remove(self._names.of(table))

    def end(self) -> None:
        """Wait a moment for what is not registered yet."""
        for registrar in self._registrars:
            registrar.close(_CLOSE_SECONDS)

    def _begin(self, registrar: Registrar, tables: Sequence[TableSchema], catalog: CatalogClient) -> None:
        known = self._context.lake.known(tables)
        names = {self._names.of(table.id) for table in tables}
        stale = [
            name
            for database in sorted({name.database for name in names})
            for name in catalog.own(database)
            if name not in names
        ]
        with self._lock:
            self._registered |= known
            present = [table for table in self._tables.values() if table.id in known]
        for table in present:
            registrar.put(self._entry(table))
        for name in stale:
            registrar.remove(name)

    def _put(self, table: TableSchema) -> None:
        for registrar in self._registrars:
            registrar.put(self._entry(table))

    def _entry(self, table: TableSchema) -> CatalogEntry:
        base = self._context.lake.paths.base
        return CatalogEntry(self._names.of(table.id), describe(self._context, table), base, self._owner)

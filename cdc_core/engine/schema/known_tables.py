"""The tables that the log of schema versions knows: the history of each, and the state of those that are open."""

from __future__ import annotations

from cdc_core.lake import SchemaLog, TableHistory, TableVersions
from cdc_core.schema import TableId


class KnownTables:
    """Histories and states by the tables' names. For one thread.

    ``histories`` are as read from the log, also of tables that this run does not open; ``opened`` are the states of
    those that it does. ``unsettled`` are those of them whose state may have changed, or to which something is due: all
    that were asked for by ``of`` since they were settled (``MergeStates.settle``). What is done in each round, or ten
    times a second, looks at these only; so whoever changes a state asks for it by ``of``.
    """

    def __init__(self, log: SchemaLog) -> None:
        self._log = log
        self.histories: dict[TableId, TableHistory] = log.read()
        self.opened: dict[TableId, TableVersions] = {}
        self.unsettled: dict[TableId, None] = {}  # in the order in which they were asked for

    def open(self, table: TableId, in_force: int | None) -> TableVersions:
        """Load the table's state; ``in_force`` is the number in its lake table's commits, None if there is none."""
        self.opened[table] = TableVersions.of(self.history(table), in_force)
        return self.of(table)

    def reopen(self, table: TableId, in_force: int | None) -> TableVersions:
        """Load the state again after the table was re-read, which is recorded in the log."""
        self.histories = self._log.read()
        return self.open(table, in_force)

    def of(self, table: TableId) -> TableVersions:
        """Return the table's state, which the caller may change; raises KeyError if it was never opened."""
        state = self.opened[table]
        self.unsettled[table] = None
        return state

    def history(self, table: TableId) -> TableHistory:
        """Return the table's history, which is empty if the log does not have the table."""
        return self.histories.get(table, TableHistory({}))

    def holders(self, oids: set[int]) -> dict[int, list[TableId]]:
        """Return, by oid, the lake tables that were read from these tables; also names that are not opened."""
        tables: dict[int, list[TableId]] = {}
        for table in self.opened.keys() | self.histories.keys():
            state = self.opened.get(table)
            if state is None:
                versions = list(self.histories[table].versions.values())
            else:
                versions = [] if state.schema_version is None else [state.schema_version]
            for oid in {version.table.oid for version in versions} & oids:
                tables.setdefault(oid, []).append(table)
        return tables

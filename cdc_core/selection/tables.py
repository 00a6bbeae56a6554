"""Which tables are captured, and in which order their snapshots are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from cdc_core.schema import TableId, TableSchema
from cdc_core.selection.chosen import chosen_tables
from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.patterns import Pattern, compile_all, compile_pattern, matches_any

SYSTEM_SCHEMAS = ("pg_catalog", "information_schema")
# Tables that an extension puts into the user's schema.
SYSTEM_TABLES = ("spatial_ref_sys",)
SYSTEM_PREFIXES = ("pg_temp", "pg_toast")


class TableSelection:
    """The lists for schemas and tables.

    If an include list is given, the exclude list of the same kind has no effect. A schema's list is matched against the
    schema's name, a table's against ``schema.table``. The signal table is captured regardless of the lists.
    ``snapshot_include`` are the patterns of ``snapshot.include.collection.list``; ``snapshot_skips`` says which tables
    a custom snapshot mode does not read.
    """

    def __init__(
        self,
        options: SelectionOptions,
        snapshot_include: Iterable[str] = (),
        snapshot_skips: Callable[[TableId], bool] = lambda table: False,
    ) -> None:
        self._schema_in = compile_all(options.schema_include_list)
        self._schema_out = compile_all(options.schema_exclude_list)
        self._table_in = compile_all(options.table_include_list)
        self._table_out = compile_all(options.table_exclude_list)
        self._snapshot_in = compile_all(snapshot_include)
        self._snapshot_skips = snapshot_skips
        self._ignore_builtin = options.table_ignore_builtin
        self._signal = _lowered(options.signal_table)
        self.skipped_operations = options.skipped_operations
        """The operations that are not published."""
        self._known: dict[TableId, bool] = {}

    def includes(self, table: TableId) -> bool:
        """Whether the table is captured."""
        known = self._known.get(table)
        if known is None:
            known = self._known[table] = self.is_signal(table) or self._passes(table)
        return known

    def is_signal(self, table: TableId) -> bool:
        """Whether it is the table of ``signal.data.collection``."""
        return self._signal is not None and _lowered(table) == self._signal

    def is_table(self, table: TableId) -> bool:
        """Whether the lists include the table: the signal table is captured otherwise too, but only for its signals."""
        return self._passes(table)

    def includes_in_snapshot(self, table: TableId) -> bool:
        """Whether snapshots that name no tables read the table: it is captured and matches the snapshot's own list."""
        is_listed = not self._snapshot_in or matches_any(self._snapshot_in, str(table))
        return self.includes(table) and is_listed and not self._snapshot_skips(table)

    def chosen_for_snapshot(self, captured: list[TableSchema], names: Sequence[TableId] | None) -> list[TableSchema]:
        """Return the tables that are named; None: those of ``snapshot.include.collection.list``. Raises TableError."""
        if names is not None:
            return chosen_tables(captured, names)
        return [table for table in captured if self.includes_in_snapshot(table.id)]

    def position(self, table: TableId) -> tuple[int, str]:
        """Return a sort key: the index of the first include pattern that matches, then the name.

        Without an include list all tables have the same index; a table that matches no pattern (the signal table) is
        last.
        """
        if not self._table_in:
            return (0, str(table))
        for place, pattern in enumerate(self._table_in):
            if pattern.fullmatch(str(table)):
                return (place, str(table))
        return (len(self._table_in), str(table))

    def _passes(self, table: TableId) -> bool:
        if self._ignore_builtin and _is_builtin(table):
            return False
        return _allowed(self._schema_in, self._schema_out, table.schema) and _allowed(
            self._table_in, self._table_out, str(table)
        )


def table_matcher(entry: str) -> Callable[[TableId], bool]:
    """Return which tables an entry of a signal names: a regular expression, or a name with parts in double quotes.

    Raises ValueError if it is neither.
    """
    quoted: TableId | None = None
    if '"' in entry:
        with suppress(ValueError):
            quoted = TableId.of_text(entry)
    try:
        matching = compile_pattern(entry).fullmatch
    except ValueError:
        if quoted is None:
            raise
        return lambda table: table == quoted
    return lambda table: table == quoted or matching(str(table)) is not None


def _lowered(table: TableId | None) -> tuple[str, ...] | None:
    return None if table is None else tuple(part.lower() for part in table)


def _allowed(included: tuple[Pattern, ...], excluded: tuple[Pattern, ...], name: str) -> bool:
    if included:
        return matches_any(included, name)
    return not matches_any(excluded, name)


def _is_builtin(table: TableId) -> bool:
    return (
        table.schema.lower() in SYSTEM_SCHEMAS
        or table.table.lower() in SYSTEM_TABLES
        or table.schema.startswith(SYSTEM_PREFIXES)
    )

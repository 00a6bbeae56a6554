"""The protocol of a snapshot mode, which a class of the user may implement (``snapshot.mode=custom``)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol, runtime_checkable

from cdc_core.errors import ConfigError
from cdc_core.schema import TableId


@runtime_checkable
class Snapshotter(Protocol):
    """A snapshot mode. A user's class is instantiated without arguments, once at each start.

    ``snapshot.mode.custom.name`` is its dotted path, ``package.module.Class``. The methods are those of Debezium's
    interface of the same name that apply to PostgreSQL, whose connector has no schema history.
    """

    def should_snapshot_data(self, offset_exists: bool, snapshot_in_progress: bool) -> bool:
        """Whether rows are read at this start.

        ``offset_exists``: a position is stored, from an earlier start. ``snapshot_in_progress``: that start ended
        during its snapshot (then ``offset_exists`` is true as well).
        """

    def should_stream(self) -> bool:
        """Whether changes are streamed afterwards; otherwise the run ends with the snapshot."""

    def should_snapshot_on_data_error(self) -> bool:
        """Whether rows are read again if the stored position is lost, with the slot or with its WAL.

        Otherwise the run ends with an error.
        """


class TableQueries(Protocol):
    """Further methods of a snapshot mode. A class may have each of them or not.

    ``should_stream_events_starting_from_snapshot() -> bool`` may only return False: streaming continues at the stored
    position. What ``init`` has of position and slot in Debezium are arguments of ``should_snapshot_data`` here.
    ``snapshot_transaction_isolation_level_statement() -> str`` may only confirm REPEATABLE READ: a snapshot is read by
    several connections at one point, which another level does not allow.
    """

    def init(self, properties: Mapping[str, str]) -> None:
        """Called before the other methods. ``properties``: those of the connector file, secrets masked."""

    def build_snapshot_query(self, table: str) -> str | None:
        """Return the statement that reads a table (``schema.table``); None: its rows are not read, only its changes.

        A statement of snapshot.select.statement.overrides prevails.
        """

    def snapshot_table_locking_statement(self, lock_timeout_ms: int, tables: Sequence[str]) -> str | None:
        """Return SQL that locks tables for the time of a snapshot, in place of snapshot.locking.mode; None: no locks.

        It is executed in the transaction that keeps the snapshot, before rows are read.
        """

    def snapshot_completed(self) -> None:
        """Called once the rows of a snapshot have been written."""


Properties = tuple[tuple[str, str], ...]
"""Names and values of a connector file, secrets masked."""

_METHODS = ("should_snapshot_data", "should_stream", "should_snapshot_on_data_error")
_ISOLATION = "snapshot_transaction_isolation_level_statement"
_FROM_SNAPSHOT = "should_stream_events_starting_from_snapshot"


class CustomQueries:
    """The further methods of the class of ``snapshot.mode.custom.name``; those that it lacks decide nothing.

    Raises ConfigError for the text of a statement that is none, and for an error of the class.
    """

    def __init__(self, snapshotter: object) -> None:
        self._snapshotter = snapshotter
        self._queries: dict[TableId, str | None] = {}

    def begin(self, properties: Properties) -> None:
        """Pass the connector's properties to the class, before any other call."""
        self._asked("init", dict(properties))

    @property
    def unheeded(self) -> str:
        """A sentence about unsupported requests of the class; empty if there are none."""
        if self._asked(_FROM_SNAPSHOT) != "True":
            return ""
        return (
            f"{type(self._snapshotter).__name__}.{_FROM_SNAPSHOT} of snapshot.mode.custom.name returns True, which has "
            "no effect: streaming goes on at the stored position. Changes from before the snapshot are events, too, "
            "and are not applied twice to a lake."
        )

    def query_of(self, table: TableId) -> str | None:
        """Return the statement for a table; None if the class has none."""
        if table not in self._queries:
            self._queries[table] = self._asked("build_snapshot_query", str(table))
        return self._queries[table]

    def skips(self, table: TableId) -> bool:
        """Whether the class has no statement for the table, so that its rows are not read."""
        return hasattr(self._snapshotter, "build_snapshot_query") and self.query_of(table) is None

    def locks(self, lock_timeout_ms: int, tables: Sequence[TableId]) -> str | None:
        """Return the statement that locks tables, empty for none; None if the class leaves that to the options."""
        if not hasattr(self._snapshotter, "snapshot_table_locking_statement"):
            return None
        return self._asked("snapshot_table_locking_statement", lock_timeout_ms, [str(table) for table in tables]) or ""

    def completed(self) -> None:
        """Notify the class that a snapshot has ended."""
        self._asked("snapshot_completed")

    def require_isolation(self) -> None:
        """Raise ConfigError if the class wants another isolation level than REPEATABLE READ."""
        text = self._asked(_ISOLATION) or ""
        if text.strip() and "REPEATABLE READ" not in text.upper():
            raise ConfigError(
                f"{type(self._snapshotter).__name__}.{_ISOLATION} of snapshot.mode.custom.name asks for another level "
                "than REPEATABLE READ.",
                "Remove the method: a snapshot is read by several connections at one point, in REPEATABLE READ.",
            )

    def _asked(self, method: str, *arguments: object) -> str | None:
        function = getattr(self._snapshotter, method, None)
        if not callable(function):
            return None
        try:
            answer = function(*arguments)
        except Exception as error:
            # As of its creation: the text of the error may contain anything.
            name = type(self._snapshotter).__name__
            raise ConfigError(
                f"{name}.{method} of snapshot.mode.custom.name failed ({type(error).__name__})."
            ) from error
        return None if answer is None else str(answer)


@lru_cache(8)
def custom_queries(path: str, properties: Properties = ()) -> CustomQueries:
    """Return the further methods of the class of that path, whose object is kept. Raises ConfigError."""
    return CustomQueries(load_snapshotter(path, properties))


def load_snapshotter(path: str, properties: Properties = ()) -> Snapshotter:
    """Return the object that a dotted path names. Raises ConfigError if there is none or it lacks a method."""
    remedy = "Set snapshot.mode.custom.name to package.module.Class of a Python class that can be imported."
    module, _, name = path.strip().rpartition(".")
    if not module:
        raise ConfigError(f"snapshot.mode.custom.name is {path!r}, which is not the import path of a class.", remedy)
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:
        # An error of the user's module or class: its text may contain anything, so only its type is reported.
        raise ConfigError(
            f"The class {path} of snapshot.mode.custom.name cannot be instantiated ({type(error).__name__}).", remedy
        ) from error
    lacking = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if lacking:
        raise ConfigError(
            f"The class {path} of snapshot.mode.custom.name has no method {', '.join(lacking)}.",
            "Implement the methods of cdc_core.snapshot.snapshotter.Snapshotter.",
        )
    queries = CustomQueries(made)
    queries.begin(properties)
    queries.require_isolation()
    snapshotter: Snapshotter = made
    return snapshotter

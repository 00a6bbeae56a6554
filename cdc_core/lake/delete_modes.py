"""The delete mode of each lake table; a separate module from the modes' columns, so that Arrow is not loaded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.errors import MissingKeyError, TableError
from cdc_core.schema import TableId, TableSchema, named_remedy
from cdc_core.selection import matches_table


class DeleteMode(StrEnum):
    """What happens to a lake row that is deleted in the source."""

    HARD = "hard"
    SOFT = "soft"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class DeleteModes:
    """The mode of each table: the one whose patterns match the table's name, else ``default``; picklable."""

    default: DeleteMode = DeleteMode.HARD
    patterns: tuple[tuple[DeleteMode, tuple[str, ...]], ...] = ()

    def of(self, table: TableId) -> DeleteMode:
        """Return the table's mode; if patterns of several modes match, the first one given."""
        return next(iter(self.matching(table)), self.default)

    def matching(self, table: TableId) -> list[DeleteMode]:
        """Return the modes whose patterns match the table's name; more than one is a configuration error."""
        return [mode for mode, patterns in self.patterns if matches_table(patterns, table)]

    def check(self, table: TableSchema) -> None:
        """Raise TableError if two delete modes are configured for a table, MissingKeyError if it lacks the key."""
        matching = self.matching(table.id)
        if len(matching) > 1:
            names = " and ".join(f"wal2lake.lake.delete.mode.{mode.value}" for mode in matching)
            raise TableError(
                f"{table.id} matches {names}.", "Change the lists so that only one of them matches it.", str(table.id)
            )
        check_key(table, self.of(table.id))


def check_key(table: TableSchema, mode: DeleteMode) -> None:
    """Raise MissingKeyError if a delete mode needs a key and the table has none."""
    if mode is DeleteMode.HARD or table.row_key:
        return
    if table.named_identity:
        raise MissingKeyError(
            f"The key of {table.id} has {', '.join(table.named_identity)}, of which the server sends the names of "
            f"objects, which may change, and delete mode {mode.value} identifies rows by their key.",
            f"{named_remedy(table)} Or list the table in wal2lake.lake.delete.mode.hard, where its inserts are merged. "
            f"Then run wal2lake snapshot with {table.id}.",
            str(table.id),
        )
    if table.unsent_identity:
        raise MissingKeyError(
            f"The key of {table.id} has {', '.join(table.unsent_identity)}, which the server does not send, and delete "
            f"mode {mode.value} identifies rows by their key.",
            "Set a REPLICA IDENTITY USING INDEX whose columns are all published, or list the table in "
            f"wal2lake.lake.delete.mode.hard, then run wal2lake snapshot with {table.id}.",
            str(table.id),
        )
    raise MissingKeyError(
        f"{table.id} has no key, and delete mode {mode.value} identifies rows by their key.",
        "Add a primary key (a deferrable one does not identify rows within a transaction) or list it in "
        f"wal2lake.lake.delete.mode.hard, then run wal2lake snapshot with {table.id}.",
        str(table.id),
    )

"""The delete mode of each lake table; a separate module from the modes' columns, so that Arrow is not loaded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.errors import TableError
from cdc_core.schema import TableId, TableSchema
from cdc_core.selection import compile_all, matches_any


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
        return [mode for mode, patterns in self.patterns if matches_any(compile_all(patterns), str(table))]


def check_delete_mode(modes: DeleteModes, table: TableSchema) -> None:
    """Raise TableError if two delete modes are configured for a table."""
    matching = modes.matching(table.id)
    if len(matching) > 1:
        names = " and ".join(f"wal2lake.lake.delete.mode.{mode.value}" for mode in matching)
        raise TableError(
            f"{table.id} matches {names}.", "Change the lists so that only one of them matches it.", str(table.id)
        )

"""Which delete mode each lake table has, by the connector file; apart from its columns, so that no Arrow is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.schema.table import TableId
from cdc_core.selection.patterns import compile_all, matches_any


class DeleteMode(StrEnum):
    """What becomes of a lake row that is deleted in the source."""

    HARD = "hard"
    SOFT = "soft"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class DeleteModes:
    """The mode of each table: ``default``, or the one whose patterns match the table's name; picklable."""

    default: DeleteMode = DeleteMode.HARD
    patterns: tuple[tuple[DeleteMode, tuple[str, ...]], ...] = ()

    def of(self, table: TableId) -> DeleteMode:
        """The table's mode; where patterns of several modes match, the first one given."""
        return next(iter(self.matching(table)), self.default)

    def matching(self, table: TableId) -> list[DeleteMode]:
        """The modes whose patterns match the table's name; more than one is a mistake in the file."""
        return [mode for mode, patterns in self.patterns if matches_any(compile_all(patterns), str(table))]

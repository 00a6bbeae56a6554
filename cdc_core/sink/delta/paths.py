"""Where each Delta table of a connector lies."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class LakePaths:
    """The paths under ``<root>/<prefix>``: lake tables beside each other, everything else under ``__`` folders.

    ``root`` is a folder or any URI that Hadoop's file systems know; ``prefix`` is ``topic.prefix``.
    """

    root: str
    prefix: str

    @property
    def base(self) -> str:
        """``<root>/<prefix>``."""
        return f"{self.root.rstrip('/')}/{self.prefix}"

    def lake(self, table: TableId) -> str:
        """The table itself, as the source has it."""
        return f"{self.base}/{table.schema}/{table.table}"

    def changelog(self, table: TableId) -> str:
        """Every change of the table."""
        return f"{self.base}/__changelog/{table.schema}/{table.table}"

    def quarantine(self, table: TableId) -> str:
        """Change rows that a quality rule refused, with their reasons."""
        return f"{self.base}/__quarantine/{table.schema}/{table.table}"

    @property
    def rounds(self) -> str:
        """Which Delta version of each table shows which LSN of the source."""
        return f"{self.base}/__rounds"

    @property
    def snapshots(self) -> str:
        """Which transactions each snapshot shows."""
        return f"{self.base}/__snapshots"

    @property
    def shapes(self) -> str:
        """Which versions of its source each lake table has gone through."""
        return f"{self.base}/__shapes"

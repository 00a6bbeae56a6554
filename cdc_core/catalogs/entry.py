"""What a catalog has of a lake table, and what is asked of a catalog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cdc_core.described import DescribedTable
from cdc_core.outbox import DeliveryError
from cdc_core.schema import TableId


class EntryName(NamedTuple):
    """The name of an entry: a database (Unity Catalog: a schema), and a table in it."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """How entries are named: ``{connector}``, ``{schema}`` and ``{table}`` are replaced.

    Characters that a catalog may refuse become ``_``, and letters are lower-case, as in each catalog's own names. Of
    tables whose names become equal the first one gets the entry, the other is reported (``TakenError``).
    """

    database: str
    table: str
    connector: str

    def of(self, table: TableId) -> EntryName:
        """Return the name of a table's entry."""
        return EntryName(self._filled(self.database, table), self._filled(self.table, table))

    def _filled(self, pattern: str, table: TableId) -> str:
        parts = {"{connector}": self.connector, "{schema}": table.schema, "{table}": table.table}
        for name, value in parts.items():
            pattern = pattern.replace(name, value)
        return "".join(char if char.isalnum() or char == "_" else "_" for char in pattern.lower())


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A lake table as an entry. ``table.location`` is where its files are.

    ``lake`` is the folder of the connector's lake: it marks the entry as the connector's own. ``owner`` may be empty.
    """

    name: EntryName
    table: DescribedTable
    lake: str
    owner: str = ""

    @property
    def parameters(self) -> dict[str, str]:
        """Properties of the entry: by the first of them a connector knows its own."""
        return {MARK: self.lake, "wal2lake.table": str(self.table.id)}


MARK = "wal2lake.lake"
"""The property by which an entry is that of a connector: the folder of its lake."""


class TakenError(DeliveryError):
    """The name is that of a table at another location: trying again does not help."""


class CatalogClient(Protocol):
    """A catalog, for one thread. Methods raise DeliveryError if it is away or refuses; each may be called again."""

    @property
    def place(self) -> str:
        """Which catalog this is, for messages."""

    def put(self, entry: CatalogEntry) -> None:
        """Make the entry, or make it equal. Raises TakenError if the name is that of a table elsewhere."""

    def remove(self, name: EntryName) -> None:
        """Remove an entry of this connector, not its files; does nothing if there is none, or it is somebody else's."""

    def own(self, database: str) -> Iterable[EntryName]:
        """Return the entries of this connector in a database, which need not exist."""

    def check(self) -> None:
        """Ask for something that needs the catalog, the credentials and the permission to read."""

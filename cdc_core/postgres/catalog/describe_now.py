"""Reads one table's current description from the catalogue, inside a Spark task."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import ConnectionString, connect_with
from cdc_core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class DescribeNow:
    """Reads a table's description again; picklable. For a table that no longer exists, returns the given one."""

    connection: ConnectionString

    def __call__(self, table: TableSchema) -> TableSchema:
        """Raises SourceError or TransientError if the server cannot be queried."""
        connection = connect_with(self.connection)
        try:
            found = Catalog(connection).tables(lambda name: name == table.id)
        finally:
            connection.close()
        return found[0] if found else table

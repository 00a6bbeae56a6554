"""Lake tables at the versions of one round: together they show the source at one LSN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from cdc_core.lake.readers.table_at_version import TableAtVersion
from cdc_core.lsn import Lsn
from cdc_core.spark import Frame, Session


@dataclass(frozen=True, eq=False)
class ConsistentTables(Mapping[str, TableAtVersion]):
    """Tables by their names (``schema.table``), at the Delta versions that one round recorded.

    ``lsn`` is the position of the source that all of them show, of the stream's ``epoch``; ``committed_at`` the commit
    time of the last transaction up to it, None if there was none. ``missing`` are the tables that have no version at
    that position, with their states in the round: only when no table was named.
    """

    tables: Mapping[str, TableAtVersion]
    lsn: Lsn
    committed_at: datetime | None = None
    epoch: int = 0
    missing: Mapping[str, str] | None = None

    def __getitem__(self, name: str) -> TableAtVersion:
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def arrow(self) -> dict[str, pa.Table]:
        """Return each table as an Arrow table. Raises LakeError."""
        return {name: table.arrow() for name, table in self.tables.items()}

    def pandas(self) -> dict[str, Any]:
        """Return each table as a ``pandas.DataFrame``. Raises LakeError."""
        return {name: table.pandas() for name, table in self.tables.items()}

    def polars(self) -> dict[str, Any]:
        """Return each table as a ``polars.DataFrame``. Raises LakeError, also if Polars is not installed."""
        return {name: table.polars() for name, table in self.tables.items()}

    def duckdb(self, connection: Any = None) -> Any:
        """Return a DuckDB connection (a new one in memory, or the one given) with a view of each table.

        A view has the table's name in a schema of the source's name, so that ``select * from shop.orders`` works. The
        rows are in memory.
        """
        from cdc_core.lake.readers.duckdb_views import connected

        return connected(connection, {table.table: table.arrow() for table in self.tables.values()})

    def spark(self, session: Session) -> dict[str, Frame]:
        """Return each table as a DataFrame of a Spark session that has Delta Lake's package."""
        return {name: table.spark(session) for name, table in self.tables.items()}

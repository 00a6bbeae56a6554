"""Input of the checks: one connection, the options, the captured tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc_core.postgres.connection import Connection
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.server import ServerInfo
from cdc_core.schema import TableId, TableSchema
from cdc_core.selection import SelectionOptions


@dataclass(frozen=True, slots=True)
class Context:
    """``names`` are all tables of the database, ``others`` relations that are none, ``tables`` the captured ones.

    ``role`` is the role whose privileges are checked, if the connection is an administrator's.
    """

    connection: Connection
    options: PostgresOptions
    server: ServerInfo
    names: Sequence[TableId]
    others: Mapping[TableId, str]
    tables: Sequence[TableSchema]
    selection: SelectionOptions
    role: str | None = None


def listed(tables: Sequence[object], limit: int = 5) -> str:
    """Format as ``a, b and 3 more``."""
    shown = ", ".join(str(table) for table in tables[:limit])
    return shown if len(tables) <= limit else f"{shown} and {len(tables) - limit} more"

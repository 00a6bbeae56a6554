"""How change rows of one schema version are read, once the lake table has another one."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lake.schema.project import SchemaStep
from cdc_core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class SchemaView:
    """How change rows of one schema version are read: their columns, their table's key, the steps to the one in force.

    ``steps`` is None if no sequence of steps leads to the schema version in force.
    """

    columns: tuple[str, ...]
    table: TableSchema
    steps: tuple[SchemaStep, ...] | None

"""The schema version that a lake table is to have, and how it gets there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_core.lake.schema.project import SchemaStep
from cdc_core.lake.schema.view import SchemaView
from cdc_core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class TargetSchema:
    """The schema version that the lake table is to have: its number ``schema_version``, and the source table as of it.

    ``steps`` lead to it from the one that the lake table may have. ``views`` define, by number, how change rows of a
    schema version are read; empty if all rows have this one. ``since`` maps columns to the commit LSN up to which their
    constraints may have been different (``quality/constraints``).
    """

    table: TableSchema
    schema_version: int = 0
    steps: tuple[SchemaStep, ...] = ()
    views: Mapping[int, SchemaView] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether the lake table has the schema version, and all change rows have it."""
        return not self.steps and not self.views

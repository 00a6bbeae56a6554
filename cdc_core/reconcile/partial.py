"""Compares a part of a table: the keys that changed since a moment, or a random sample of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from cdc_core.lsn import Lsn
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """Which rows are compared: all, those that changed after ``since`` (by table), or a ``sample`` of so many ranges.

    ``seed`` decides which ranges. ``is_since``: a table that ``since`` does not contain is compared as a whole.
    """

    since: Mapping[TableId, Lsn | datetime] = field(default_factory=dict)
    sample: int | None = None
    seed: int = 0
    is_since: bool = False

    @property
    def kind(self) -> str:
        """How the results call it."""
        return "sample" if self.sample is not None else "since" if self.since or self.is_since else "all"

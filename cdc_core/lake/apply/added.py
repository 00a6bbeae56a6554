"""Slices whose rows are added to a lake table unread: inserts, and everything after a truncate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.apply.rewrite import Rewrite, parts_of
from cdc_core.lake.apply.ways import Ways
from cdc_core.lake.delta.candidates import Content


@dataclass(frozen=True, slots=True)
class Inserts:
    """Rows that the lake does not have: ``plus`` (lake rows). ``events`` is the number of change rows."""

    events: int
    plus: pa.Table
    expected: ClassVar[None] = None

    def apply(self, content: Content, ways: Ways, file_bytes: int) -> Rewrite:
        """Return the effect: rows added."""
        return Rewrite([], parts_of(self.plus, content.files, file_bytes), self.plus.num_rows)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The table's entire content after a truncate: ``plus`` (lake rows). ``events`` is the number of change rows.

    ``expected``: rows that changes after the truncate must find, and that no change after it has written.
    """

    events: int
    plus: pa.Table
    expected: AbsentRows | None = None

    def apply(self, content: Content, ways: Ways, file_bytes: int) -> Rewrite:
        """Return the effect: all files removed, rows added."""
        removed, parts = list(content.files), parts_of(self.plus, content.files, file_bytes)
        gone = sum(file.live for file in removed)
        return Rewrite(removed, parts, self.plus.num_rows, 0, gone, absent=self.expected)

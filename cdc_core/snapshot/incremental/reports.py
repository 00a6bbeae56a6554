"""Incremental snapshots as their callers see them: ranges of keys, progress, and what became of each range."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_core.schema import TableId

_NAME = re.compile(r'(?P<table>(?:"(?:[^"]|"")+"|[^"|])+)(?:\|(?P<number>0*[1-9][0-9]*))?')


@dataclass(frozen=True, slots=True)
class KeyRange:
    """One range of a table's key, which can be read, and read again, alone: ``number`` of ``count``, from 1 on.

    ``rows`` is the server's estimate, None if the table was never analysed. ``plan`` names the division of the table's
    key into ranges: as long as it is the same, so is the range.
    """

    table: TableId
    number: int
    count: int
    rows: int | None = None
    plan: str = ""

    @property
    def name(self) -> str:
        """``schema.table|0007``: the range's name in commands and as a partition; ``parse`` reads it."""
        return f"{self.table.exact}|{self.number:04d}"

    @staticmethod
    def parse(name: str) -> tuple[TableId, int | None]:
        """Return the table and the number that a name has, None for all ranges of the table. Raises ValueError."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(
                "schema.table|NUMBER, with a number from 1 on, or schema.table; a part that has bars, dots or quotes "
                "is written in double quotes"
            )
        return TableId.of_name(match["table"]), int(match["number"]) if match["number"] else None


@dataclass(frozen=True, slots=True)
class IncrementalProgress:
    """Progress of the incremental snapshot of one table: of ``ranges``, how many are read, and are in the lake table.

    ``rows`` were read in ``seconds``; ``rows_expected`` is an estimate, None if there is none. ``ranges`` is 0 before
    they are planned. ``is_paused``: a signal has paused it.
    """

    table: TableId
    rows: int
    ranges_read: int
    ranges_applied: int
    ranges: int
    seconds: float = 0.0
    rows_expected: int | None = None
    is_paused: bool = False

    @property
    def rows_per_second(self) -> float:
        """The rate at which rows were read."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def rows_left(self) -> int | None:
        """Rows that are still to be read; None if that is not known."""
        return None if self.rows_expected is None else max(0, self.rows_expected - self.rows)

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest takes at this rate; None if that is not known."""
        left, rate = self.rows_left, self.rows_per_second
        return None if left is None or not rate else left / rate


@dataclass(frozen=True, slots=True)
class RangeReport:
    """What became of one range. ``is_applied``: its rows are in the lake table.

    Otherwise ``reason`` is why not; rows that are staged are written by the run that streams next. ``seconds``: of its
    reading, without the waits before and after it.
    """

    range: KeyRange
    rows: int
    is_applied: bool
    reason: str = ""
    seconds: float = 0.0

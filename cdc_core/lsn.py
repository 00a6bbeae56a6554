"""The log sequence number: an unsigned 64-bit integer that PostgreSQL prints as ``16/B374D848``."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# The header that every record of the WAL begins with; a commit's record is larger.
_RECORD_BYTES = 24
_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class Lsn(int):
    """A position in the write-ahead log. Compares and adds like an integer; prints as PostgreSQL prints it."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Parse ``HIGH/LOW`` in hexadecimal.

        Raises ValueError for text in another form.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"expected an LSN such as 16/B374D848, found {text!r}")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{int(self) >> 32:X}/{int(self) & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn('{self}')"


def lsn_or_time(at: Lsn | datetime | str) -> Lsn | datetime:
    """Return the LSN or the time that a text names, in ISO 8601; without an offset it is UTC.

    Raises ValueError if it is neither.
    """
    if isinstance(at, str):
        try:
            return Lsn.parse(at)
        except ValueError:
            pass
        try:
            at = datetime.fromisoformat(at.strip())
        except ValueError:
            raise ValueError(
                f"expected an LSN such as 16/B374D848 or a time such as 2026-11-21T12:00:00Z, found {at!r}"
            ) from None
    return at.replace(tzinfo=UTC) if isinstance(at, datetime) and at.tzinfo is None else at


def last_begin(end: int) -> int:
    """Return the latest LSN at which a WAL record that ends at ``end``, or before it, can begin.

    A stream that has passed ``end`` has delivered every commit up to the result, and none behind it: PostgreSQL
    identifies a commit by the LSN at which its record begins, and a position that it reports beside changes is one at
    which a record ends. The next record begins right there, and may be a commit. So ``end`` must not be stored as the
    LSN up to which a table is merged.
    """
    return max(0, end - _RECORD_BYTES)


def just_after(merged: int) -> int:
    """Return an LSN after ``merged``, up to which a table is merged, and before every commit that the table lacks.

    A slice up to it takes no change from the stream, and its commit still moves the table's position: so a replay of
    quarantined changes is recognised if its task is executed again, and is not repeated.

    Proof: ``merged`` is the LSN at which the record of a commit begins that the table has, or ``last_begin`` of what
    the stream has passed. In both cases the next record begins at least _RECORD_BYTES later. Each replay adds 1, so
    this holds for as many replays without a change of the table in between, less one.
    """
    return merged + 1

"""The log sequence number: an unsigned 64-bit integer that PostgreSQL prints as ``16/B374D848``."""

from __future__ import annotations

import re

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

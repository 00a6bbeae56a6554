"""RawColumns: the output of both decoders (pgoutput tuples and COPY text), and the input of ``types``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RawColumns:
    """The text of N rows, by column.

    ``names`` are the relation's columns in order. ``text[i]`` is a string array of length N: PostgreSQL's text of the
    value, null for SQL NULL and for a value that was not sent. ``unchanged[i]`` is a boolean numpy mask of length N, or
    None if no row of that column is an unchanged TOAST value. ``count`` is N, needed for a relation without columns.
    """

    names: tuple[str, ...]
    text: tuple[pa.Array, ...]
    unchanged: tuple[np.ndarray | None, ...]
    count: int = 0

    def __len__(self) -> int:
        return len(self.text[0]) if self.text else self.count


@dataclass(frozen=True, slots=True)
class TupleBatch:
    """The decoded row changes of one relation, N in stream order.

    ``op`` contains the message kind of each row as its ASCII code: I, U or D. ``old_kind`` is 0 if no old tuple was
    sent, else the ASCII code K (key columns only; the others are null) or O (the entire old row). ``new`` and ``old``
    have N rows each; a row without such a tuple is null in every column.
    """

    op: np.ndarray
    old_kind: np.ndarray
    new: RawColumns
    old: RawColumns

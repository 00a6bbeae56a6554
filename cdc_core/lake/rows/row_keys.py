"""Keys, which distinguish the rows of a table.

A key's value that its natural type cannot represent (a date of infinity) is null in its column and text in
``__rescued``; so for such types the text is part of the key. Key values that PostgreSQL considers equal are equal here
(``codes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Ints
from cdc_core.lake.names import RESCUED
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column, texts_of


def is_total(kind: pa.DataType) -> bool:
    """Whether this type can represent every text that PostgreSQL prints, so that nothing is rescued."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_binary(kind)
    )


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The key's columns by their names in the lake's schema, and whether each one's text may be part of it."""

    names: tuple[str, ...]
    with_text: tuple[bool, ...]

    @classmethod
    def of(cls, names: Sequence[str], schema: pa.Schema) -> KeyColumns:
        """Return the key ``names`` of lake rows of ``schema``; like Delta, compares names without regard to case."""
        by_name = {field.name.lower(): field for field in schema}
        fields = [by_name[name.lower()] for name in names]
        return cls(tuple(field.name for field in fields), tuple(not is_total(field.type) for field in fields))

    @property
    def read(self) -> list[str]:
        """The lake's columns that are needed to determine a row's key."""
        return [*self.names, RESCUED] if any(self.with_text) else list(self.names)

    def parts(self, rows: pa.Table) -> list[pa.Array]:
        """Return the arrays that form the key. Shape: table[N] with the columns of ``read`` -> array[N] each."""
        texts = texts_of(column(rows, RESCUED)) if any(self.with_text) else {}
        out = []
        for name, with_text in zip(self.names, self.with_text, strict=True):
            out.append(column(rows, name))
            if with_text:
                out.append(texts.get(name, pa.nulls(rows.num_rows, pa.string())))
        return out


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The distinct keys of some rows, numbered from 0.

    ``values`` are the keys' parts (``KeyColumns.parts``) in the order of their numbers. Shape: array[K] each
    """

    columns: KeyColumns
    coder: Tuples
    values: tuple[pa.Array, ...]

    @classmethod
    def of(cls, columns: KeyColumns, rows: pa.Table) -> tuple[KeyIndex, np.ndarray]:
        """Number the keys of rows. Shape: table[N] with the columns of ``columns.read`` -> index, int64[N]."""
        parts = columns.parts(rows)
        coder, codes = Tuples.number(parts)
        places = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
        places[codes] = np.arange(len(codes))
        return cls(columns, coder, tuple(part.take(pa.array(places)) for part in parts)), codes

    def match(self, rows: pa.Table) -> Ints:
        """Return the numbers of rows' keys, -1 for an unknown one. Shape: table[N] as for ``of`` -> int64[N]."""
        return self.coder.codes(self.columns.parts(rows))

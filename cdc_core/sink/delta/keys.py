"""What tells two rows of a table apart, as Spark expressions.

A key's value that its natural type cannot hold (a date of infinity) is null in its column and text in ``__rescued``; so
for such types the text belongs to the key. Key values PostgreSQL holds equal are equal here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import TableSchema
from cdc_core.sink.delta.target import RESCUED, quoted

# Types whose converters can read every text that PostgreSQL prints.
_TOTAL = (T.IntegralType, T.FloatType, T.DoubleType, T.StringType, T.BooleanType, T.BinaryType)


def merge_key(table: TableSchema) -> tuple[str, ...]:
    """The columns by which changes find their rows; empty for a table that is kept as a bag.

    Under REPLICA IDENTITY USING INDEX old tuples hold that index's columns alone, so these are the key then.
    """
    if table.identity is ReplicaIdentity.INDEX and table.identity_key:
        return table.identity_key
    return table.lake_key


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Key columns with their Spark types, and the expressions made from them."""

    names: tuple[str, ...]
    types: tuple[T.DataType, ...]

    @classmethod
    def of(cls, names: Sequence[str], row: T.StructType) -> KeyColumns:
        """The key ``names`` of rows of type ``row``."""
        by_name = {field.name: field.dataType for field in row.fields}
        return cls(tuple(names), tuple(by_name[name] for name in names))

    def parts(self, field: Callable[[str], Column]) -> list[Column]:
        """The comparable expressions of the key, ``field`` giving a column (or ``__rescued``) of the row."""
        out = []
        for name, kind in zip(self.names, self.types, strict=True):
            value = field(name)
            out.append(F.array_sort(F.map_entries(value)) if isinstance(kind, T.MapType) else value)
            if not isinstance(kind, _TOTAL):
                out.append(F.try_element_at(field(RESCUED), F.lit(name)))
        return out

    @property
    def null_safe(self) -> list[bool]:
        """Whether the part may be null, one for each of ``parts``."""
        out = []
        for kind in self.types:
            out += [False] if isinstance(kind, _TOTAL) else [True, True]
        return out


def field_of(struct: str) -> Callable[[str], Column]:
    """The accessor of a struct column's fields (or, with an alias such as ``t``, of a table's columns)."""
    return lambda name: F.col(f"{struct}.{quoted(name)}")

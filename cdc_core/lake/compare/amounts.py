"""Amounts of money as numeric: the server computes them, so a comparison does not read them as the lake's were read.

A mistake in reading money's text would be in the lake and in the source's rows alike, and no difference. Arrays are
read as text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa

from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.schema import MONEY, base_type
from cdc_core.types import NaturalConverter, to_decimal


@dataclass(frozen=True, slots=True)
class ComparedAmounts:
    """How the rows of a table are selected, and by which ``typer`` they are typed then.

    ``expressions`` are those of ``read_columns`` of a row ``r``; none for a table without money.
    """

    typer: RowTyper
    expressions: tuple[str, ...] = ()

    @classmethod
    def of(cls, typer: RowTyper) -> ComparedAmounts:
        """Return the form of the rows that ``typer`` types from money's text."""
        scales = {
            plan.name: base_type(column.type).scale or 0
            for plan, column in zip(typer.plans, typer.table.columns, strict=True)
            if plan.included and base_type(column.type).oid == MONEY
        }
        if not scales:
            return cls(typer)
        codecs = tuple(
            replace(codec, natural=_numeric(codec.natural.arrow_type)) if plan.name in scales else codec
            for plan, codec in zip(typer.plans, typer.codecs, strict=True)
        )
        names = typer.read_columns
        expressions = tuple(_expression(name, scales.get(name)) for name in names)
        return cls(replace(typer, codecs=codecs), expressions)

    def select(self, rows: str) -> str:
        """Return the SELECT of the same rows as ``rows``, which has the typer's ``read_columns``."""
        return f"SELECT {', '.join(self.expressions)} FROM ({rows}) AS r" if self.expressions else rows


def _numeric(kind: pa.DataType) -> NaturalConverter:
    assert pa.types.is_decimal128(kind)
    return NaturalConverter(kind, to_decimal(kind))


def _expression(name: str, scale: int | None) -> str:
    column = 'r."{}"'.format(name.replace('"', '""'))
    if scale is None:
        return column
    # lc_monetary is C in this session: numeric is the stored number divided by 100.
    return f"round({column}::numeric * {Decimal(10) ** (2 - scale):f}, {scale})"

"""Short words for the tests of structured types: make a type, convert texts through a face, check its laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.registry import resolve


def base(name: str) -> PgType:
    """A base type of the catalogue."""
    return PgType(10, name)


def from_extension(name: str) -> PgType:
    """A base type that an extension installed in public."""
    return PgType(50_000, name, "public")


def enum(*labels: str, name: str = "mood", namespace: str = "inventory") -> PgType:
    """An enum of the user's."""
    return PgType(50_001, name, namespace, TypeKind.ENUM, labels=labels)


def domain(inner: PgType, modifier: int = -1, name: str = "d") -> PgType:
    """A domain over ``inner``."""
    return PgType(50_002, name, "inventory", TypeKind.DOMAIN, inner, modifier)


def array_of(inner: PgType) -> PgType:
    """The array type of ``inner``."""
    return PgType(50_003, f"_{inner.name}", inner.namespace, TypeKind.ARRAY, inner)


def codec_of(pg_type: PgType, modifier: int = -1, **options: Any) -> ColumnCodec:
    """The codec that the registry builds for a column of that type."""
    return resolve(Column("c", pg_type, modifier), TypeOptions(**options))


def event_of(pg_type: PgType, modifier: int = -1, **options: Any) -> EventConverter:
    """Its event face, which must be there."""
    event = codec_of(pg_type, modifier, **options).event
    assert event is not None
    return event


def values(convert: Convert, *texts: str | None) -> list[Any]:
    """The converted values of these texts; none of them may be bad."""
    converted = convert(pa.array(texts, pa.string()))
    assert bad(converted) == []
    return list(converted.values.to_pylist())


def bad_places(convert: Convert, *texts: str | None) -> list[int]:
    """Which of these texts cannot be held."""
    return bad(convert(pa.array(texts, pa.string())))


def bad(converted: Converted) -> list[int]:
    """Where ``bad`` is set; such values are null."""
    if converted.bad is None:
        return []
    places = [place for place, flag in enumerate(converted.bad.to_pylist()) if flag]
    assert all(converted.values[place].as_py() is None for place in places)
    return places


def obeys_laws(convert: Convert, arrow_type: pa.DataType, *texts: str | None) -> None:
    """Length, type, nulls, permutation, halves, slices and the empty batch, as codec.py promises them."""
    whole = pa.array(texts, pa.string())
    converted = convert(whole)
    converted.values.validate(full=True)
    assert converted.values.type == arrow_type
    expected = _pairs(converted)
    assert [value for value, text in zip(expected, texts, strict=True) if text is None] == [
        (repr(None), False) for text in texts if text is None
    ]
    assert convert(whole.slice(0, 0)).values.type == arrow_type
    for cut in range(len(texts) + 1):
        assert _pairs(convert(whole.slice(0, cut))) + _pairs(convert(whole.slice(cut))) == expected
    order = np.random.default_rng(7).permutation(len(texts))
    assert _pairs(convert(whole.take(pa.array(order)))) == [expected[place] for place in order]


def _pairs(converted: Converted) -> list[tuple[str, bool]]:
    flags = converted.bad.to_pylist() if converted.bad is not None else [False] * len(converted.values)
    return list(zip(map(repr, converted.values.to_pylist()), flags, strict=True))

"""The contract of a type: one object, two representations.

A column's values reach this package as PostgreSQL's own text (a ``pyarrow`` string array), whether they came by COPY or
in a pgoutput tuple. A ``ColumnCodec`` turns that text into

* the *natural* face: what the changelog, the checks and the lake hold;
* the *event* face: what Debezium's envelope holds, by the handling modes, with its Connect schema.

Laws, held by every codec and checked by tests/unit/types/test_laws.py: the length is kept; null in gives null out; the
result has the declared Arrow type; permuting rows permutes results; a batch equals the concatenation of its halves; an
empty batch and a sliced input work; nothing but ``Converted.bad`` reports an unreadable value (no exception, no value
in any message).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core.schema.connect import ConnectSchema


@dataclass(frozen=True, slots=True)
class Converted:
    """``values[N]`` of the declared type; ``bad[N]`` (bool, or None for none) marks values that the type cannot hold.

    A bad value is null in ``values``. In the natural representation its text goes to ``__rescued``, and where no server
    can have written it (``NaturalConverter.is_misfit``), or in the event representation,
    ``event.converting.failure.handling.mode`` decides whether to continue.
    """

    values: pa.Array
    bad: pa.BooleanArray | None = None


Convert = Callable[[pa.Array], Converted]


@dataclass(frozen=True, slots=True)
class NaturalConverter:
    """Text → the value a Spark or Delta reader expects.

    A bad value is either a true value that ``arrow_type`` has no room for (an infinite date, a numeric of 50 digits) or
    text that no server writes. ``is_misfit`` distinguishes them: string[M] of bad values → bool[M], true for the
    former. None where the type holds all its values, so that a bad one is always unreadable.
    """

    arrow_type: pa.DataType
    convert: Convert
    is_misfit: Callable[[pa.Array], pa.BooleanArray] | None = None


@dataclass(frozen=True, slots=True)
class EventConverter:
    """Text → the value Debezium's envelope holds.

    ``schema`` is the field's schema as for an optional column without default; the envelope sets ``optional`` and
    ``default`` by the column. ``arrow_type`` mirrors it: struct for struct, list for array, map for map, binary for
    bytes. ``fallback`` is the Python value that stands for null in a NOT NULL column without a default (Debezium's
    converter fallback; None where the type has none). ``unavailable`` is the Python value that stands for an unchanged
    TOAST value the server did not send, or None where no placeholder fits the schema (the field is then null).
    ``default_value`` parses a column's default expression to a Python value of ``arrow_type``, or returns None where
    Debezium finds no default. ``snapshot_convert`` stands in for ``convert`` on rows read by a query (op ``r``) where
    Debezium's JDBC path gives another value than its streaming path (dates before Christ and infinite dates); None
    where both paths agree. ``is_streamed`` is False where Debezium reads values in queries only: in the stream
    each is as NULL.
    """

    schema: ConnectSchema
    arrow_type: pa.DataType
    convert: Convert
    fallback: Any = None
    unavailable: Any = None
    default_value: Callable[[str], Any] = lambda expression: None
    snapshot_convert: Convert | None = None
    is_streamed: bool = True


@dataclass(frozen=True, slots=True)
class ColumnCodec:
    """Both faces of one column. ``event`` is None where Debezium leaves the column out of its events."""

    natural: NaturalConverter
    event: EventConverter | None

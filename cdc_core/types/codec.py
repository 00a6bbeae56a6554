"""The contract of a type: one object, two representations.

A column's values are passed to this package as PostgreSQL's own text (a ``pyarrow`` string array), both for COPY and
for pgoutput tuples. A ``ColumnCodec`` converts that text to

* the *natural* representation: used by the changelog, the checks and the lake;
* the *event* representation: used in Debezium's envelope, by the handling modes, with its Connect schema.

Properties of every codec, checked by tests/unit/types/test_laws.py: the length is preserved; null is converted to null;
the result has the declared Arrow type; permuting rows permutes results; a batch equals the concatenation of its halves;
an empty batch and a sliced input are supported; an unreadable value is only reported by ``Converted.bad`` (no
exception, no value in any message).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core.schema import ConnectSchema


@dataclass(frozen=True, slots=True)
class Converted:
    """``values[N]`` of the declared type; ``bad[N]`` (bool, or None for none) marks values it cannot represent.

    A bad value is null in ``values``. In the natural representation its text is stored in ``__rescued``, and if no
    server can have written it (``NaturalConverter.is_misfit``), or in the event representation,
    ``event.converting.failure.handling.mode`` decides whether to continue.
    """

    values: pa.Array
    bad: pa.BooleanArray | None = None


Convert = Callable[[pa.Array], Converted]


@dataclass(frozen=True, slots=True)
class NaturalConverter:
    """Converts text to the value that a Spark or Delta reader expects.

    A bad value is either a valid value that ``arrow_type`` cannot represent (an infinite date, a numeric of 50 digits)
    or text that no server writes. ``is_misfit`` distinguishes them: string[M] of bad values → bool[M], true for the
    former. None if the type can represent all its values, so that a bad one is always unreadable.
    """

    arrow_type: pa.DataType
    convert: Convert
    is_misfit: Callable[[pa.Array], pa.BooleanArray] | None = None


@dataclass(frozen=True, slots=True)
class EventConverter:
    """Converts text to the value in Debezium's envelope.

    ``schema`` is the field's schema as for an optional column without default; the envelope sets ``optional`` and
    ``default`` by the column. ``arrow_type`` corresponds to it: struct for struct, list for array, map for map, binary
    for bytes. ``fallback`` is the Python value that replaces null in a NOT NULL column without a default (Debezium's
    converter fallback; None if the type has none). ``unavailable`` is the Python value that replaces an unchanged TOAST
    value the server did not send, or None if no placeholder matches the schema (the field is then null).
    ``default_value`` parses a column's default expression to a Python value of ``arrow_type``, or returns None if
    Debezium finds no default. ``snapshot_convert`` is used instead of ``convert`` for rows read by a query (op ``r``)
    if Debezium's JDBC path returns another value than its streaming path (dates before Christ and infinite dates); None
    if both are equal. ``is_streamed`` is False if Debezium reads values in queries only: when streaming each is NULL.
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
    """Both representations of one column. ``event`` is None if Debezium leaves the column out of its events."""

    natural: NaturalConverter
    event: EventConverter | None

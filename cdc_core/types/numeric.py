"""numeric, with and without precision and scale.

The lake stores decimals of at most 38 digits; a value that cannot be represented exactly, NaN and the infinities are
rescued. In events, ``precise`` writes the unscaled integer: with the column's scale, or each value with its own if the
column declares none.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema import Column, ConnectSchema
from cdc_core.types import semantic
from cdc_core.types._kernels import unscaled_bytes, validity
from cdc_core.types._placeholder import placeholder_text
from cdc_core.types._slow_path import convert_with
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import DecimalHandlingMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin, misfits
from cdc_core.types.typmod import event_scale, numeric_precision_scale

_WIDEST = 38
_UNCONSTRAINED = pa.decimal128(_WIDEST, 18)
_VARIABLE = pa.struct([pa.field("scale", pa.int32(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
_VARIABLE_SCHEMA = ConnectSchema(
    "struct",
    optional=True,
    name=semantic.VARIABLE_SCALE_DECIMAL,
    version=1,
    doc="Variable scaled decimal",
    fields=(("scale", ConnectSchema("int32")), ("value", ConnectSchema("bytes"))),
)
_EXACT = Context(prec=_WIDEST, traps=[Inexact, InvalidOperation, Overflow])
_IS_MISFIT = misfits(r"-?[0-9]+(?:\.[0-9]+)?|NaN|-?Infinity")
_INT_DIGITS = 4000
_INTEGER = re.compile(r"-?[0-9]+")
_SPECIAL = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}


def natural_type(declared: tuple[int, int] | None) -> pa.Decimal128Type:
    """Return the decimal type that represents the column exactly, or as far as 38 digits allow."""
    if declared is None:
        return _UNCONSTRAINED
    precision, scale = declared
    places = min(max(scale, 0), _WIDEST)
    digits = max(precision - min(scale, 0), places)
    return pa.decimal128(min(digits, _WIDEST), places)


def cast_exact(text: pa.Array, arrow_type: pa.Decimal128Type) -> pa.Array:
    """Arrow's cast from decimal text, after a check of the number of digits.

    Arrow multiplies and parses in 128 bits and does not detect every overflow, so a longer text could result in a
    different number. Raises pa.ArrowInvalid if a row has more digits than the type on either side of the point.
    """
    places = arrow_type.scale
    whole = max(arrow_type.precision - places, 1)
    length = pc.binary_length(text)
    longest = pc.max(length).as_py() or 0
    if longest > min(whole, places or whole):
        point = pc.find_substring(text, ".")
        pointed = pc.greater_equal(point, 0)
        before = pc.subtract(pc.if_else(pointed, point, length), pc.starts_with(text, "-").cast(pa.int32()))
        after = pc.if_else(pointed, pc.subtract(pc.subtract(length, point), 1), 0)
        if (pc.max(before).as_py() or 0) > whole or (pc.max(after).as_py() or 0) > places:
            raise pa.ArrowInvalid("more digits than the decimal holds")
    return text.cast(arrow_type)


def to_decimal(arrow_type: pa.Decimal128Type) -> Convert:
    """Return the converter of plain decimal text to ``arrow_type``; values that would lose a digit are bad."""
    places = arrow_type.scale
    whole = max(arrow_type.precision - places, 1)
    common = rf"^-?[0-9]{{1,{whole}}}" + (rf"(?:\.[0-9]{{1,{places}}})?$" if places else "$")
    step, limit = Decimal(1).scaleb(-places), Decimal(10) ** (arrow_type.precision - places)

    def one(text: str) -> Decimal:
        number = Decimal(text)
        if not number.is_finite():
            raise ValueError("not a finite number")
        exact = number.quantize(step, context=_EXACT)
        if exact.copy_abs() >= limit:  # abs() would round
            raise ValueError("too many digits")
        return exact

    return lambda text: convert_with("numeric", text, lambda some: cast_exact(some, arrow_type), common, one)


def unscaled(text: str, scale: int) -> int:
    """Return the number as an integer of 10**-scale; ValueError if that is not exact or it is not a plain number."""
    whole, _, fraction = text.partition(".")
    shift = scale - len(fraction)
    digits = whole + fraction
    # Python does not parse integers with more digits than this; PostgreSQL has numerics of 131,072.
    number = int(digits) if len(digits) <= _INT_DIGITS or not _INTEGER.fullmatch(digits) else int(Decimal(digits))
    if shift >= 0:
        return number * _ten(shift)
    number, rest = divmod(number, _ten(-shift))
    if rest:
        raise ValueError("more decimals than the scale has")
    return number


def _ten(power: int) -> int:
    return int(10**power)


def java_bytes(number: int) -> bytes:
    """BigInteger.toByteArray: two's complement, big-endian, minimal."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _fixed(scale: int) -> Convert:
    places = min(scale, _WIDEST)
    arrow_type = pa.decimal128(_WIDEST, places)
    common = rf"^-?[0-9]{{1,{max(_WIDEST - places, 1)}}}" + (rf"(?:\.[0-9]{{1,{places}}})?$" if places else "$")

    def vector(text: pa.Array) -> pa.Array:
        if text.null_count == len(text):
            return pa.nulls(len(text), pa.binary())
        if scale > _WIDEST:
            raise pa.ArrowInvalid("no Arrow decimal has that scale")
        return unscaled_bytes(cast_exact(text, arrow_type))

    def one(text: str) -> bytes:
        return java_bytes(unscaled(text, scale))

    return lambda text: convert_with("numeric", text, vector, common if scale <= _WIDEST else "^$", one)


def to_variable(text: pa.Array) -> Converted:
    """Return each value's own scale and unscaled bytes, without trailing zeros of the fraction."""
    return convert_with("numeric", text, _variable_vector, r"^-?[0-9]{1,20}(?:\.[0-9]{1,18})?$", _variable_one)


def _variable_vector(text: pa.Array) -> pa.Array:
    point = pc.find_substring(text, ".")
    fractional = pc.greater_equal(point, 0)
    if pc.any(fractional).as_py():
        text = pc.if_else(fractional, pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), "."), text)
        scale = pc.subtract(pc.subtract(pc.binary_length(text), point), 1)
        scale = pc.if_else(pc.and_(fractional, pc.greater(scale, 0)), scale, 0)
        text = pc.replace_substring(text, ".", "", max_replacements=1)
    else:
        scale = pc.multiply(point, 0)
    value = unscaled_bytes(cast_exact(text, pa.decimal128(_WIDEST, 0)))
    valid = validity(text)
    mask = None if valid is None else pa.array(~valid)
    scale = pc.fill_null(scale.cast(pa.int32()), 0)
    return pa.StructArray.from_arrays([scale, pc.fill_null(value, b"")], fields=list(_VARIABLE), mask=mask)


def _variable_one(text: str) -> dict[str, Any]:
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    scale = len(text.partition(".")[2])
    return {"scale": scale, "value": java_bytes(unscaled(text, scale))}


def to_scaled_text(places: int) -> Convert:
    """Return the server's notation of integers with this number of zeros after the point."""
    zeros = "." + "0" * places

    def convert(text: pa.Array) -> Converted:
        is_whole = pc.match_substring_regex(text, "^-?[0-9]+$")
        return to_text(pc.if_else(is_whole, pc.binary_join_element_wise(text, zeros, ""), text))

    return convert


def to_text(text: pa.Array) -> Converted:
    """Return the server's plain notation; NaN and the infinities by Debezium's names."""
    special = pc.is_in(text, pa.array(list(_SPECIAL)))
    if not pc.any(special).as_py():
        return Converted(text)
    for name, written in _SPECIAL.items():
        text = pc.if_else(pc.equal(text, name), written, text)
    return Converted(text)


def to_double(text: pa.Array) -> Converted:
    """Return the nearest float64, including NaN and the infinities."""
    common = r"^(?:-?[0-9]+(?:\.[0-9]+)?|-?Infinity|NaN)$"
    return convert_with("numeric", text, lambda some: some.cast(pa.float64()), common, float)


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """A decimal in the lake; Decimal, VariableScaleDecimal, double or text in events."""
    declared = numeric_precision_scale(column.modifier)
    natural_arrow = natural_type(declared)
    natural = NaturalConverter(natural_arrow, to_decimal(natural_arrow), _IS_MISFIT)
    return ColumnCodec(natural, _event(declared, options))


def _event(declared: tuple[int, int] | None, options: TypeOptions) -> EventConverter:
    mode = options.decimal_handling_mode
    if mode is DecimalHandlingMode.DOUBLE:
        return EventConverter(semantic.plain("double"), pa.float64(), to_double, fallback=0.0)
    precision, scale = declared or (0, 0)
    is_negative, scale = scale < 0, event_scale(scale)
    if mode is DecimalHandlingMode.STRING:
        zero = f"{Decimal(0):.{scale}f}"
        convert = to_scaled_text(scale) if is_negative else to_text
        return EventConverter(semantic.plain("string"), pa.string(), convert, zero, placeholder_text(options))
    if declared is None:
        return EventConverter(_VARIABLE_SCHEMA, _VARIABLE, to_variable, fallback={"scale": 0, "value": b"\0"})
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    schema = semantic.logical("bytes", semantic.CONNECT_DECIMAL, parameters)
    return EventConverter(schema, pa.binary(), _fixed(scale), fallback=b"\0")


RULES: tuple[TypeRule, ...] = (builtin("numeric", build, "numeric"),)

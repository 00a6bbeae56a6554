"""Options of how values are written into events: the handling modes, each member as in Debezium 3.6.3."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.option import PropertyStatus, at_least, option

PLACEHOLDER = "__debezium_unavailable_value"


class FailureHandlingMode(StrEnum):
    """``fail``: stop. ``warn``: continue without it and log a warning. ``skip``: continue without it."""

    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"


class DecimalHandlingMode(StrEnum):
    """``precise``: Connect's Decimal, VariableScaleDecimal without scale. ``double``: float64. ``string``: text."""

    PRECISE = "precise"
    DOUBLE = "double"
    STRING = "string"


class TimePrecisionMode(StrEnum):
    """How date, time and timestamp columns are written.

    ``adaptive``: the unit follows the column's precision. ``adaptive_time_microseconds``: the same, but time is always
    microseconds. ``connect``: Connect's own types, milliseconds. ``isostring``: ISO 8601 text. ``microseconds`` and
    ``nanoseconds``: always that unit.
    """

    ADAPTIVE = "adaptive"
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    CONNECT = "connect"
    ISOSTRING = "isostring"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


class IntervalHandlingMode(StrEnum):
    """``numeric``: microseconds, a month counted as 365.25/12 days. ``string``: ``P1Y2M3DT4H5M6.78S``, exact."""

    NUMERIC = "numeric"
    STRING = "string"


class HstoreHandlingMode(StrEnum):
    """``json``: the text of a JSON object. ``map``: a map of strings."""

    JSON = "json"
    MAP = "map"


class BinaryHandlingMode(StrEnum):
    """``bytes``: unchanged. The others: text in that encoding."""

    BYTES = "bytes"
    BASE64 = "base64"
    BASE64_URL_SAFE = "base64-url-safe"
    HEX = "hex"


def parse_placeholder(text: str) -> str:
    """Parse a text, or bytes as ``hex:`` and pairs of hexadecimal digits."""
    if text.startswith("hex:"):
        try:
            bytes.fromhex(text[4:])
        except ValueError:
            raise ValueError("a text, or hex: and pairs of hexadecimal digits") from None
    return text


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """Options of the event representation. The natural representation does not depend on them."""

    decimal_handling_mode: DecimalHandlingMode = option(
        "decimal.handling.mode", DecimalHandlingMode.PRECISE, "How numeric and money columns are written into events."
    )
    time_precision_mode: TimePrecisionMode = option(
        "time.precision.mode", TimePrecisionMode.ADAPTIVE, "How date, time and timestamp columns are written."
    )
    interval_handling_mode: IntervalHandlingMode = option(
        "interval.handling.mode", IntervalHandlingMode.NUMERIC, "How interval columns are written."
    )
    hstore_handling_mode: HstoreHandlingMode = option(
        "hstore.handling.mode", HstoreHandlingMode.JSON, "How hstore columns are written."
    )
    binary_handling_mode: BinaryHandlingMode = option(
        "binary.handling.mode", BinaryHandlingMode.BYTES, "How bytea columns and logical messages are written."
    )
    money_fraction_digits: int = option(
        "money.fraction.digits",
        2,
        "Number of fraction digits of money columns in Connect's Decimal.",
        parse=at_least(0),
    )
    include_unknown_datatypes: bool = option(
        "include.unknown.datatypes",
        False,
        "Whether columns of a type without a converter are included in events, as opaque bytes in the binary "
        "handling mode.",
    )
    unavailable_value_placeholder: str = option(
        "unavailable.value.placeholder",
        PLACEHOLDER,
        "Placeholder in events for an unchanged TOASTed value that the server did not send; hex:… gives it as bytes.",
        parse=parse_placeholder,
        aliases=("toasted.value.placeholder",),
    )
    converters: tuple[str, ...] = option(
        "converters",
        (),
        "Names of Debezium's custom converters.",
        status=PropertyStatus.IGNORED,
        reason="it names a Java class, which wal2lake cannot load",
    )
    converters_ignored: tuple[str, ...] = option(
        "wal2lake.converters.ignored",
        (),
        "Those of converters without which a run is to start: it refuses to start with others, because the values of "
        "their columns would be those that Debezium writes without the converter.",
    )

    @property
    def unconfirmed_converters(self) -> list[str]:
        """Converters that the file has, without a word that a run may start without them."""
        return [name for name in self.converters if name not in self.converters_ignored]

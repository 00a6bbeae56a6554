"""The plug-in's values → PostgreSQL's text of them, which the converters of types take from every stream.

The plug-in sends numbers for some types: days and microseconds since 1970, money in hundredths, times with a time zone
in UTC. Text is made for whole columns; years before 1 and after 9999 one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DAY_US = 86_400_000_000
_UNIX_TO_POSTGRES_DAYS = 10_957
# The plug-in adds the days between the epochs to infinity, too, and the sum wraps around in 32 bits.
_DATE_INFINITY = -(2**31) - 1 + _UNIX_TO_POSTGRES_DAYS
_DATE_MINUS_INFINITY = -(2**31) + _UNIX_TO_POSTGRES_DAYS
_TIME_INFINITY, _TIME_MINUS_INFINITY = 2**63 - 1, -(2**63)
# 4714-11-24 BC, PostgreSQL's first day: a lower number is an int64 overflow.
_FIRST_US = -210_866_803_200_000_000
_FIRST_PLAIN_DAY, _LAST_PLAIN_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31

TextOf = Callable[[np.ndarray], pa.Array]


def integers(values: np.ndarray) -> pa.Array:
    """int64[N] → text."""
    return pa.array(values).cast(pa.string())


def booleans(values: np.ndarray) -> pa.Array:
    """int64[N] → t or f."""
    return pc.if_else(pa.array(values != 0), "t", "f")


def floats(values: np.ndarray) -> pa.Array:
    """float32[N] or float64[N] → the shortest text that is read back as the same number."""
    text = pa.array(values).cast(pa.string())
    if np.isfinite(values).all():
        return text
    text = pc.if_else(pa.array(np.isnan(values)), "NaN", text)
    text = pc.if_else(pa.array(values == np.inf), "Infinity", text)
    return pc.if_else(pa.array(values == -np.inf), "-Infinity", text)


def dates(values: np.ndarray) -> pa.Array:
    """Days since 1970-01-01, int64[N] → text."""
    plain = (values >= _FIRST_PLAIN_DAY) & (values <= _LAST_PLAIN_DAY)
    text = pa.array(np.where(plain, values, 0).astype(np.int32), pa.date32()).cast(pa.string())
    return text if plain.all() else _replaced(text, ~plain, values, _far_date)


def timestamps(values: np.ndarray) -> pa.Array:
    """Microseconds since 1970-01-01T00:00:00, int64[N] → text."""
    days = values // _DAY_US
    plain = (days >= _FIRST_PLAIN_DAY) & (days <= _LAST_PLAIN_DAY)
    text = _trimmed(pa.array(np.where(plain, values, 0), pa.timestamp("us")).cast(pa.string()))
    return text if plain.all() else _replaced(text, ~plain, values, _far_timestamp)


def zoned_timestamps(values: np.ndarray) -> pa.Array:
    """As ``timestamps``, with time zone: in UTC."""
    text = timestamps(values)
    plain = pc.binary_join_element_wise(text, "+00", "")
    # The era follows the zone, and infinity has none.
    plain = pc.if_else(pc.ends_with(text, " BC"), pc.replace_substring(text, " BC", "+00 BC"), plain)
    return pc.if_else(pc.ends_with(text, "infinity"), text, plain)


def times(values: np.ndarray) -> pa.Array:
    """Microseconds since midnight, int64[N] → text; 24:00:00 is valid."""
    is_end = values == _DAY_US
    inside = np.where((values >= 0) & ~is_end, values % _DAY_US, 0)
    text = _trimmed(pa.array(inside, pa.time64("us")).cast(pa.string()))
    return pc.if_else(pa.array(is_end), "24:00:00", text) if is_end.any() else text


def zoned_times(values: np.ndarray) -> pa.Array:
    """Microseconds since midnight in UTC, float64[N], possibly of the day before or after → text in UTC."""
    whole = np.where(np.isfinite(values), values, 0.0).astype(np.int64)
    inside = np.where(whole == _DAY_US, whole, whole % _DAY_US)
    return pc.binary_join_element_wise(times(inside), "+00", "")


def money(values: np.ndarray) -> pa.Array:
    """Hundredths, int64[N] → decimal text."""
    whole = pa.array(values).cast(pa.decimal128(38, 0))
    cents = pa.Array.from_buffers(pa.decimal128(38, 2), len(whole), whole.buffers())
    return cents.cast(pa.string())


def points(x: np.ndarray, y: np.ndarray) -> pa.Array:
    """Coordinates, float64[N] each → (x,y)."""
    return pc.binary_join_element_wise("(", floats(x), ",", floats(y), ")", "")


def hexadecimal(values: pa.Array) -> pa.Array:
    r"""binary[N] → bytea's text, \x and two digits a byte."""
    _, offsets, content = values.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.zeros(0, dtype=np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    octets = data[ends[0] : ends[-1]]
    digits = np.empty((len(octets), 2), dtype=np.uint8)
    letters = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    digits[:, 0], digits[:, 1] = letters[octets >> 4], letters[octets & 15]
    doubled = ((ends - ends[0]) * 2).astype(np.int32)
    text = pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(doubled), pa.py_buffer(digits)])
    return pc.binary_join_element_wise("\\x", text, "")


def _trimmed(text: pa.Array) -> pa.Array:
    """Cut off zeros at the end of fractions, as the server does."""
    return pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")


def _replaced(text: pa.Array, rare: np.ndarray, values: np.ndarray, one: Callable[[int], str]) -> pa.Array:
    # row-wise: infinity, and years without exactly four digits
    texts = pa.array([one(int(value)) for value in values[rare]], pa.string())
    return pc.replace_with_mask(text, pa.array(rare), texts)


def _far_date(days: int) -> str:
    if days == _DATE_INFINITY:
        return "infinity"
    if days == _DATE_MINUS_INFINITY:
        return "-infinity"
    date, era = _calendar(days)
    return f"{date}{era}"


def _far_timestamp(us: int) -> str:
    if us == _TIME_INFINITY:
        return "infinity"
    if us == _TIME_MINUS_INFINITY:
        return "-infinity"
    if us < _FIRST_US:
        us += 2**64
    days, rest = divmod(us, _DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    date, era = _calendar(days)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{date} {clock}{f'.{fraction:06d}'.rstrip('0') if fraction else ''}{era}"


def _calendar(days: int) -> tuple[str, str]:
    """Return a day of the proleptic Gregorian calendar as text, and the suffix of years before 1."""
    date = np.datetime64(days, "D")
    month = date.astype("datetime64[M]")
    year = int(month.astype("datetime64[Y]").astype(np.int64)) + 1970
    number = int(month.astype(np.int64)) % 12 + 1
    day = int((date - month.astype("datetime64[D]")).astype(np.int64)) + 1
    shown = year if year > 0 else 1 - year
    return f"{shown:04d}-{number:02d}-{day:02d}", "" if year > 0 else " BC"

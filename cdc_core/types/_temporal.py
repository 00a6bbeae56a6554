"""Dates and timestamps: converts PostgreSQL's ISO text to microseconds and days, and to Java's ISO text.

The calendar is the proleptic Gregorian one on both sides, so the server's text is unambiguous. The vector path supports
the years 0001 to 9999; the functions on single values support all of PostgreSQL's, 4714 BC to 294276.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bytes, Ints
from cdc_core.types._kernels import put_digits

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
# PGStatement's constants for infinite timestamps, interpreted as microseconds, as in Debezium.
PLUS_INFINITY_US = 9_223_372_036_825_200_000
MINUS_INFINITY_US = -9_223_372_036_832_400_000
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
# The range of a lake's timestamp: 0001-01-01 to 9999-12-31, as in Spark.
LAKE_MIN_US = -62_135_596_800_000_000
LAKE_MAX_US = 253_402_300_799_999_999

# Dates and times of day as printed by the server, as regexes.
DAY_TEXT = r"[0-9]{4,}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
CLOCK_TEXT = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)( BC)?")
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_OFFSET = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_MOMENT = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-][\d:]+)?( BC)?")
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# ---- single values -------------------------------------------------------------------------------------------------


def days_of(year: int, month: int, day: int) -> int:
    """Return days from 1970-01-01 to a proleptic Gregorian date; year 0 is 1 BC. Raises ValueError if invalid."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] + (leap and month == 2):
        raise ValueError("no such date")
    # Years counted from March, so that the leap day is last (400-year eras of 146097 days).
    year -= month <= 2
    era, of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + day_of_year - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    """Return (year, month, day) of a day number: the inverse of ``days_of``."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * of_era + of_era // 4 - of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + of_era + (month <= 2), month, day


def parse_date(text: str) -> tuple[int, int, int]:
    """Return (proleptic year, month, day) of ``YYYY-MM-DD`` with an optional `` BC``."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("expected YYYY-MM-DD")
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    return (1 - year if found[4] else year), month, day


def parse_time(text: str) -> int:
    """Return microseconds since midnight, including 24:00:00."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("expected HH:MM:SS with up to six decimals")
    hours, minutes, seconds = int(found[1]), int(found[2]), int(found[3])
    value = (hours * 3600 + minutes * 60 + seconds) * SECOND_US + int((found[4] or "0").ljust(6, "0"))
    if minutes > 59 or seconds > 59 or value > DAY_US:
        raise ValueError("no such time")
    return value


def parse_offset(text: str) -> int:
    """Return microseconds east of Greenwich of ``+HH``, ``+HH:MM`` or ``+HH:MM:SS``."""
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise ValueError("expected an offset")
    size = int(found[2]) * 3600 + int(found[3] or 0) * 60 + int(found[4] or 0)
    return (-size if found[1] == "-" else size) * SECOND_US


def parse_moment(text: str) -> int:
    """Return microseconds since 1970-01-01 of a timestamp with or without offset; infinities as Debezium's constants.

    Unbounded: years from 294247 on exceed 64 bits.
    """
    if text in ("infinity", "-infinity"):
        return PLUS_INFINITY_US if text == "infinity" else MINUS_INFINITY_US
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("expected YYYY-MM-DD HH:MM:SS")
    days = days_of(*parse_date(match[1] + (match[4] or "")))
    return days * DAY_US + parse_time(match[2]) - (parse_offset(match[3]) if match[3] else 0)


def iso_date(year: int, month: int, day: int) -> str:
    """Return Java's ISO_LOCAL_DATE: at least four digits, a plus sign past 9999, a minus before year 0."""
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def iso_moment(us: int, fraction: int | None) -> str:
    """Return ``YYYY-MM-DDTHH:MM:SS[.f]Z``; ``fraction`` as for ``moment_text``."""
    days, rest = divmod(us, DAY_US)
    seconds, micros = divmod(rest, SECOND_US)
    digits = f"{micros:06d}"
    digits = digits.rstrip("0") if fraction is None else digits[:fraction]
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{iso_date(*date_of(days))}T{clock}{'.' + digits if digits else ''}Z"


def wrap64(value: int) -> int:
    """Return the value of Java's long after an overflow."""
    return (value - INT64_MIN) % 2**64 + INT64_MIN


# ---- vectors -------------------------------------------------------------------------------------------------------


def times_us(text: pa.Array) -> Ints:
    """Return microseconds since midnight of ``HH:MM:SS[.f]``; with an offset, in UTC, possibly negative.

    Nulls:  0

    Raises: pa.ArrowInvalid for 24:00:00 and anything else that Arrow's parser does not read
    """
    # Arrow parses timestamps, not times, so a date is prepended.
    return _micros(pc.binary_join_element_wise("1970-01-01", text, " ").cast(pa.timestamp("us")))


def zoned_times_us(text: pa.Array) -> Ints:
    """As ``times_us``, for times with an offset: microseconds since midnight in UTC, 0 to a day."""
    moments = pc.binary_join_element_wise("1970-01-02", text, " ").cast(pa.timestamp("us", "UTC"))
    result: Ints = _micros(moments) % DAY_US
    return result


def moments_us(text: pa.Array, zoned: bool) -> Ints:
    """Return microseconds since 1970-01-01 of timestamps of the years 0001 to 9999; nulls are 0."""
    return _micros(text.cast(pa.timestamp("us", "UTC") if zoned else pa.timestamp("us")))


def _micros(moments: pa.Array) -> Ints:
    values: Ints = pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return values


_TEMPLATE = np.frombuffer(b"0000-00-00T00:00:00.000000Z", dtype=np.uint8)


def moment_text(us: Ints, fraction: int | None) -> tuple[Bytes, Ints]:
    """Return ``YYYY-MM-DDTHH:MM:SS[.f]Z`` for the years 0000 to 9999, as a character matrix and its lengths.

    ``fraction`` decimals are written; None writes as many as the value has.
    """
    moments = us.view("datetime64[us]")
    days = moments.astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    matrix = np.repeat(_TEMPLATE[None, :], len(us), axis=0)
    put_digits(matrix, 0, months.astype("datetime64[Y]").astype(np.int64) + 1970, 4)
    put_digits(matrix, 5, months.astype(np.int64) % 12 + 1, 2)
    put_digits(matrix, 8, (days - months.astype("datetime64[D]")).astype(np.int64) + 1, 2)
    return matrix, _put_time(matrix, 11, (moments - days.astype("datetime64[us]")).astype(np.int64), fraction)


def time_text(us: Ints) -> tuple[Bytes, Ints]:
    """Return ``HH:MM:SS[.f]Z`` of times within a day, with as few decimals as the value requires."""
    matrix = np.repeat(_TEMPLATE[None, 11:], len(us), axis=0)
    return matrix, _put_time(matrix, 0, us, None)


def _put_time(matrix: Bytes, column: int, us: Ints, fraction: int | None) -> Ints:
    """Write the time of day and its Z; returns the rows' lengths."""
    seconds = us // SECOND_US
    micros = us - seconds * SECOND_US
    minutes = seconds // 60
    hours = minutes // 60
    put_digits(matrix, column, hours, 2)
    put_digits(matrix, column + 3, minutes - hours * 60, 2)
    put_digits(matrix, column + 6, seconds - minutes * 60, 2)
    if micros.any():
        put_digits(matrix, column + 9, micros, 6)
    if fraction is None:
        digits = np.full(len(us), 6, dtype=np.int64)
        for power in (10, 100, 1_000, 10_000, 100_000):
            digits -= micros % power == 0
        digits[micros == 0] = 0
    else:
        digits = np.full(len(us), fraction, dtype=np.int64)
    ends: npt.NDArray[np.int64] = column + 8 + digits + (digits > 0)
    matrix[np.arange(len(us)), ends] = ord("Z")
    lengths: Ints = ends + 1
    return lengths

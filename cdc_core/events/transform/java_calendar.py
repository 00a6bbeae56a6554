"""Java's default calendar in UTC: Julian before 1582-10-15, Gregorian from then on, any year, with eras."""

from __future__ import annotations

from dataclasses import dataclass

_DAY = 86_400_000
# Days since 1970-01-01 of 1582-10-15, the first of the Gregorian calendar.
_CUTOVER = -141_427
_CUTOVER_YEAR = 1582


@dataclass(frozen=True, slots=True)
class Moment:
    """A time's fields. ``year`` counts through: 0 is 1 BC; ``weekday`` 1 is Monday; ``millis`` is of the second."""

    year: int
    month: int
    day: int
    day_of_year: int
    weekday: int
    hour: int
    minute: int
    second: int
    millis: int

    @classmethod
    def of(cls, millis: int) -> Moment:
        """Return the fields of a time in milliseconds since 1970-01-01T00:00:00Z."""
        days, rest = divmod(millis, _DAY)
        seconds, milli = divmod(rest, 1000)
        year, month, day = _date(days)
        of_year = days - days_of(year, 1, 1) + 1
        clock = (seconds // 3600, seconds // 60 % 60, seconds % 60, milli)
        return cls(year, month, day, of_year, (days + 3) % 7 + 1, *clock)


def days_of(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01. Lenient, as in Java: month 13 is the next January, day 0 the last of a month."""
    years, months = divmod(month - 1, 12)
    year, month = year + years, months + 1
    julian = _julian_days(year, month) + day - 1
    if year < _CUTOVER_YEAR:
        return julian
    gregorian = _gregorian_days(year, month) + day - 1
    return gregorian if gregorian >= _CUTOVER else julian


def day_of_year(year: int, day: int) -> int:
    """Return days since 1970-01-01 of the n-th day of a year."""
    return days_of(year, 1, 1) + day - 1


def _from_march(year: int, month: int) -> tuple[int, int]:
    """Return a year that begins in March, and the days before the month in it."""
    return year - (month < 3), (153 * ((month + 9) % 12) + 2) // 5


def _gregorian_days(year: int, month: int) -> int:
    since, before = _from_march(year, month)
    return 365 * since + since // 4 - since // 100 + since // 400 + before - 719_468


def _julian_days(year: int, month: int) -> int:
    since, before = _from_march(year, month)
    return 365 * since + since // 4 + before - 719_470


def _date(days: int) -> tuple[int, int, int]:
    """Return year, month and day."""
    if days >= _CUTOVER:
        era, of_era = divmod(days + 719_468, 146_097)
        since = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        left = of_era - (365 * since + since // 4 - since // 100)
        since += 400 * era
    else:
        four, left = divmod(days + 719_470, 1461)
        within = min(left // 365, 3)
        since, left = 4 * four + within, left - 365 * within
    month = (5 * left + 2) // 153
    day = left - (153 * month + 2) // 5 + 1
    return since + (month >= 10), (month + 2) % 12 + 1, day

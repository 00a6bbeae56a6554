"""Converts dates of the Julian calendar, which Java's default calendar uses before 1582-10-15, to the Gregorian one."""

from __future__ import annotations


def from_julian(text: str) -> str:
    """Interpret the day of a timestamp text as Julian and return it as Gregorian.

    ``0044-03-15 12:00:00 BC`` becomes ``0044-03-13 12:00:00 BC``. Uses the Julian day number (Richards' formulas).
    """
    day, _, rest = text.removesuffix(" BC").partition(" ")
    year, month, number = (int(part) for part in day.split("-"))
    if text.endswith(" BC"):
        year = 1 - year
    year, month, number = _gregorian(_julian_day(year, month, number))
    era = " BC" if year < 1 else ""
    return f"{1 - year if year < 1 else year:04d}-{month:02d}-{number:02d} {rest}{era}".replace("  ", " ")


def _julian_day(year: int, month: int, day: int) -> int:
    early = (14 - month) // 12
    years, months = year + 4800 - early, month + 12 * early - 3
    return day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32083


def _gregorian(number: int) -> tuple[int, int, int]:
    centuries, rest = divmod(4 * (number + 32044) + 3, 146097)
    rest //= 4
    years = (4 * rest + 3) // 1461
    rest -= 1461 * years // 4
    months = (5 * rest + 2) // 153
    day = rest - (153 * months + 2) // 5 + 1
    return 100 * centuries + years - 4800 + months // 10, months + 3 - 12 * (months // 10), day

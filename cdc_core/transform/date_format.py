"""Java's SimpleDateFormat in UTC and English: patterns of letters, for writing and reading times.

Days before 1582-10-15 are of the Julian calendar there; this module writes and reads the years 1583 to 9999 only and
raises ValueError for others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cdc_core.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime(1583, 1, 1, tzinfo=UTC)
_MONTHS = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def _padded(number: int, width: int) -> str:
    return str(number).rjust(width, "0")


def _year(at: datetime, width: int) -> str:
    return _padded(at.year % 100, 2) if width == 2 else _padded(at.year, width)


def _month(at: datetime, width: int) -> str:
    if width >= 4:
        return _MONTHS[at.month - 1]
    return _MONTHS[at.month - 1][:3] if width == 3 else _padded(at.month, width)


def _day_name(at: datetime, width: int) -> str:
    return _DAYS[at.weekday()] if width >= 4 else _DAYS[at.weekday()][:3]


_LETTERS: dict[str, Callable[[datetime, int], str]] = {
    "G": lambda at, width: "AD",
    "y": _year,
    "u": lambda at, width: _padded(at.isoweekday(), width),
    "M": _month,
    "L": _month,
    "d": lambda at, width: _padded(at.day, width),
    "D": lambda at, width: _padded(at.timetuple().tm_yday, width),
    "E": _day_name,
    "a": lambda at, width: "AM" if at.hour < 12 else "PM",
    "H": lambda at, width: _padded(at.hour, width),
    "k": lambda at, width: _padded(at.hour or 24, width),
    "K": lambda at, width: _padded(at.hour % 12, width),
    "h": lambda at, width: _padded(at.hour % 12 or 12, width),
    "m": lambda at, width: _padded(at.minute, width),
    "s": lambda at, width: _padded(at.second, width),
    "S": lambda at, width: _padded(at.microsecond // 1000, width),
    "z": lambda at, width: "Coordinated Universal Time" if width >= 4 else "UTC",
    "Z": lambda at, width: "+0000",
    "X": lambda at, width: "Z",
}
_NUMBERS = {"y": "year", "M": "month", "d": "day", "H": "hour", "h": "hour", "K": "hour", "k": "hour"}
_NUMBERS |= {"m": "minute", "s": "second", "S": "millis", "D": "dayofyear"}
_ZONE = r"(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2}|[+-]\d{2})"


class DateFormat:
    """One pattern. ``name`` is the property that contains it, for errors."""

    def __init__(self, pattern: str, name: str) -> None:
        self._parts: list[tuple[str, int]] = []
        at = 0
        for match in _TOKEN.finditer(pattern):
            if match.start() != at:
                break
            at = match.end()
            self._parts.append(self._part(match, name))
        if at != len(pattern):
            raise ConfigError(f"{name} is {pattern!r}: a quote is not closed.")
        self.pattern = pattern
        self._reader: re.Pattern[str] | None = None

    def _part(self, match: re.Match[str], name: str) -> tuple[str, int]:
        if match[2]:
            if match[2] not in _LETTERS:
                raise ConfigError(f"{name} uses the letter {match[2]}, which wal2lake cannot format.")
            return match[2], len(match[0])
        quoted = match[1]
        literal = match[0] if quoted is None else (quoted.replace("''", "'") or "'")
        return literal, 0

    def text(self, millis: int) -> str:
        """Return a time, in milliseconds since 1970-01-01T00:00:00Z, as text. Raises ValueError."""
        at = _EPOCH + timedelta(milliseconds=millis) if abs(millis) < 1 << 48 else _EPOCH.replace(year=1)
        if at < _FIRST:
            raise ValueError("a time before 1583 or after 9999")
        return "".join(_LETTERS[part](at, width) if width else part for part, width in self._parts)

    def millis(self, text: str) -> int:
        """Return the time in milliseconds since 1970-01-01T00:00:00Z. Raises ValueError.

        As in Java, text after the match is ignored.
        """
        if self._reader is None:
            self._reader = re.compile(self._expression())
        match = self._reader.match(text)
        if match is None:
            raise ValueError(f"it does not match {self.pattern}")
        return self._time({name: value for name, value in match.groupdict().items() if value is not None})

    def _expression(self) -> str:
        out, seen = [], set()
        for index, (part, width) in enumerate(self._parts):
            if not width:
                out.append(re.escape(part))
                continue
            # As in Java a number ends at its width only where another number follows.
            follows = index + 1 < len(self._parts) and _is_number(*self._parts[index + 1])
            if part in "ML" and width >= 3:
                body = "|".join([*_MONTHS, *(one[:3] for one in _MONTHS)])
                out.append(f"(?P<monthname>(?i:{body}))")
            elif part == "E":
                out.append("(?i:" + "|".join([*_DAYS, *(one[:3] for one in _DAYS)]) + ")")
            elif part == "a":
                out.append("(?P<half>(?i:AM|PM))")
            elif part in "zZX":
                out.append(_ZONE)
            elif part == "G":
                out.append("AD")
            else:
                name = _NUMBERS.get("M" if part == "L" else part, "")
                digits = rf"\d{{{width}}}" if follows else r"\d+"
                out.append(digits if not name or name in seen else f"(?P<{name}>{digits})")
                seen.add(name)
        return "".join(out)

    def _time(self, found: dict[str, str]) -> int:
        year = int(found.get("year", "1970"))
        if len(found.get("year", "")) == 2:
            # A two-digit year is within 80 years before and 20 years after now.
            now = datetime.now(UTC).year
            year += (now - 80) // 100 * 100
            year += 100 if year < now - 80 else 0
        month = int(found.get("month", "1"))
        if "monthname" in found:
            start = found["monthname"].lower()[:3]
            month = next(at for at, one in enumerate(_MONTHS, 1) if one.lower().startswith(start))
        day = datetime(year, 1, 1, tzinfo=UTC)
        if not 1583 <= year <= 9999:
            raise ValueError("a year before 1583 or after 9999")
        if "month" in found or "monthname" in found or "day" in found:
            # Java's reading is lenient: month 13 is the next January, the day after January 31 is in February.
            years, months = divmod(month - 1, 12)
            day = datetime(year + years, months + 1, 1, tzinfo=UTC) + timedelta(days=int(found.get("day", "1")) - 1)
        elif "dayofyear" in found:
            day += timedelta(days=int(found["dayofyear"]) - 1)
        hour = int(found.get("hour", "0"))
        if "half" in found:
            hour = hour % 12 + (12 if found["half"].upper() == "PM" else 0)
        elif hour == 24 and any(part == "k" for part, _ in self._parts):
            hour = 0
        day += timedelta(hours=hour, minutes=int(found.get("minute", "0")), seconds=int(found.get("second", "0")))
        day += timedelta(milliseconds=int(found.get("millis", "0"))) - _offset(found.get("zone", "Z"))
        return (day - _EPOCH) // timedelta(milliseconds=1)


def _is_number(part: str, width: int) -> bool:
    return bool(width) and (width <= 2 if part in "ML" else part in "yudDHkKhmsS")


def _offset(zone: str) -> timedelta:
    if zone in ("Z", "UTC", "GMT"):
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -size if zone[0] == "-" else size

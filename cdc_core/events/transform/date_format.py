"""Java's SimpleDateFormat in UTC and English: patterns of letters, for writing and reading times."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from cdc_core.errors import ConfigError
from cdc_core.events.transform.java_calendar import Moment, day_of_year, days_of

_MONTHS = (
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)
_DAY = 86_400_000
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def _padded(number: int, width: int) -> str:
    return str(number).rjust(width, "0")


def _year(at: Moment, width: int) -> str:
    year = at.year if at.year > 0 else 1 - at.year
    return _padded(year % 100, 2) if width == 2 else _padded(year, width)


def _month(at: Moment, width: int) -> str:
    if width >= 4:
        return _MONTHS[at.month - 1]
    return _MONTHS[at.month - 1][:3] if width == 3 else _padded(at.month, width)


def _day_name(at: Moment, width: int) -> str:
    name = _DAYS[at.weekday - 1]
    return name if width >= 4 else name[:3]


_LETTERS: dict[str, Callable[[Moment, int], str]] = {
    "G": lambda at, width: "AD" if at.year > 0 else "BC",
    "y": _year,
    "u": lambda at, width: _padded(at.weekday, width),
    "M": _month,
    "L": _month,
    "d": lambda at, width: _padded(at.day, width),
    "D": lambda at, width: _padded(at.day_of_year, width),
    "E": _day_name,
    "a": lambda at, width: "AM" if at.hour < 12 else "PM",
    "H": lambda at, width: _padded(at.hour, width),
    "k": lambda at, width: _padded(at.hour or 24, width),
    "K": lambda at, width: _padded(at.hour % 12, width),
    "h": lambda at, width: _padded(at.hour % 12 or 12, width),
    "m": lambda at, width: _padded(at.minute, width),
    "s": lambda at, width: _padded(at.second, width),
    "S": lambda at, width: _padded(at.millis, width),
    "z": lambda at, width: "Coordinated Universal Time" if width >= 4 else "UTC",
    "Z": lambda at, width: "+0000",
    "X": lambda at, width: "Z",
}
_NUMBERS = {"y": "year", "M": "month", "d": "day", "H": "hour", "h": "hour", "K": "hour", "k": "hour"}
_NUMBERS |= {"m": "minute", "s": "second", "S": "millis", "D": "dayofyear"}
_ZONE = r"Z|UTC|GMT|[+-]\d{2}:?\d{2}|[+-]\d{2}"


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
        """Return a time, in milliseconds since 1970-01-01T00:00:00Z, as text."""
        at = Moment.of(millis)
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
        out: list[str] = []
        seen: set[str] = set()

        def field(name: str, body: str) -> str:
            """A group with the name at its first occurrence; Java takes the last, which has the same value."""
            is_new = bool(name) and name not in seen
            seen.add(name)
            return f"(?P<{name}>{body})" if is_new else f"(?:{body})"

        for index, (part, width) in enumerate(self._parts):
            if not width:
                out.append(re.escape(part))
                continue
            # As in Java a number ends at its width only where another number follows.
            follows = index + 1 < len(self._parts) and _is_number(*self._parts[index + 1])
            if part in "ML" and width >= 3:
                body = "|".join([*_MONTHS, *(full[:3] for full in _MONTHS)])
                out.append(field("monthname", f"(?i:{body})"))
            elif part == "E":
                out.append("(?i:" + "|".join([*_DAYS, *(full[:3] for full in _DAYS)]) + ")")
            elif part == "a":
                out.append(field("half", "(?i:AM|PM)"))
            elif part in "zZX":
                out.append(field("zone", _ZONE))
            elif part == "G":
                out.append(field("era", "(?i:AD|BC)"))
            else:
                name = _NUMBERS.get("M" if part == "L" else part, "")
                out.append(field(name, rf"\d{{{width}}}" if follows else r"-?\d+"))
        return "".join(out)

    def _time(self, fields: dict[str, str]) -> int:
        digits = fields.get("year", "1970")
        if len(digits) != 2 or not digits.isdigit() or any(part == "y" and width > 2 for part, width in self._parts):
            return self._time_in(int(digits), fields)
        # Two digits of a pattern of one or two are the first such year from 80 years ago on, to the day.
        now = datetime.now(UTC)
        start = days_of(now.year - 80, now.month, now.day) * _DAY + int(now.timestamp() * 1000) % _DAY
        year = (now.year - 80) // 100 * 100 + int(digits)
        year += 100 if year < now.year - 80 else 0
        millis = self._time_in(year, fields)
        return self._time_in(year + 100, fields) if year == now.year - 80 and millis < start else millis

    def _time_in(self, year: int, fields: dict[str, str]) -> int:
        if fields.get("era", "AD").upper() == "BC":
            year = 1 - year
        month = int(fields.get("month", "1"))
        if "monthname" in fields:
            start = fields["monthname"].lower()[:3]
            month = next(at for at, name in enumerate(_MONTHS, 1) if name.lower().startswith(start))
        if "dayofyear" in fields and not fields.keys() & {"month", "monthname", "day"}:
            days = day_of_year(year, int(fields["dayofyear"]))
        else:
            days = days_of(year, month, int(fields.get("day", "1")))
        hour = int(fields.get("hour", "0"))
        if "half" in fields:
            hour = hour % 12 + (12 if fields["half"].upper() == "PM" else 0)
        elif hour == 24 and any(part == "k" for part, _ in self._parts):
            hour = 0
        minutes = (days * 24 + hour) * 60 + int(fields.get("minute", "0")) - _offset(fields.get("zone", "Z"))
        return (minutes * 60 + int(fields.get("second", "0"))) * 1000 + int(fields.get("millis", "0"))


def _is_number(part: str, width: int) -> bool:
    return bool(width) and (width <= 2 if part in "ML" else part in "yudDHkKhmsS")


def _offset(zone: str) -> int:
    """Return a zone's minutes east of UTC."""
    if zone in ("Z", "UTC", "GMT"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    size = int(digits[:2]) * 60 + int(digits[2:])
    return -size if zone[0] == "-" else size

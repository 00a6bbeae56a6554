"""Cron expressions of five fields, validated before Dagster gets them: an invalid one would affect all connectors."""

from __future__ import annotations

import re

_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?")


def parse_cron(text: str) -> str:
    """Return the expression with single spaces, with ``@hourly`` and the like expanded; empty stays empty.

    Raises ValueError that names the expected form.
    """
    expression = " ".join(text.split()).lower()
    expression = _SHORT.get(expression, expression)
    if not expression:
        return ""
    fields = expression.split(" ")
    if len(fields) != len(_FIELDS):
        raise ValueError("a cron expression of five fields, such as 0 3 * * 0")
    for field, (name, low, high, words) in zip(fields, _FIELDS, strict=True):
        if not all(_is_part(part, low, high, words) for part in field.split(",")):
            raise ValueError(f"a cron expression whose {name} is *, or numbers from {low} to {high}")
    return expression


parse_cron.kind = "cron expression"  # type: ignore[attr-defined]


def _is_part(part: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    match = _PART.fullmatch(part)
    if match is None or (match[4] is not None and not 1 <= int(match[4]) <= high):
        return False
    if match[1]:
        return True
    first, last = (_number(text, low, high, words) for text in (match[2], match[3] or match[2]))
    return first is not None and last is not None and first <= last


def _number(text: str, low: int, high: int, words: tuple[str, ...]) -> int | None:
    if text in words:
        return words.index(text) + low
    return int(text) if text.isdecimal() and low <= int(text) <= high else None

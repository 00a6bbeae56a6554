"""Java's .properties format, parsed like java.util.Properties.load."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cdc_core.errors import ConfigError

_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, source: str) -> tuple[tuple[str, str], ...]:
    """Return (name, value) pairs in the file's order, including repeated names. ``source`` names the file in errors.

    Raises ConfigError for a ``\\u`` that is not followed by four hexadecimal digits.
    """
    return tuple(_split(line, f"{source}, line {number}") for number, line in _logical_lines(text))


def property_lines(text: str, source: str) -> dict[str, int]:
    """Return the line, counted from 1, in which each name is set last. Raises ConfigError as ``parse_properties``."""
    return {_split(line, source)[0].strip(): number for number, line in _logical_lines(text)}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments and blanks; one that ends in an odd number of backslashes continues in the next."""
    logical = ""
    started = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not logical and not started:
            if not line or line[0] in "#!":
                continue
            started = number
        logical += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        yield started, logical
        logical, started = "", 0
    if started:
        yield started, logical


def _split(line: str, where: str) -> tuple[str, str]:
    """Split a line: the name ends at the first ``=``, ``:`` or blank that is not preceded by a backslash."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    name = line[:at]
    rest = line[at:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return _unescape(name, where), _unescape(rest, where)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
            continue
        letter = text[at + 1 : at + 2]
        at += 2
        if letter == "u":
            digits = text[at : at + 4]
            if re.fullmatch("[0-9A-Fa-f]{4}", digits) is None:
                raise ConfigError(f"{where}: \\u must be followed by four hexadecimal digits.")
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(letter, letter))
    # Two \u escapes may be the two halves of one character.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

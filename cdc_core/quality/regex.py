"""Converts Python's regular expressions to DuckDB's (RE2), as far as both match the same texts.

The syntax tree of Python's own parser is rewritten. Lookarounds, back references, flags and word boundaries have no
equivalent, or another meaning: patterns with them are evaluated by Great Expectations, in Python.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from re import _constants as codes  # type: ignore[attr-defined]  # isort: skip
from re import _parser as parser  # type: ignore[attr-defined]  # isort: skip

_MOST_REPEATS = 1000  # RE2 accepts no more
_SURROGATES = (0xD800, 0xDFFF)
_CLASSES = {
    codes.CATEGORY_DIGIT: r"\d+",
    codes.CATEGORY_NOT_DIGIT: r"\D+",
    codes.CATEGORY_SPACE: r"\s+",
    codes.CATEGORY_NOT_SPACE: r"\S+",
    codes.CATEGORY_WORD: r"\w+",
    codes.CATEGORY_NOT_WORD: r"\W+",
}


class _UnknownError(Exception):
    """The pattern has something that RE2 lacks or understands otherwise."""


def translated(pattern: str) -> str | None:
    """Return the pattern in RE2's syntax for a search in a text; None if it has no equivalent.

    None also for an invalid pattern, which the library reports.
    """
    try:
        tree = parser.parse(pattern)
    except (re.error, OverflowError, RecursionError):
        return None
    if tree.state.flags & ~re.UNICODE:
        return None
    try:
        return _sequence(list(tree), is_last=True)
    except _UnknownError:
        return None


def _sequence(items: list[tuple[Any, Any]], *, is_last: bool) -> str:
    return "".join(_item(code, argument, is_last and at == len(items) - 1) for at, (code, argument) in enumerate(items))


def _item(code: Any, argument: Any, is_last: bool) -> str:
    make: Callable[[Any, bool], str] | None = _ITEMS.get(code)
    if make is None:
        raise _UnknownError
    return make(argument, is_last)


def _character(ordinal: int) -> str:
    return f"\\x{{{ordinal:x}}}"


@cache
def _ranges(runs: str) -> str:
    """The characters of one of Python's classes: RE2's are those of ASCII, and of another version of Unicode."""
    below, above = _SURROGATES
    # Surrogates are in no text of UTF-8.
    every = "".join(map(chr, range(below))) + "".join(map(chr, range(above + 1, sys.maxunicode + 1)))
    parts = []
    for run in re.finditer(runs, every):
        first, last = ord(every[run.start()]), ord(every[run.end() - 1])
        if first < below < last:
            parts += [(first, below - 1), (above + 1, last)]
        else:
            parts.append((first, last))
    return "".join(f"{_character(first)}-{_character(last)}" for first, last in parts)


def _at(where: Any, is_last: bool) -> str:
    if where in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING):
        return r"\A"
    if where is codes.AT_END_STRING:
        return r"\z"
    if where is codes.AT_END and is_last:
        return r"\n?\z"  # before a line break at the end, too
    raise _UnknownError


def _members(members: list[tuple[Any, Any]], _: bool) -> str:
    parts, negated = [], ""
    for code, value in members:
        if code is codes.NEGATE:
            negated = "^"
        elif code is codes.LITERAL:
            parts.append(_character(value))
        elif code is codes.RANGE:
            parts.append(f"{_character(value[0])}-{_character(value[1])}")
        elif code is codes.CATEGORY and value in _CLASSES:
            parts.append(_ranges(_CLASSES[value]))
        else:
            raise _UnknownError
    return f"[{negated}{''.join(parts)}]"


def _branch(branch: tuple[Any, list[Any]], is_last: bool) -> str:
    return f"(?:{'|'.join(_sequence(list(alternative), is_last=is_last) for alternative in branch[1])})"


def _group(group: tuple[Any, int, int, Any], is_last: bool) -> str:
    _, added, removed, items = group
    if added or removed:
        raise _UnknownError
    return f"(?:{_sequence(list(items), is_last=is_last)})"


def _repeated(repeat: tuple[int, Any, Any], _: bool) -> str:
    least, most, items = repeat
    if least > _MOST_REPEATS or (most is not codes.MAXREPEAT and most > _MOST_REPEATS):
        raise _UnknownError
    inner = _sequence(list(items), is_last=False)
    return f"(?:{inner}){{{least},{'' if most is codes.MAXREPEAT else int(most)}}}"


_ITEMS: dict[Any, Callable[[Any, bool], str]] = {
    codes.LITERAL: lambda ordinal, _: _character(ordinal),
    codes.NOT_LITERAL: lambda ordinal, _: f"[^{_character(ordinal)}]",
    codes.ANY: lambda given, is_last: r"[^\n]",
    codes.IN: _members,
    codes.AT: _at,
    codes.BRANCH: _branch,
    codes.SUBPATTERN: _group,
    codes.MAX_REPEAT: _repeated,
    codes.MIN_REPEAT: _repeated,
}

"""Replacements of Java's ``Matcher.replaceFirst``."""

from __future__ import annotations

import re
from collections.abc import Callable

from cdc_core.selection.patterns import Pattern


def replacing(pattern: Pattern, replacement: str) -> Callable[[str], str]:
    """Return a function that replaces a text's first match; a text without one remains.

    Raises ValueError if the replacement is not valid for the pattern.
    """
    parts = _parts(replacement, pattern)

    def replace(text: str) -> str:
        match = pattern.search(text)
        if match is None:
            return text
        put = "".join(part if isinstance(part, str) else match.group(part[0]) or "" for part in parts)
        return text[: match.start()] + put + text[match.end() :]

    return replace


def _parts(text: str, pattern: Pattern) -> list[str | tuple[int | str]]:
    """Parse a Java replacement: ``$1``, ``${name}``, and a backslash before any character that is meant literally."""
    parts: list[str | tuple[int | str]] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            if at + 1 == len(text):
                raise ValueError("it ends with a backslash")
            parts.append(text[at + 1])
            at += 2
        elif char == "$":
            group, at = _group(text, at + 1, pattern)
            parts.append((group,))
        else:
            parts.append(char)
            at += 1
    return parts


def _group(text: str, at: int, pattern: Pattern) -> tuple[int | str, int]:
    named = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}").match(text, at)
    if named:
        if named[1] not in pattern.groupindex:
            raise ValueError(f"the expression has no group {named[1]}")
        return named[1], named.end()
    digits = re.compile(r"[0-9]+").match(text, at)
    if digits is None:
        raise ValueError("a $ must be followed by a group's number or name")
    # As many digits as there is such a group for; at least one.
    number = int(digits[0][0])
    if number > pattern.groups:
        raise ValueError(f"the expression has no group {number}")
    length = 1
    while length < len(digits[0]) and int(digits[0][: length + 1]) <= pattern.groups:
        length += 1
    return int(digits[0][:length]), at + length

"""Sets of Unicode code points as sorted ranges, and those that Java's regular expressions have names for."""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import groupby

Ranges = tuple[tuple[int, int], ...]
"""Disjoint ranges in order; both ends belong to them."""

ALL: Ranges = ((0, 0x10FFFF),)
LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029))
_DIGIT: Ranges = ((0x30, 0x39),)
_LOWER: Ranges = ((0x61, 0x7A),)
_UPPER: Ranges = ((0x41, 0x5A),)
_SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20))
_WORD: Ranges = (*_DIGIT, *_UPPER, (0x5F, 0x5F), *_LOWER)

# By their lower-case letter; the upper-case one is the complement.
PREDEFINED: dict[str, Ranges] = {
    "d": _DIGIT,
    "s": _SPACE,
    "w": _WORD,
    "h": (
        *((0x09, 0x09), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E)),
        *((0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
    ),
    "v": ((0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029)),
}
_POSIX: dict[str, Ranges] = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "Alpha": (*_UPPER, *_LOWER),
    "Digit": _DIGIT,
    "Alnum": (*_DIGIT, *_UPPER, *_LOWER),
    "Punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "Graph": ((0x21, 0x7E),),
    "Print": ((0x20, 0x7E),),
    "Blank": ((0x09, 0x09), (0x20, 0x20)),
    "Cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "XDigit": (*_DIGIT, (0x41, 0x46), (0x61, 0x66)),
    "Space": _SPACE,
    "ASCII": ((0x00, 0x7F),),
}
_CASED = ("Lu", "Ll", "Lt")
_GROUPS = {"LC": _CASED, "LD": ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd")}


def property_set(name: str, ignores_case: bool) -> Ranges | None:
    r"""Return the members of ``\p{name}``: an ASCII class or a general category; None for all others.

    ``ignores_case``: classes of one case have the letters of both.
    """
    if name in _POSIX:
        return (*_UPPER, *_LOWER) if ignores_case and name in ("Lower", "Upper") else _POSIX[name]
    if name == "all":
        return ALL
    if name == "L1":
        return ((0x00, 0xFF),)
    for prefix in ("Is", "gc=", "general_category="):
        name = name.removeprefix(prefix)
    if ignores_case and name in _CASED:
        name = "LC"
    known = _categories()
    names = _GROUPS.get(name) or tuple(each for each in known if each == name or (len(name) == 1 and each[0] == name))
    if not names:
        return None
    found: Ranges = ()
    for each in names:
        found = union(found, known[each])
    return found


@cache
def _categories() -> dict[str, Ranges]:
    """Return the code points by general category; takes a quarter of a second, so only when one is named."""
    found: dict[str, list[tuple[int, int]]] = {}
    first = 0
    for category, points in groupby(range(ALL[0][1] + 1), key=lambda point: unicodedata.category(chr(point))):
        count = sum(1 for _ in points)
        found.setdefault(category, []).append((first, first + count - 1))
        first += count
    return {category: tuple(ranges) for category, ranges in found.items()}


def union(one: Ranges, other: Ranges) -> Ranges:
    """Return the code points of either."""
    out: list[tuple[int, int]] = []
    for low, high in sorted((*one, *other)):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def complement(ranges: Ranges) -> Ranges:
    """Return all other code points."""
    out, at = [], 0
    for low, high in ranges:
        if at < low:
            out.append((at, low - 1))
        at = high + 1
    return tuple(out) if at > ALL[0][1] else (*out, (at, ALL[0][1]))


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """Return the code points of both."""
    return complement(union(complement(one), complement(other)))


def folded(ranges: Ranges) -> Ranges:
    """Return the code points and, of ASCII letters among them, those of the other case."""
    shifted = [(low - 32, high - 32) for low, high in intersection(ranges, _LOWER)]
    shifted += [(low + 32, high + 32) for low, high in intersection(ranges, _UPPER)]
    return union(ranges, tuple(shifted))

"""Classes and escapes of Java's regular expressions, as sets of code points."""

from __future__ import annotations

import re

from cdc_core.selection.code_points import (
    ALL,
    PREDEFINED,
    Ranges,
    complement,
    folded,
    intersection,
    property_set,
    union,
)
from cdc_core.selection.java_text import JavaText

_ESCAPED_CHARS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HEX = re.compile(r"[0-9A-Fa-f]+")
_OCTAL = re.compile(r"[0-3][0-7]{1,2}|[0-7]{1,2}")


class ClassReader:
    """Reads classes and escapes of ``text``; ``ignores_case``: that of ASCII letters, as Java does."""

    def __init__(self, text: JavaText, ignores_case: bool) -> None:
        self._text = text
        self._ignores_case = ignores_case

    def escaped_set(self) -> Ranges | None:
        """Read a predefined class or a property; None if the escape is a character."""
        start, char = self._text.at, self._text.peek(1)
        if char and char.lower() in PREDEFINED:
            self._text.at += 2
            found = PREDEFINED[char.lower()]
            return found if char.islower() else complement(found)
        if char not in ("p", "P") or not char:
            return None
        self._text.at += 2
        if self._text.takes("{"):
            rest = self._text.rest()
            end = rest.find("}")
            if end < 0:
                raise self._text.refused("a property that is not closed", start)
            name = rest[:end]
            self._text.at += end + 1
        else:
            name = self._text.peek()
            self._text.at += 1
        members = property_set(name, self._ignores_case)
        if members is None:
            raise self._text.refused(f"the property {name}", start)
        return members if char == "p" else complement(members)

    def escaped_char(self) -> int:
        """Read an escaped character; return its code point."""
        start = self._text.at
        self._text.at += 1
        char = self._text.peek()
        if not char:
            raise self._text.refused("a backslash that escapes nothing", start)
        self._text.at += 1
        if char in _ESCAPED_CHARS:
            return ord(_ESCAPED_CHARS[char])
        if char == "0":
            octal = self._text.take(_OCTAL)
            if octal is None:
                raise self._text.refused("an octal escape without digits", start)
            return int(octal[0], 8)
        if char == "x" and self._text.takes("{"):
            return self._braced(start)
        if char in "xu":
            return self._hex(2 if char == "x" else 4, start)
        if char == "c" and self._text.peek():
            control = ord(self._text.peek()) ^ 64
            self._text.at += 1
            return control
        if (char.isascii() and char.isalpha()) or char.isdigit():
            raise self._text.refused(f"the escape \\{char}", start)
        return ord(char)

    def _braced(self, start: int) -> int:
        digits = self._text.take(_HEX)
        if digits is None or not self._text.takes("}") or int(digits[0], 16) > ALL[-1][1]:
            raise self._text.refused("a hexadecimal escape of no code point", start)
        return int(digits[0], 16)

    def _hex(self, count: int, start: int) -> int:
        digits = self._text.rest()[:count]
        if len(digits) < count or _HEX.fullmatch(digits) is None:
            raise self._text.refused(f"a hexadecimal escape of less than {count} digits", start)
        self._text.at += count
        unit = int(digits, 16)
        low = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})").match(self._text.rest())
        if 0xD800 <= unit < 0xDC00 and low is not None and count == 4:
            self._text.at += 6
            return 0x10000 + ((unit - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        if 0xD800 <= unit < 0xE000:
            raise self._text.refused("half of a surrogate pair", start)
        return unit

    def members(self, *, has_brackets: bool = True) -> Ranges:
        """Read a class after its opening bracket, with Java's rules of unions and intersections.

        Without brackets it is an operand of an intersection, which the bracket of the whole ends.
        """
        start = self._text.at - 1
        is_negated = has_brackets and self._text.takes("^")
        held: Ranges | None = None
        while True:
            if self._text.is_at_end:
                raise self._text.refused("a class that is not closed", start)
            if self._text.peek() == "[":
                self._text.at += 1
                held = union(held or (), self.members())
            elif self._text.peek() == "&" and self._text.peek(1) == "&":
                held = self._intersected(held)
            elif self._text.peek() == "]" and held is not None:
                if has_brackets:
                    self._text.at += 1
                return complement(held) if is_negated else held
            else:
                held = union(held or (), self._member())

    def _intersected(self, left: Ranges | None) -> Ranges:
        start = self._text.at
        self._text.at += 2
        right: Ranges | None = None
        while not self._text.is_at_end and self._text.peek() not in ("]", "&"):
            found = self.members() if self._text.takes("[") else self.members(has_brackets=False)
            right = union(right or (), found)
        if left is None or right is None:
            raise self._text.refused("an intersection with nothing", start)
        return intersection(left, right)

    def _member(self) -> Ranges:
        """Read a range, a character or a predefined class inside of a class."""
        start = self._text.at
        if self._text.peek() == "\\":
            found = self.escaped_set()
            if found is not None:
                return found
            low = self.escaped_char()
        else:
            low = ord(self._text.next()[0])
        if self._text.peek() != "-" or self._text.peek(1) in ("]", "[") or self._text.is_last:
            return self.cased(_one(low))
        self._text.at += 1
        if self._text.peek() == "\\":
            if self._text.peek(1).lower() in {*PREDEFINED, "p"}:
                raise self._text.refused("a range that ends with a class", start)
            high = self.escaped_char()
        else:
            high = ord(self._text.next()[0])
        if high < low:
            raise self._text.refused("a range whose ends are not in order", start)
        return self.cased(((low, high),))

    def cased(self, ranges: Ranges) -> Ranges:
        """Return the set, with the other case of its letters if case is ignored."""
        return folded(ranges) if self._ignores_case else ranges


def _one(point: int) -> Ranges:
    return ((point, point),)

"""Java's regular expressions (java.util.regex) → Python's, translated exactly or refused.

Python reads many of Java's constructs differently and without an error, above all in classes (``[a-z&&[^x]]``). So an
expression is parsed here by Java's grammar, every class becomes an explicit set of code points, and so does the
case-insensitivity, which in Java is that of ASCII. What cannot be translated exactly raises ValueError with the
construct and its position. Reference: the class comment of java.util.regex.Pattern and its behaviour in Java 17.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_core.selection.code_points import (
    ALL,
    LINE_ENDS,
    PREDEFINED,
    Ranges,
    complement,
    folded,
    intersection,
    property_set,
    union,
)

_END = ""
_ESCAPED_CHARS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_FLAGS = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_GROUP_NAME = re.compile(r"\?<([A-Za-z][A-Za-z0-9]*)>")
_COUNTS = re.compile(r"\{(\d+)(,?)(\d*)\}")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_OCTAL = re.compile(r"[0-3][0-7]{1,2}|[0-7]{1,2}")
_LINE_END = "(?:\r\n|[\n\x0b\x0c\r\x85\u2028\u2029])"
_START = "(?:\\A)"
_BEFORE_END = "(?:(?!(?<=\r)\n)(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\\Z))"
_ESCAPED_PLACES = {"A": _START, "z": "(?:\\Z)", "Z": _BEFORE_END, "R": _LINE_END}


def to_python(pattern: str, *, ignore_case: bool = True) -> str:
    """Return an expression of Python's ``re``, to be used without flags. Raises ValueError if it cannot be exact."""
    return _Parser(pattern, ignore_case).expression()


@dataclass(slots=True)
class _Flags:
    """``i``: regardless of the case of ASCII letters. ``s``: a dot matches line terminators, too."""

    i: bool = True
    s: bool = False


class _Parser:
    """Reads one expression from left to right. ``at`` is the position of the next character."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._chars: list[tuple[str, bool]] = []  # each with whether it is quoted by \\Q…\\E
        self._places: list[int] = []
        self._read_quotes(pattern)
        self._at = 0
        self._flags = _Flags(i=ignore_case)
        self._groups = 0
        self._open: set[int] = set()
        self._names: dict[str, int] = {}

    def _read_quotes(self, pattern: str) -> None:
        at, is_quoted = 0, False
        while at < len(pattern):
            two = pattern[at : at + 2]
            if (two == "\\Q" and not is_quoted) or (two == "\\E" and is_quoted):
                is_quoted, at = not is_quoted, at + 2
                continue
            # An escaped backslash does not begin a quotation.
            for _ in range(2 if two[0] == "\\" and not is_quoted and len(two) == 2 else 1):
                self._chars.append((pattern[at], is_quoted))
                self._places.append(at + 1)
                at += 1

    def expression(self) -> str:
        made = self._alternatives()
        if self._at < len(self._chars):
            raise self._refused("a closing parenthesis without an opening one")
        return made

    def _refused(self, construct: str, at: int | None = None) -> ValueError:
        at = self._at if at is None else at
        place = f"at character {self._places[at]}" if at < len(self._places) else "at its end"
        return ValueError(f"{construct} {place}")

    def _peek(self, ahead: int = 0) -> str:
        """Return an unquoted character; the empty string for a quoted one and at the end."""
        at = self._at + ahead
        return self._chars[at][0] if at < len(self._chars) and not self._chars[at][1] else _END

    def _rest(self) -> str:
        """Return the unquoted characters from here on, up to the next quoted one."""
        end = self._at
        while end < len(self._chars) and not self._chars[end][1]:
            end += 1
        return "".join(char for char, _ in self._chars[self._at : end])

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._rest())
        if found is not None:
            self._at += found.end()
        return found

    def _takes(self, char: str) -> bool:
        if self._peek() != char:
            return False
        self._at += 1
        return True

    def _alternatives(self) -> str:
        made = [self._sequence()]
        while self._takes("|"):
            made.append(self._sequence())
        return "|".join(made)

    def _sequence(self) -> str:
        made = []
        while self._at < len(self._chars) and self._peek() not in ("|", ")"):
            start = self._at
            made.append(self._quantified(self._atom(), start))
        return "".join(made)

    def _quantified(self, atom: str, start: int) -> str:
        begin = self._at
        char = self._peek()
        if char == "{":
            counts = self._take(_COUNTS)
            if counts is None:
                raise self._refused("a brace that is no quantifier (a comma inside an expression is written \\,)")
            if counts[3] and int(counts[3]) < int(counts[1]):
                raise self._refused("a quantifier whose bounds are not in order", begin)
            quantifier = counts[0]
        elif char and char in "?*+":
            self._at += 1
            quantifier = char
        else:
            return atom
        if not atom:
            raise self._refused("a quantifier after nothing that it could repeat", begin)
        if self._peek() and self._peek() in "?+":
            quantifier += self._peek()
            self._at += 1
        if self._peek() and self._peek() in "?*+{":
            raise self._refused("a quantifier of a quantifier")
        return f"(?:{atom}){quantifier}"

    def _atom(self) -> str:
        char, is_quoted = self._chars[self._at]
        if is_quoted:
            self._at += 1
            return self._literal(char)
        if char in ("(", "\\"):
            return self._group() if char == "(" else self._escape()
        if char == "[":
            self._at += 1
            return _class(self._set())
        if char in "?*+{":
            raise self._refused("a quantifier after nothing that it could repeat" if char != "{" else "a brace")
        self._at += 1
        if char == ".":
            return _class(ALL if self._flags.s else complement(LINE_ENDS))
        return {"^": _START, "$": _BEFORE_END}.get(char) or self._literal(char)

    def _literal(self, char: str) -> str:
        return _class(self._cased(((ord(char), ord(char)),)))

    def _cased(self, ranges: Ranges) -> Ranges:
        return folded(ranges) if self._flags.i else ranges

    def _group(self) -> str:
        start = self._at
        self._at += 1
        outer = _Flags(self._flags.i, self._flags.s)
        name = self._take(_GROUP_NAME)
        number = 0
        if name is not None or self._peek() != "?":
            self._groups += 1
            number = self._groups
            self._open.add(number)
            if name is not None and name[1] in self._names:
                raise self._refused(f"a second group of the name {name[1]}", start)
            if name is not None:
                self._names[name[1]] = number
            opening = "(" if name is None else f"(?P<{name[1]}>"
        else:
            opening = self._special(start)
            if not opening:
                return ""
        inner = self._alternatives()
        if not self._takes(")"):
            raise self._refused("a parenthesis that is not closed", start)
        self._open.discard(number)
        self._flags = outer
        return f"{opening}{inner})"

    def _special(self, start: int) -> str:
        """Read what follows an opening parenthesis and a question mark; empty if flags were set for what follows."""
        for form in ("?<=", "?<!", "?=", "?!", "?>", "?:"):
            if self._rest().startswith(form):
                self._at += len(form)
                return f"({form}"
        found = self._take(_FLAGS)
        if found is None:
            raise self._refused("an unknown kind of group", start)
        wrong = (set(found[1]) | set(found[2] or "")) - {"i", "s"}
        if wrong:
            raise self._refused(f"the flag {min(wrong)}", start)
        if "i" in found[1]:
            self._flags = _Flags(True, self._flags.s)
        if "s" in found[1]:
            self._flags = _Flags(self._flags.i, True)
        off = found[2] or ""
        self._flags = _Flags(self._flags.i and "i" not in off, self._flags.s and "s" not in off)
        return "(?:" if found[3] == ":" else ""

    def _escape(self) -> str:
        """Read a backslash and what follows it outside of a class."""
        start = self._at
        char = self._peek(1)
        if char in _ESCAPED_PLACES:
            self._at += 2
            return _ESCAPED_PLACES[char]
        if char == "k":
            return self._named_reference(start)
        if char and char in "123456789":
            return self._reference(start)
        found = self._escaped_set()
        return _class(found if found is not None else self._cased(_one(self._escaped_char())))

    def _reference(self, start: int) -> str:
        self._at += 1
        number = int(self._peek())
        self._at += 1
        while self._peek() and self._peek() in "0123456789" and number * 10 + int(self._peek()) <= self._groups:
            number = number * 10 + int(self._peek())
            self._at += 1
        return self._referring(number, start)

    def _named_reference(self, start: int) -> str:
        self._at += 2
        found = self._take(re.compile(r"<([A-Za-z][A-Za-z0-9]*)>"))
        if found is None or found[1] not in self._names:
            raise self._refused("a reference to no group", start)
        return self._referring(self._names[found[1]], start)

    def _referring(self, number: int, start: int) -> str:
        if number > self._groups or number in self._open:
            raise self._refused("a reference to a group that has not ended before it", start)
        # Regardless of case as Java does it: for ASCII letters.
        return f"(?ai:\\{number})" if self._flags.i else f"(?:\\{number})"

    def _escaped_set(self) -> Ranges | None:
        """Read a predefined class or a property; None if the escape is a character."""
        start, char = self._at, self._peek(1)
        if char and char.lower() in PREDEFINED:
            self._at += 2
            found = PREDEFINED[char.lower()]
            return found if char.islower() else complement(found)
        if char not in ("p", "P") or not char:
            return None
        self._at += 2
        if self._takes("{"):
            rest = self._rest()
            end = rest.find("}")
            if end < 0:
                raise self._refused("a property that is not closed", start)
            name = rest[:end]
            self._at += end + 1
        else:
            name = self._peek()
            self._at += 1
        members = property_set(name, self._flags.i)
        if members is None:
            raise self._refused(f"the property {name}", start)
        return members if char == "p" else complement(members)

    def _escaped_char(self) -> int:
        """Read an escaped character; return its code point."""
        start = self._at
        self._at += 1
        char = self._peek()
        if not char:
            raise self._refused("a backslash that escapes nothing", start)
        self._at += 1
        if char in _ESCAPED_CHARS:
            return ord(_ESCAPED_CHARS[char])
        if char == "0":
            octal = self._take(_OCTAL)
            if octal is None:
                raise self._refused("an octal escape without digits", start)
            return int(octal[0], 8)
        if char == "x" and self._takes("{"):
            return self._braced(start)
        if char in "xu":
            return self._hex(2 if char == "x" else 4, start)
        if char == "c" and self._peek():
            control = ord(self._peek()) ^ 64
            self._at += 1
            return control
        if (char.isascii() and char.isalpha()) or char.isdigit():
            raise self._refused(f"the escape \\{char}", start)
        return ord(char)

    def _braced(self, start: int) -> int:
        digits = self._take(_HEX)
        if digits is None or not self._takes("}") or int(digits[0], 16) > ALL[-1][1]:
            raise self._refused("a hexadecimal escape of no code point", start)
        return int(digits[0], 16)

    def _hex(self, count: int, start: int) -> int:
        digits = self._rest()[:count]
        if len(digits) < count or _HEX.fullmatch(digits) is None:
            raise self._refused(f"a hexadecimal escape of less than {count} digits", start)
        self._at += count
        unit = int(digits, 16)
        low = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})").match(self._rest())
        if 0xD800 <= unit < 0xDC00 and low is not None and count == 4:
            self._at += 6
            return 0x10000 + ((unit - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        if 0xD800 <= unit < 0xE000:
            raise self._refused("half of a surrogate pair", start)
        return unit

    def _set(self, *, has_brackets: bool = True) -> Ranges:
        """Read a class after its opening bracket, with Java's rules of unions and intersections.

        Without brackets it is an operand of an intersection, which the bracket of the whole ends.
        """
        start = self._at - 1
        is_negated = has_brackets and self._takes("^")
        held: Ranges | None = None
        while True:
            if self._at >= len(self._chars):
                raise self._refused("a class that is not closed", start)
            if self._peek() == "[":
                self._at += 1
                held = union(held or (), self._set())
            elif self._peek() == "&" and self._peek(1) == "&":
                held = self._intersected(held)
            elif self._peek() == "]" and held is not None:
                if has_brackets:
                    self._at += 1
                return complement(held) if is_negated else held
            else:
                held = union(held or (), self._member())

    def _intersected(self, left: Ranges | None) -> Ranges:
        start = self._at
        self._at += 2
        right: Ranges | None = None
        while self._at < len(self._chars) and self._peek() not in ("]", "&"):
            found = self._set() if self._takes("[") else self._set(has_brackets=False)
            right = union(right or (), found)
        if left is None or right is None:
            raise self._refused("an intersection with nothing", start)
        return intersection(left, right)

    def _member(self) -> Ranges:
        """Read a range, a character or a predefined class inside of a class."""
        start = self._at
        if self._peek() == "\\":
            found = self._escaped_set()
            if found is not None:
                return found
            low = self._escaped_char()
        else:
            low = ord(self._chars[self._at][0])
            self._at += 1
        if self._peek() != "-" or self._peek(1) in ("]", "[") or self._at + 1 >= len(self._chars):
            return self._cased(_one(low))
        self._at += 1
        if self._peek() == "\\":
            if self._peek(1).lower() in {*PREDEFINED, "p"}:
                raise self._refused("a range that ends with a class", start)
            high = self._escaped_char()
        else:
            high = ord(self._chars[self._at][0])
            self._at += 1
        if high < low:
            raise self._refused("a range whose ends are not in order", start)
        return self._cased(((low, high),))


def _one(point: int) -> Ranges:
    return ((point, point),)


def _class(ranges: Ranges) -> str:
    """Return a class of Python's that has exactly these code points."""
    if not ranges:
        return "(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return re.escape(chr(ranges[0][0]))
    members = (_escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}" for low, high in ranges)
    return f"[{''.join(members)}]"


def _escaped(point: int) -> str:
    return chr(point) if chr(point).isascii() and chr(point).isalnum() else f"\\U{point:08x}"

"""Java's regular expressions (java.util.regex) → those of the library ``regex`` in its version-1 mode, or refused.

The library has nested sets, intersections, properties, possessive quantifiers and atomic groups with Java's meaning.
What differs is translated here: ``\\Q…\\E``, escapes, the members of classes that have names, the end of a line, and
case-insensitivity, which in Java is that of ASCII letters, so that no flag is used. What has no exact equal, or another
meaning in the library, raises ValueError with the construct and its position. Reference: the class comment of
java.util.regex.Pattern, and its behaviour in Java 17, which a test compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LAST_POINT = 0x10FFFF
_NO_LINE_END = r"[^\n\r\x85\u2028\u2029]"
_BEFORE_END = r"(?:(?!(?<=\r)\n)(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z))"
_PLACES = {"A": r"\A", "z": r"\Z", "Z": _BEFORE_END, "R": r"(?:\r\n|[\n\x0b\x0c\r\x85\u2028\u2029])"}
_CHARS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
# Classes by their lower-case letter, as members of a set; the upper-case letter is the complement.
_LETTER_CLASSES = {
    "d": "0-9",
    "w": "0-9A-Z_a-z",
    "s": r"\x09-\x0d\x20",
    "h": r"\x09\x20\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\x0a-\x0d\x85\u2028\u2029",
}
_PROPERTIES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Alnum": "0-9A-Za-z",
    "Punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "Graph": r"\x21-\x7e",
    "Print": r"\x20-\x7e",
    "Blank": r"\x09\x20",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9A-Fa-f",
    "Space": r"\x09-\x0d\x20",
    "ASCII": r"\x00-\x7f",
    "L1": r"\x00-\xff",
    "all": r"\U00000000-\U0010ffff",
    "LC": r"\p{Lu}\p{Ll}\p{Lt}",
    "LD": r"\p{L}\p{Nd}",
}
_CASED = {"Lower": "A-Za-z", "Upper": "A-Za-z", **dict.fromkeys(("Lu", "Ll", "Lt"), _PROPERTIES["LC"])}
_CATEGORY = re.compile(r"C[cfnos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_CATEGORY_PREFIX = re.compile(r"Is|gc=|general_category=")
_CODE = re.compile(
    r"0(?P<octal>[0-3][0-7]{1,2}|[0-7]{1,2})|x(?P<byte>[0-9A-Fa-f]{2})|x\{(?P<braced>[0-9A-Fa-f]+)\}"
    r"|u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|u(?P<unit>(?![dD][89a-fA-F])[0-9A-Fa-f]{4})|c(?P<control>.)",
    re.DOTALL,
)
_FLAGS = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_GROUP_NAME = re.compile(r"\?<([A-Za-z][A-Za-z0-9]*)>")
_OPENINGS = re.compile(r"\?(?:<=|<!|=|!|>|:)")
_COUNTS = re.compile(r"\{(\d+)(,?)(\d*)\}")


def to_regex(pattern: str, *, ignore_case: bool = True) -> str:
    """Return an expression for ``regex.compile`` with VERSION1 only. Raises ValueError if it cannot be exact."""
    return _Translator(pattern, ignore_case).expression()


@dataclass(frozen=True, slots=True)
class _Scope:
    """The flags up to the end of a group. ``i``: any case of ASCII letters. ``s``: a dot matches ends of lines."""

    i: bool
    s: bool = False
    is_behind: bool = False


class _Translator:
    """Translates one expression, from left to right. Quoted characters are kept apart from syntax."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._pattern = pattern
        self._at = 0
        self._is_quoting = False
        self._scope = _Scope(ignore_case)
        self._groups = 0
        self._open: set[int] = set()
        self._names: dict[str, int] = {}

    def expression(self) -> str:
        """Return the translation of the whole."""
        made = self._alternatives()
        if self._at < len(self._pattern):
            raise self._refused("a closing parenthesis without an opening one")
        return made

    # Characters

    def _refused(self, construct: str, at: int | None = None) -> ValueError:
        at = self._at if at is None else at
        place = f"at character {at + 1}" if at < len(self._pattern) else "at its end"
        return ValueError(f"{construct} {place}")

    def _skip_quotes(self) -> None:
        while self._pattern.startswith("\\E" if self._is_quoting else "\\Q", self._at):
            self._is_quoting = not self._is_quoting
            self._at += 2

    def _peek(self) -> str:
        """Return the next character of syntax; empty if it is quoted, and at the end."""
        self._skip_quotes()
        return "" if self._is_quoting else self._pattern[self._at : self._at + 1]

    def _takes(self, text: str) -> bool:
        is_next = bool(self._peek()) and self._pattern.startswith(text, self._at)
        self._at += len(text) if is_next else 0
        return is_next

    def _take(self, form: re.Pattern[str]) -> re.Match[str] | None:
        match = form.match(self._pattern, self._at) if self._peek() else None
        if match is not None:
            self._at = match.end()
        return match

    def _is_at_end(self) -> bool:
        self._skip_quotes()
        return self._at >= len(self._pattern)

    def _char(self) -> int:
        """Read a character that is none of syntax, escaped or not; return its code point."""
        if self._peek() == "\\":
            return self._escaped()
        self._at += 1
        return ord(self._pattern[self._at - 1])

    def _escaped(self) -> int:
        start = self._at
        self._at += 1
        code = _CODE.match(self._pattern, self._at)
        if code is not None:
            self._at = code.end()
            return self._code(code, start)
        char = self._pattern[self._at : self._at + 1]
        if not char:
            raise self._refused("a backslash that escapes nothing", start)
        if char not in _CHARS and char.isascii() and char.isalnum():
            raise self._refused(f"the escape \\{char}", start)
        self._at += 1
        return ord(_CHARS.get(char, char))

    def _code(self, code: re.Match[str], start: int) -> int:
        parts = code.groupdict()
        if parts["octal"] is not None:
            return int(parts["octal"], 8)
        if parts["control"] is not None:
            return ord(parts["control"]) ^ 64
        if parts["high"] is not None:
            return 0x10000 + ((int(parts["high"], 16) - 0xD800) << 10) + int(parts["low"], 16) - 0xDC00
        point = int(parts["byte"] or parts["braced"] or parts["unit"], 16)
        if point > _LAST_POINT or 0xD800 <= point < 0xE000:
            raise self._refused("an escape of no code point", start)
        return point

    # Groups and quantifiers

    def _alternatives(self) -> str:
        made = [self._sequence()]
        while self._takes("|"):
            made.append(self._sequence())
        return "|".join(made)

    def _sequence(self) -> str:
        made = []
        while not self._is_at_end() and (not self._peek() or self._peek() not in "|)"):
            start = self._at
            made.append(self._quantified(self._atom(), start))
        return "".join(made)

    def _quantified(self, atom: str, start: int) -> str:
        begin = self._at
        if self._peek() == "{":
            counts = self._take(_COUNTS)
            if counts is None:
                raise self._refused("a brace that is no quantifier (a comma inside an expression is written \\,)")
            if counts[3] and int(counts[3]) < int(counts[1]):
                raise self._refused("a quantifier whose bounds are not in order", begin)
            quantifier, is_bounded = counts[0], not counts[2] or bool(counts[3])
        elif self._peek() and self._peek() in "?*+":
            quantifier = self._peek()
            is_bounded = quantifier == "?"
            self._at += 1
        else:
            return atom
        if not atom:
            raise self._refused("a quantifier after nothing that it could repeat", start)
        if self._scope.is_behind and not is_bounded:
            raise self._refused("a look-behind without a largest length", begin)
        mode = self._peek() if self._peek() and self._peek() in "?+" else ""
        self._at += len(mode)
        if self._peek() and self._peek() in "?*+{":
            raise self._refused("a quantifier of a quantifier")
        return f"(?:{atom}){quantifier}{mode}"

    def _atom(self) -> str:
        char = self._peek()
        if char == "(":
            return self._group()
        if char == "\\":
            return self._escape()
        if self._takes("["):
            return self._set(self._at - 1)
        if char and char in "?*+{":
            raise self._refused("a brace" if char == "{" else "a quantifier after nothing that it could repeat")
        if char and char in ".^$":
            self._at += 1
            return {".": "(?s:.)" if self._scope.s else _NO_LINE_END, "^": r"\A", "$": _BEFORE_END}[char]
        return self._literal(self._char())

    def _literal(self, point: int) -> str:
        if self._scope.i and chr(point).isascii() and chr(point).isalpha():
            return f"[{self._members(point, point)}]"
        return _escape(point)

    def _group(self) -> str:
        start, outer, number = self._at, self._scope, 0
        self._at += 1
        name = self._take(_GROUP_NAME)
        if name is not None or self._peek() != "?":
            self._groups += 1
            number = self._groups
            self._open.add(number)
            if name is not None and name[1] in self._names:
                raise self._refused(f"a second group of the name {name[1]}", start)
            self._names.update({} if name is None else {name[1]: number})
            opening = "(" if name is None else f"(?P<{name[1]}>"
        else:
            opening = self._special(start)
            if not opening:
                return ""
        inner = self._alternatives()
        if not self._takes(")"):
            raise self._refused("a parenthesis that is not closed", start)
        self._open.discard(number)
        self._scope = outer
        return f"{opening}{inner})"

    def _special(self, start: int) -> str:
        """Read what follows an opening parenthesis and a question mark; empty if flags were set for what follows."""
        scope, opening = self._scope, self._take(_OPENINGS)
        if opening is not None:
            self._scope = _Scope(scope.i, scope.s, scope.is_behind or opening[0].startswith("?<"))
            return f"({opening[0]}"
        flags = self._take(_FLAGS)
        if flags is None:
            raise self._refused("an unknown kind of group", start)
        on, off = set(flags[1]), set(flags[2] or "")
        if (on | off) - {"i", "s"}:
            raise self._refused(f"the flag {min((on | off) - {'i', 's'})}", start)
        i, s = (name not in off and (name in on or known) for name, known in (("i", scope.i), ("s", scope.s)))
        self._scope = _Scope(i, s, scope.is_behind)
        return "(?:" if flags[3] == ":" else ""

    def _escape(self) -> str:
        """Read a backslash and what follows it outside of a set."""
        start, char = self._at, self._pattern[self._at + 1 : self._at + 2]
        if char in _PLACES and char:
            self._at += 2
            return _PLACES[char]
        if char and char in "123456789":
            return self._reference(start)
        if char == "k":
            name = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>").match(self._pattern, start)
            if name is None or name[1] not in self._names:
                raise self._refused("a reference to no group", start)
            self._at = name.end()
            return self._referring(self._names[name[1]], start)
        named = self._named_class()
        return f"[{named}]" if named else self._literal(self._escaped())

    def _reference(self, start: int) -> str:
        number = int(self._pattern[start + 1])
        self._at += 2
        # A further digit belongs to the reference if there are so many groups.
        while (digit := self._peek()) and digit in "0123456789" and number * 10 + int(digit) <= self._groups:
            number = number * 10 + int(digit)
            self._at += 1
        return self._referring(number, start)

    def _referring(self, number: int, start: int) -> str:
        if number > self._groups or number in self._open:
            raise self._refused("a reference to a group that has not ended before it", start)
        return f"(?{'i' if self._scope.i else ''}:\\g<{number}>)"

    # Sets

    def _set(self, start: int) -> str:
        """Read a set after its opening bracket. Unions bind closer than intersections, in both languages."""
        opening = "[^" if self._takes("^") else "["
        operands = [""]
        while not (self._peek() == "]" and (operands[-1] or len(operands) > 1)):
            if self._is_at_end():
                raise self._refused("a class that is not closed", start)
            if self._takes("["):
                operands[-1] += self._set(self._at - 1)
            elif self._pattern.startswith("&&", self._at) and self._peek():
                if not operands[-1] or self._pattern.startswith("&&&", self._at):
                    raise self._refused("an intersection with nothing")
                operands.append("")
                self._at += 2
            else:
                operands[-1] += self._named_class() or self._range()
        if not operands[-1]:
            raise self._refused("an intersection with nothing", self._at - 2)
        self._at += 1
        parts = operands if len(operands) == 1 else [f"[{operand}]" for operand in operands]
        return f"{opening}{'&&'.join(parts)}]"

    def _range(self) -> str:
        start, low = self._at, self._char()
        after = self._pattern[self._at + 1 : self._at + 2]
        if self._peek() != "-" or after in ("]", "[", ""):
            return self._members(low, low)
        self._at += 1
        if self._peek() == "\\" and self._pattern[self._at + 1 : self._at + 2].lower() in {*_LETTER_CLASSES, "p"}:
            raise self._refused("a range that ends with a class", start)
        high = self._char()
        if high < low:
            raise self._refused("a range whose ends are not in order", start)
        return self._members(low, high)

    def _members(self, low: int, high: int) -> str:
        """Return a range as members of a set, with the other case of its ASCII letters if case is ignored."""
        ranges = [(low, high)]
        for first, last, shift in ((0x41, 0x5A, 32), (0x61, 0x7A, -32)):
            if self._scope.i and low <= last and high >= first:
                ranges.append((max(low, first) + shift, min(high, last) + shift))
        return "".join(_code(a) if a == b else f"{_code(a)}-{_code(b)}" for a, b in ranges)

    def _named_class(self) -> str:
        r"""Read ``\d``, ``\p{L}`` and the like; return it as members of a set, empty if the next is no such class."""
        start, char = self._at, self._pattern[self._at + 1 : self._at + 2] if self._peek() == "\\" else ""
        if char and char.lower() in _LETTER_CLASSES:
            self._at += 2
            members = _LETTER_CLASSES[char.lower()]
        elif char in ("p", "P") and char:
            self._at += 2
            match = re.compile(r"\{([^}]*)\}|([^{])", re.DOTALL).match(self._pattern, self._at)
            if match is None:
                raise self._refused("a property that is not closed", start)
            self._at = match.end()
            members = self._property(match[1] if match[2] is None else match[2], start)
        else:
            return ""
        return f"[{members}]" if char.islower() else f"[^{members}]"

    def _property(self, name: str, start: int) -> str:
        category = _CATEGORY_PREFIX.sub("", name, count=1)
        if self._scope.i and (name in _CASED or category in _CASED):
            return _CASED.get(name) or _CASED[category]
        if _CATEGORY.fullmatch(category):
            return rf"\p{{{category}}}"
        members = _PROPERTIES.get(name) or (_PROPERTIES.get(category) if category in ("LC", "LD") else None)
        if members is None:
            raise self._refused(f"the property {name}", start)
        return members


def _code(point: int) -> str:
    return chr(point) if chr(point).isascii() and chr(point).isalnum() else f"\\U{point:08x}"


def _escape(point: int) -> str:
    return f"\\U{point:08x}" if not chr(point).isprintable() else re.escape(chr(point))

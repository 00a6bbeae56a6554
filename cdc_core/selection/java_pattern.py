"""Java's regular expressions (java.util.regex) → Python's, translated exactly or refused.

Python reads many of Java's constructs differently and without an error, above all in classes (``[a-z&&[^x]]``). So an
expression is parsed here by Java's grammar, every class becomes an explicit set of code points, and so does the
case-insensitivity, which in Java is that of ASCII. What cannot be translated exactly raises ValueError with the
construct and its position. ``java_text`` holds the characters, ``java_classes`` reads classes. Reference: the class
comment of java.util.regex.Pattern and its behaviour in Java 17.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_core.selection.code_points import ALL, LINE_ENDS, Ranges, complement
from cdc_core.selection.java_classes import ClassReader
from cdc_core.selection.java_text import JavaText

_FLAGS = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_GROUP_NAME = re.compile(r"\?<([A-Za-z][A-Za-z0-9]*)>")
_COUNTS = re.compile(r"\{(\d+)(,?)(\d*)\}")
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
    """Translates one expression, from left to right."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._text = JavaText(pattern)
        self._flags = _Flags(i=ignore_case)
        self._groups = 0
        self._open: set[int] = set()
        self._names: dict[str, int] = {}

    def expression(self) -> str:
        made = self._alternatives()
        if not self._text.is_at_end:
            raise self._text.refused("a closing parenthesis without an opening one")
        return made

    def _alternatives(self) -> str:
        made = [self._sequence()]
        while self._text.takes("|"):
            made.append(self._sequence())
        return "|".join(made)

    def _sequence(self) -> str:
        made = []
        while not self._text.is_at_end and self._text.peek() not in ("|", ")"):
            start = self._text.at
            made.append(self._quantified(self._atom(), start))
        return "".join(made)

    def _quantified(self, atom: str, start: int) -> str:
        begin = self._text.at
        char = self._text.peek()
        if char == "{":
            counts = self._text.take(_COUNTS)
            if counts is None:
                raise self._text.refused("a brace that is no quantifier (a comma inside an expression is written \\,)")
            if counts[3] and int(counts[3]) < int(counts[1]):
                raise self._text.refused("a quantifier whose bounds are not in order", begin)
            quantifier = counts[0]
        elif char and char in "?*+":
            self._text.at += 1
            quantifier = char
        else:
            return atom
        if not atom:
            raise self._text.refused("a quantifier after nothing that it could repeat", begin)
        made = f"(?:{atom}){quantifier}"
        if self._text.takes("?"):
            made += "?"
        elif self._text.takes("+"):
            # The same as Python's own possessive quantifiers, which before 3.11.5 repeat some groups wrongly.
            made = f"(?>{made})"
        if self._text.peek() and self._text.peek() in "?*+{":
            raise self._text.refused("a quantifier of a quantifier")
        return made

    def _atom(self) -> str:
        if self._text.peek() in ("(", "\\"):
            return self._group() if self._text.peek() == "(" else self._escape()
        if self._text.takes("["):
            return _class(self._classes.members())
        if self._text.peek() and self._text.peek() in "?*+{":
            is_brace = self._text.peek() == "{"
            raise self._text.refused("a brace" if is_brace else "a quantifier after nothing that it could repeat")
        char, is_quoted = self._text.next()
        if char == "." and not is_quoted:
            return _class(ALL if self._flags.s else complement(LINE_ENDS))
        place = None if is_quoted else {"^": _START, "$": _BEFORE_END}.get(char)
        return place or self._literal(ord(char))

    @property
    def _classes(self) -> ClassReader:
        return ClassReader(self._text, self._flags.i)

    def _literal(self, point: int) -> str:
        return _class(self._classes.cased(((point, point),)))

    def _group(self) -> str:
        start = self._text.at
        self._text.at += 1
        outer = _Flags(self._flags.i, self._flags.s)
        name = self._text.take(_GROUP_NAME)
        number = 0
        if name is not None or self._text.peek() != "?":
            self._groups += 1
            number = self._groups
            self._open.add(number)
            if name is not None and name[1] in self._names:
                raise self._text.refused(f"a second group of the name {name[1]}", start)
            if name is not None:
                self._names[name[1]] = number
            opening = "(" if name is None else f"(?P<{name[1]}>"
        else:
            opening = self._special(start)
            if not opening:
                return ""
        inner = self._alternatives()
        if not self._text.takes(")"):
            raise self._text.refused("a parenthesis that is not closed", start)
        self._open.discard(number)
        self._flags = outer
        return f"{opening}{inner})"

    def _special(self, start: int) -> str:
        """Read what follows an opening parenthesis and a question mark; empty if flags were set for what follows."""
        for form in ("?<=", "?<!", "?=", "?!", "?>", "?:"):
            if self._text.rest().startswith(form):
                self._text.at += len(form)
                return f"({form}"
        found = self._text.take(_FLAGS)
        if found is None:
            raise self._text.refused("an unknown kind of group", start)
        wrong = (set(found[1]) | set(found[2] or "")) - {"i", "s"}
        if wrong:
            raise self._text.refused(f"the flag {min(wrong)}", start)
        if "i" in found[1]:
            self._flags = _Flags(True, self._flags.s)
        if "s" in found[1]:
            self._flags = _Flags(self._flags.i, True)
        off = found[2] or ""
        self._flags = _Flags(self._flags.i and "i" not in off, self._flags.s and "s" not in off)
        return "(?:" if found[3] == ":" else ""

    def _escape(self) -> str:
        """Read a backslash and what follows it outside of a class."""
        start = self._text.at
        char = self._text.peek(1)
        if char in _ESCAPED_PLACES:
            self._text.at += 2
            return _ESCAPED_PLACES[char]
        if char == "k":
            return self._named_reference(start)
        if char and char in "123456789":
            return self._reference(start)
        found = self._classes.escaped_set()
        return self._literal(self._classes.escaped_char()) if found is None else _class(found)

    def _reference(self, start: int) -> str:
        self._text.at += 1
        number = int(self._text.peek())
        self._text.at += 1
        # A further digit belongs to the reference if there are so many groups.
        while (digit := self._text.peek()) and digit in "0123456789" and number * 10 + int(digit) <= self._groups:
            number = number * 10 + int(digit)
            self._text.at += 1
        return self._referring(number, start)

    def _named_reference(self, start: int) -> str:
        self._text.at += 2
        found = self._text.take(re.compile(r"<([A-Za-z][A-Za-z0-9]*)>"))
        if found is None or found[1] not in self._names:
            raise self._text.refused("a reference to no group", start)
        return self._referring(self._names[found[1]], start)

    def _referring(self, number: int, start: int) -> str:
        if number > self._groups or number in self._open:
            raise self._text.refused("a reference to a group that has not ended before it", start)
        # Regardless of case as Java does it: for ASCII letters.
        return f"(?ai:\\{number})" if self._flags.i else f"(?:\\{number})"


def _class(ranges: Ranges) -> str:
    """Return a class of Python's that has exactly these code points."""
    if not ranges:
        return "(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return re.escape(chr(ranges[0][0]))
    # A class up to the last code point is named by what it lacks: Python takes 3 ms to compile the other form of a dot.
    is_most = ranges[-1][1] == ALL[0][1]
    named = complement(ranges) if is_most else ranges
    if not named:
        return "(?s:.)"
    members = (_escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}" for low, high in named)
    return f"[{'^' if is_most else ''}{''.join(members)}]"


def _escaped(point: int) -> str:
    return chr(point) if chr(point).isascii() and chr(point).isalnum() else f"\\U{point:08x}"

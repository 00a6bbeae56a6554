"""The characters of an expression of Java's, read from left to right."""

from __future__ import annotations

import re


class JavaText:
    """One expression. ``at`` is the index of the next character; \\Q and \\E are removed from the characters."""

    def __init__(self, pattern: str) -> None:
        self.at = 0
        self._chars: list[tuple[str, bool]] = []  # each with whether it is quoted by \\Q…\\E
        self._places: list[int] = []
        self._read_quotes(pattern)

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

    @property
    def is_at_end(self) -> bool:
        """Whether all characters were read."""
        return self.at >= len(self._chars)

    def next(self) -> tuple[str, bool]:
        """Read any character; returns it, and whether it is quoted."""
        self.at += 1
        return self._chars[self.at - 1]

    @property
    def is_last(self) -> bool:
        """Whether the next character is the last one."""
        return self.at + 1 >= len(self._chars)

    def refused(self, construct: str, at: int | None = None) -> ValueError:
        """Return the error that a construct cannot be translated; ``at`` is its index, by default that of the next."""
        at = self.at if at is None else at
        place = f"at character {self._places[at]}" if at < len(self._places) else "at its end"
        return ValueError(f"{construct} {place}")

    def peek(self, ahead: int = 0) -> str:
        """Return an unquoted character; the empty string for a quoted one and at the end."""
        at = self.at + ahead
        return self._chars[at][0] if at < len(self._chars) and not self._chars[at][1] else ""

    def rest(self) -> str:
        """Return the unquoted characters from here on, up to the next quoted one."""
        end = self.at
        while end < len(self._chars) and not self._chars[end][1]:
            end += 1
        return "".join(char for char, _ in self._chars[self.at : end])

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read unquoted characters that match; None if they do not."""
        found = pattern.match(self.rest())
        if found is not None:
            self.at += found.end()
        return found

    def takes(self, char: str) -> bool:
        """Read the next character if it is this one, unquoted; returns whether it is."""
        if self.peek() != char:
            return False
        self.at += 1
        return True

"""Debezium's regular expressions: Java's syntax, matched against the entire name, regardless of case (ASCII)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

# Java's names of ASCII character classes, which Python's re does not support.
_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Space": r"\s",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
    "L": r"^\W\d_",
    "IsAlphabetic": r"^\W\d_",
}
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)|\\p\{(?P<class>\w+)\}|(?P<anchor>\\[zZ])|\\.|\(\?<(?P<group>[A-Za-z]\w*)>|[\[\]]",
    re.DOTALL,
)


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Convert a Java regex to Python's. Raises ValueError with the reason if it is invalid."""
    try:
        return re.compile(_translate(pattern), re.IGNORECASE | re.ASCII)
    except re.error as error:
        raise ValueError(error.msg) from None


def compile_all(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Compile all patterns, in order."""
    return tuple(compile_pattern(pattern) for pattern in patterns)


def matches_any(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    """Whether one of them matches the entire name."""
    return any(pattern.fullmatch(name) for pattern in patterns)


def _translate(pattern: str) -> str:
    depth = 0
    out = []
    at = 0
    for token in _TOKEN.finditer(pattern):
        out.append(pattern[at : token.start()])
        at = token.end()
        text = token[0]
        if token["quoted"] is not None:
            text = re.escape(token["quoted"])
        elif token["class"] is not None:
            members = _CLASSES.get(token["class"])
            if members is None:
                raise ValueError(f"unknown class {text}")
            text = members if depth else f"[{members}]"
        elif token["anchor"] is not None:
            text = r"\Z"
        elif token["group"] is not None:
            text = f"(?P<{token['group']}>"
        elif text in "[]":
            depth = 1 if text == "[" else 0
        out.append(text)
    out.append(pattern[at:])
    return "".join(out)

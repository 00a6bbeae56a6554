"""Declaration of connector properties, next to the code that they configure.

A package's ``options.py`` contains a frozen dataclass whose fields are created with ``option()``. ``cdc_core.config``
collects the classes; parsing, error texts, docs/configuration.md and ``wal2lake check --explain`` are all derived from
the declarations.

The field's name is the property's with dots replaced by underscores (``decimal.handling.mode`` →
``decimal_handling_mode``; the prefix ``wal2lake.`` is removed).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

MASK = "********"
# Those of Java's long and of PostgreSQL's timeouts.
_LARGEST, _LONGEST_MS = 2**63 - 1, 2**31 - 1
_ESCAPED_OR_COMMA = re.compile(r"\\.|,", re.DOTALL)


class PropertyStatus(StrEnum):
    """How wal2lake treats a property."""

    SUPPORTED = "supported"
    NOT_YET = "not supported yet"
    IGNORED = "ignored"
    REFUSED = "refused"


class Named(StrEnum):
    """What the entries of a property name; the values complete "matches no …"."""

    NOTHING = ""
    LATER = "name that is known only when records arrive"
    SCHEMAS = "schema with tables"
    TABLES = "table"
    CAPTURED = "captured table"
    COLUMNS = "column of a captured table"
    TYPES = "column of a captured table by its type"
    # One name each, which is not a regular expression.
    TABLE = "table of the database"
    CAPTURED_TABLE = "table that is captured"


def _as_it_is(text: str) -> str:
    return text


class Secret:
    """A text that is never shown: ``repr``, ``str`` and ``format`` return a mask; ``reveal`` returns the text.

    ``resolve`` replaces references such as ``${env:NAME}`` when the text is used, so the reference, not the resolved
    value, is stored, pickled and compared.
    """

    __slots__ = ("_resolve", "_text")

    def __init__(self, text: str = "", resolve: Callable[[str], str] = _as_it_is) -> None:
        self._text = text
        self._resolve = resolve

    def reveal(self) -> str:
        """Return the text with its references resolved. Raises ConfigError if this is not possible."""
        return self._resolve(self._text)

    def __repr__(self) -> str:
        return f"Secret({self})"

    def __str__(self) -> str:
        return MASK if self._text else ""

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a connector file.

    ``parse`` converts its text to the field's value and raises ValueError with what was expected. ``aliases`` are older
    names, accepted with one warning. ``pattern`` marks a family of names (``column.mask.with.N.chars``): a regex whose
    groups, with the value, are one entry of the field's tuple. ``reason`` is why it is ignored, refused or not yet
    supported. ``names`` is what its entries name: one that names nothing is reported.
    """

    name: str
    default: Any
    doc: str
    parse: Callable[[str], Any]
    status: PropertyStatus = PropertyStatus.SUPPORTED
    reason: str = ""
    aliases: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    kind: str = "string"
    required: bool = False
    secret: bool = False
    pattern: str = ""
    names: Named = Named.NOTHING


def option(
    name: str,
    default: Any,
    doc: str,
    *,
    parse: Callable[[str], Any] | None = None,
    aliases: tuple[str, ...] = (),
    required: bool = False,
    secret: bool = False,
    pattern: str = "",
    status: PropertyStatus = PropertyStatus.SUPPORTED,
    reason: str = "",
    names: Named = Named.NOTHING,
) -> Any:
    """Declare a property as a dataclass field. The parser is derived from the default's type unless one is given."""
    parser, kind, allowed = (
        _parser_for(default)
        if parse is None
        else (parse, getattr(parse, "kind", "string"), getattr(parse, "allowed", ()))
    )
    if kind == "integer":
        parser = _bounded(parser, _LONGEST_MS if name.endswith(".ms") else _LARGEST)
    declared = Property(
        name, default, doc, parser, status, reason, aliases, allowed, kind, required, secret, pattern, names
    )
    # Families contain salts and Spark's credentials in names and values, so they are not in a repr, like secrets.
    return dataclasses.field(default=default, metadata={"property": declared}, repr=not (secret or pattern))


def properties_of(options: type[Any]) -> dict[str, Property]:
    """Return field name → Property of a package's options class, in declaration order."""
    return {f.name: f.metadata["property"] for f in dataclasses.fields(options) if "property" in f.metadata}


def _parser_for(default: Any) -> tuple[Callable[[str], Any], str, tuple[str, ...]]:
    if isinstance(default, Enum):
        return _enum_parser(type(default)), "enum", tuple(str(member.value) for member in type(default))
    # bool is before int, of which it is a subclass.
    for kind, parser, name, allowed in (
        (Secret, Secret, "password", ()),
        (bool, parse_bool, "boolean", ("true", "false")),
        (int, parse_int, "integer", ()),
        (float, parse_number, "number", ()),
        (tuple, parse_list, "list", ()),
    ):
        if isinstance(default, kind):
            return parser, name, allowed
    return str, "string", ()


def _bounded(parse: Callable[[str], int], most: int) -> Callable[[str], int]:
    def parse_bounded(text: str) -> int:
        value = parse(text)
        if value > most:
            raise ValueError(f"a whole number of {most} or less")
        return value

    return parse_bounded


def _enum_parser(members: type[Enum]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return members(text.strip().lower())
        except ValueError:
            raise ValueError("one of " + ", ".join(str(member.value) for member in members)) from None

    return parse


def parse_bool(text: str) -> bool:
    """Parse ``true`` or ``false``, in any case."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


def parse_int(text: str) -> int:
    """Parse an integer."""
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError("a whole number") from None


def parse_number(text: str) -> float:
    """Parse a finite number, with or without decimals."""
    try:
        value = float(text.strip())
    except ValueError:
        raise ValueError("a number") from None
    if not math.isfinite(value):
        raise ValueError("a number")
    return value


def at_least(minimum: int) -> Callable[[str], int]:
    """Return a parser of integers from ``minimum`` on."""

    def parse(text: str) -> int:
        try:
            value = int(text.strip())
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise ValueError(f"a whole number of {minimum} or more")
        return value

    parse.kind = "integer"  # type: ignore[attr-defined]
    return parse


def number_in(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of numbers from ``low`` to ``high``, both included."""

    def parse(text: str) -> float:
        value = parse_number(text)
        if not low <= value <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return value

    parse.kind = "number"  # type: ignore[attr-defined]
    return parse


def parse_patterns(text: str) -> tuple[str, ...]:
    """Parse comma-separated regular expressions; ``\\,`` is a comma inside one, spaces around them are removed.

    A backslash escapes the next character, so ``\\\\,`` is an escaped backslash before a separator.
    """
    parts = _ESCAPED_OR_COMMA.sub(lambda match: match[0] if match[0] != "," else "\0", text).split("\0")
    return tuple(part.strip().replace("\\,", ",") for part in parts if part.strip())


parse_patterns.kind = "list of regular expressions"  # type: ignore[attr-defined]


def parse_list(text: str) -> tuple[str, ...]:
    """Parse comma-separated values, with spaces around them removed, without empty ones."""
    return tuple(part.strip() for part in text.split(",") if part.strip())

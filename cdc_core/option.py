"""How a room declares a connector property: once, beside the behaviour it steers.

A room's ``options.py`` holds a frozen dataclass whose fields are made with ``option()``. ``cdc_core.config`` gathers the
classes; parsing, error texts, docs/configuration.md and ``wal2lake check --explain`` all derive from the declarations.
The field's name is the property's with dots turned to underscores (``decimal.handling.mode`` →
``decimal_handling_mode``; the prefix ``wal2lake.`` falls away).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any


class Status(StrEnum):
    """What wal2lake does with a property."""

    SUPPORTED = "supported"
    NOT_YET = "not carried yet"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a connector file.

    ``parse`` turns its text into the field's value and raises ValueError with what was expected. ``aliases`` are older
    names, accepted with one warning. ``pattern`` marks a family of names (``column.mask.with.N.chars``): a regex whose
    groups, with the value, make one entry of the field's tuple. ``reason`` says why it is ignored, refused or not yet.
    """

    name: str
    default: Any
    doc: str
    parse: Callable[[str], Any]
    status: Status = Status.SUPPORTED
    reason: str = ""
    aliases: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    kind: str = "string"
    required: bool = False
    secret: bool = False
    pattern: str = ""
    group: str = ""


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
    status: Status = Status.SUPPORTED,
    reason: str = "",
) -> Any:
    """Declare a property as a dataclass field. The parser follows the default's type unless one is given."""
    parser, kind, allowed = _parser_for(default) if parse is None else (parse, getattr(parse, "kind", "string"), ())
    declared = Property(
        name, default, doc, parser, status, reason, aliases, allowed, kind, required, secret, pattern
    )
    return dataclasses.field(default=default, metadata={"property": declared})


def properties_of(options: type[Any]) -> dict[str, Property]:
    """Field name → Property of a room's options class, in declaration order."""
    return {f.name: f.metadata["property"] for f in dataclasses.fields(options) if "property" in f.metadata}


def _parser_for(default: Any) -> tuple[Callable[[str], Any], str, tuple[str, ...]]:
    if isinstance(default, Enum):
        return _enum_parser(type(default)), "enum", tuple(str(member.value) for member in type(default))
    if isinstance(default, bool):
        return parse_bool, "boolean", ("true", "false")
    if isinstance(default, int):
        return parse_int, "integer", ()
    if isinstance(default, float):
        return float, "number", ()
    if isinstance(default, tuple):
        return parse_list, "list", ()
    return str, "string", ()


def _enum_parser(members: type[Enum]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return members(text.strip().lower())
        except ValueError:
            raise ValueError("one of " + ", ".join(str(member.value) for member in members)) from None

    return parse


def parse_bool(text: str) -> bool:
    """``true`` or ``false``, in any case."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


def parse_int(text: str) -> int:
    """A whole number."""
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError("a whole number") from None


def parse_list(text: str) -> tuple[str, ...]:
    """Comma-separated values, spaces around them dropped, empty ones left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())

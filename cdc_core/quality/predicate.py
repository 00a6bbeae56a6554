"""Determines what a user's predicate reads, and converts it, using the syntax tree of DuckDB's parser.

The author of a rule is the operator: what a predicate may contain is decided by DuckDB, whose connection is locked.
This module does not use DuckDB; the tree is JSON text as written by ``json_serialize_sql``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

IMAGES = ("before", "after")


class RefusedError(ValueError):
    """The text is no expression, or calls a volatile function; the message is a short description of the cause."""


@dataclass(frozen=True, slots=True)
class Uses:
    """The columns that a predicate reads: ``fields`` as (image, column), entire ``images``, other ``columns``.

    Names are in lower case, because DuckDB's identifiers are not case-sensitive.
    """

    fields: frozenset[tuple[str, str]] = frozenset()
    images: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()


def uses_of(tree: str, volatile: Collection[str]) -> Uses:
    """Return what ``SELECT <predicate>`` reads.

    Raises RefusedError if it cannot be parsed, or calls a ``volatile`` function: a repeated round must refuse the same
    rows.
    """
    fields: set[tuple[str, str]] = set()
    images: set[str] = set()
    columns: set[str] = set()
    for node in _parsed(tree):
        if node["class"] == "FUNCTION" and node["function_name"].lower() in volatile:
            name = node["function_name"].lower()
            raise RefusedError(f"the function {name}, whose result differs when a round is repeated")
        if node["class"] == "STAR":
            images.update(IMAGES)
        if node["class"] != "COLUMN_REF":
            continue
        root, *path = (name.lower() for name in node["column_names"])
        if root not in IMAGES:
            columns.add(root)
        elif path:
            fields.add((root, path[0]))
        else:
            images.add(root)
    return Uses(frozenset(fields), frozenset(images), frozenset(columns))


def columns_read(tree: str) -> frozenset[str]:
    """Return the last parts of all column names in a query's syntax tree, in lower case; none of an invalid query."""
    try:
        nodes = _parsed(tree)
    except RefusedError:
        return frozenset()
    return frozenset(node["column_names"][-1].lower() for node in nodes if node["class"] == "COLUMN_REF")


def over_new_image(condition: str, tree: str) -> tuple[str, tuple[str, ...]]:
    """Convert a condition on plain column names to one on ``after``; returns it and the names as written.

    ``tree`` is the syntax tree of ``SELECT <condition>``. Names that start with before, after or __ are not changed.
    Raises RefusedError if it cannot be parsed.
    """
    nodes = _parsed(tree)
    bound = {node["lhs"]["column_names"][0].lower() for node in nodes if node["class"] == "LAMBDA" and node.get("lhs")}
    octets = condition.encode()
    names: dict[int, str] = {}
    for node in nodes:
        if node["class"] != "COLUMN_REF":
            continue
        root, place = node["column_names"][0], node["query_location"] - len("SELECT ")
        if root.lower() in (*IMAGES, *bound) or root.startswith("__") or not 0 <= place < len(octets):
            continue
        names[place] = root
    for place in sorted(names, reverse=True):
        octets = octets[:place] + b"after." + octets[place:]
    return octets.decode(), tuple(dict.fromkeys(names.values()))


def _parsed(tree: str) -> list[dict[str, Any]]:
    """Return all expression nodes of a syntax tree. Raises RefusedError if the text could not be parsed."""
    parsed = json.loads(tree)
    if parsed["error"]:
        raise RefusedError(str(parsed.get("error_message", "no expression")).splitlines()[0])
    return list(_nodes(parsed["statements"]))


def _nodes(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every expression node below ``part``, without descending into constants."""
    if isinstance(part, list):
        for item in part:
            yield from _nodes(item)
    elif isinstance(part, dict):
        if "class" in part:
            yield part
            if part["class"] == "CONSTANT":
                return
        for value in part.values():
            yield from _nodes(value)

"""Checks a user's predicate and determines the columns it reads, using the syntax tree of DuckDB's parser.

A predicate is one expression over a change row. Everything that could access other data is refused by its kind:
subqueries, windows, stars, parameters, and each function that is not on the list of allowed ones. This module does not
use DuckDB; the tree is JSON text as written by ``json_serialize_sql``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

IMAGES = ("before", "after")

_ALLOWED_CLASSES = {
    "BETWEEN",
    "CASE",
    "CAST",
    "COLLATE",
    "COLUMN_REF",
    "COMPARISON",
    "CONJUNCTION",
    "CONSTANT",
    "FUNCTION",
    "LAMBDA",
    "OPERATOR",
    "TYPE",
}
_CLOCK_FUNCTIONS = {
    "now",
    "today",
    "current_date",
    "get_current_time",
    "get_current_timestamp",
    "transaction_timestamp",
}
_PLAIN_MACROS = {
    "ago",
    "date_add",
    "days_in_month",
    "fdiv",
    "fmod",
    "if",
    "json",
    "map_contains_entry",
    "map_contains_value",
    "md5_number_lower",
    "md5_number_upper",
    "nullif",
    "split_part",
}
_PLAIN_MACRO_PREFIXES = ("list_", "array_")
# Parsing and planning of SQL, DuckDB's internal functions, and functions about the engine instead of the row.
_REFUSED_PREFIXES = ("__internal", "json_serialize", "json_deserialize", "parse_duckdb", "icu_", "collate_")
# The last ones create lists of any length from a number, beyond DuckDB's memory limit.
_REFUSED_FUNCTIONS = {
    "in_search_path",
    "invoke",
    "version",
    "vector_type",
    "stats",
    "index_key",
    "generate_series",
    "range",
    "list_resize",
    "array_resize",
}
_WORDS = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "a star",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a positional reference",
    "DEFAULT": "DEFAULT",
}


class RefusedError(ValueError):
    """The expression is not allowed in a rule; the message is a short description of what was found."""


@dataclass(frozen=True, slots=True)
class Uses:
    """The columns that a predicate reads: ``fields`` as (image, column), entire ``images``, other ``columns``.

    Names are in lower case, because DuckDB's identifiers are not case-sensitive.
    """

    fields: frozenset[tuple[str, str]] = frozenset()
    images: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()


def plain_functions(known: Collection[tuple[str, str, str | None]]) -> frozenset[str]:
    """Return the functions allowed in a rule, of those in DuckDB: (name, function_type, stability) each.

    A scalar function must be consistent, so that a repeated round refuses the same rows; clock functions are allowed.
    Only few macros are allowed, by name, because most of them read the catalogue.
    """
    allowed = set()
    for name, kind, stability in known:
        plain = (
            kind == "scalar"
            and (stability == "CONSISTENT" or name in _CLOCK_FUNCTIONS)
            and not name.startswith(_REFUSED_PREFIXES)
            and name not in _REFUSED_FUNCTIONS
        )
        if plain or (kind == "macro" and (name in _PLAIN_MACROS or name.startswith(_PLAIN_MACRO_PREFIXES))):
            allowed.add(name.lower())
    return frozenset(allowed)


def uses_of(tree: str, functions: Collection[str]) -> Uses:
    """Return what the single expression of ``SELECT <predicate>`` reads. Raises RefusedError for anything else."""
    parsed = json.loads(tree)
    if parsed["error"]:
        raise RefusedError(str(parsed.get("error_message", "no expression")).splitlines()[0])
    fields: set[tuple[str, str]] = set()
    images: set[str] = set()
    columns: set[str] = set()
    for node in _nodes(_only_expression(parsed)):
        _check(node, functions)
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
    parsed = json.loads(tree)
    nodes = [] if parsed["error"] else _nodes(parsed["statements"])
    return frozenset(node["column_names"][-1].lower() for node in nodes if node["class"] == "COLUMN_REF")


def over_new_image(condition: str, tree: str) -> tuple[str, tuple[str, ...]]:
    """Convert a condition on plain column names to one on ``after``; returns it and the names as written.

    ``tree`` is the syntax tree of ``SELECT <condition>``. Names that start with before, after or __ are not changed.
    Raises RefusedError if the text is not an expression.
    """
    parsed = json.loads(tree)
    if parsed["error"]:
        raise RefusedError(str(parsed.get("error_message", "no expression")).splitlines()[0])
    nodes = list(_nodes(_only_expression(parsed)))
    bound = {node["lhs"]["column_names"][0].lower() for node in nodes if node["class"] == "LAMBDA" and node.get("lhs")}
    octets = condition.encode()
    found: dict[int, str] = {}
    for node in nodes:
        if node["class"] != "COLUMN_REF":
            continue
        root, place = node["column_names"][0], node["query_location"] - len("SELECT ")
        if root.lower() in (*IMAGES, *bound) or root.startswith("__") or not 0 <= place < len(octets):
            continue
        found[place] = root
    for place in sorted(found, reverse=True):
        octets = octets[:place] + b"after." + octets[place:]
    return octets.decode(), tuple(dict.fromkeys(found.values()))


def _only_expression(parsed: dict[str, Any]) -> dict[str, Any]:
    statements = parsed["statements"]
    if len(statements) != 1:
        raise RefusedError(f"{len(statements)} statements")
    if statements[0]["named_param_map"]:
        raise RefusedError(_WORDS["PARAMETER"])
    node = statements[0]["node"]
    if (
        node["type"] != "SELECT_NODE"
        or node["from_table"]["type"] != "EMPTY"
        or node["modifiers"]
        or node["cte_map"]["map"]
        or node["group_expressions"]
        or node["group_sets"]
        or node["aggregate_handling"] != "STANDARD_HANDLING"
        or any(node[clause] is not None for clause in ("where_clause", "having", "sample", "qualify"))
    ):
        raise RefusedError("a query instead of an expression")
    if len(node["select_list"]) != 1:
        raise RefusedError(f"{len(node['select_list'])} expressions")
    expression: dict[str, Any] = node["select_list"][0]
    if expression["alias"]:
        raise RefusedError("an alias")
    return expression


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


def _check(node: dict[str, Any], functions: Collection[str]) -> None:
    kind = node["class"]
    if kind not in _ALLOWED_CLASSES:
        raise RefusedError(_WORDS.get(kind, f"an expression of kind {kind.lower()}"))
    if kind == "TYPE" and (node["schema"] or node["catalog"]):
        raise RefusedError("a type of another schema")
    if kind == "FUNCTION":
        name = node["function_name"].lower()
        if node["schema"] or node["catalog"] or len(node["qualified_name"]["path"]) != 1:
            raise RefusedError("a function of another schema")
        if name not in functions:
            raise RefusedError(f"the function {name}, which a rule may not call")

"""Converts Great Expectations' expectations on single rows to conditions in DuckDB SQL on the new image.

They are then as fast as a rule and identify the failing rows. As in Great Expectations, a null passes all but
``expect_column_values_to_not_be_null``, and with ``mostly`` a share of the rows may fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core.quality.rules import literal, quote

_PREFIXES = ("expect_column_values_to_", "expect_column_value_", "expect_column_pair_values_", "expect_column_")


class NotCompiledError(Exception):
    """The expectation concerns the batch as a whole, or has no SQL equivalent here."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expectation as a rule's condition."""

    name: str
    condition: str
    description: str
    tolerated_share: float = 0.0


def compiled(kind: str, kwargs: Mapping[str, Any]) -> Compiled:
    """Convert one expectation. Raises NotCompiledError, and ValueError if its arguments are wrong."""
    make = _KINDS.get(kind)
    if make is None or kwargs.get("row_condition"):
        raise NotCompiledError
    mostly = kwargs.get("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, (int, float)) or not 0 <= mostly <= 1:
        raise ValueError("mostly is not a number from 0 to 1")
    columns = [_given(kwargs, name) for name in (("column",) if "pair" not in kind else ("column_A", "column_B"))]
    condition = make(kwargs, *(quote(name) for name in columns))
    short = next(kind.removeprefix(prefix) for prefix in _PREFIXES if kind.startswith(prefix))
    name = f"{short}:{','.join(columns)}"
    return Compiled(name, condition, f"{kind} of {', '.join(columns)}", round(1 - float(mostly), 12))


def _given(kwargs: Mapping[str, Any], name: str) -> str:
    value = kwargs.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is missing")
    return value


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return literal(value)
    raise ValueError(f"a {type(value).__name__} where a number or text belongs")


def _between(kwargs: Mapping[str, Any], subject: str) -> str:
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    parts = []
    if low is not None:
        parts.append(f"{subject} {'>' if kwargs.get('strict_min') else '>='} {_value(low)}")
    if high is not None:
        parts.append(f"{subject} {'<' if kwargs.get('strict_max') else '<='} {_value(high)}")
    if not parts:
        raise ValueError("neither min_value nor max_value is given")
    return " and ".join(parts)


def _members(kwargs: Mapping[str, Any]) -> str:
    values = kwargs.get("value_set")
    if not isinstance(values, list) or not values:
        raise ValueError("value_set is no list of values")
    return ", ".join(_value(value) for value in values)


def _regex(kwargs: Mapping[str, Any], name: str = "regex") -> str:
    return literal(_given(kwargs, name))


def _length(column: str) -> str:
    return f"length({column})"


def _whole(kwargs: Mapping[str, Any]) -> str:
    value = kwargs.get("value")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("value is no whole number")
    return str(value)


def _pair(kwargs: Mapping[str, Any], first: str, second: str) -> str:
    return f"{first} {'>=' if kwargs.get('or_equal') else '>'} {second}"


_KINDS: dict[str, Callable[..., str]] = {
    "expect_column_values_to_not_be_null": lambda _, c: f"{c} is not null",
    "expect_column_values_to_be_null": lambda _, c: f"{c} is null",
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": lambda k, c: f"{c} in ({_members(k)})",
    "expect_column_values_to_not_be_in_set": lambda k, c: f"{c} not in ({_members(k)})",
    "expect_column_values_to_match_regex": lambda k, c: f"regexp_matches({c}, {_regex(k)})",
    "expect_column_values_to_not_match_regex": lambda k, c: f"not regexp_matches({c}, {_regex(k)})",
    "expect_column_values_to_match_like_pattern": lambda k, c: f"{c} like {_regex(k, 'like_pattern')}",
    "expect_column_values_to_not_match_like_pattern": lambda k, c: f"{c} not like {_regex(k, 'like_pattern')}",
    "expect_column_value_lengths_to_be_between": lambda k, c: _between(k, _length(c)),
    "expect_column_value_lengths_to_equal": lambda k, c: f"{_length(c)} = {_whole(k)}",
    "expect_column_pair_values_a_to_be_greater_than_b": _pair,
    "expect_column_pair_values_to_be_equal": lambda _, a, b: f"{a} = {b}",
}

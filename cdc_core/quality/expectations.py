"""How the metrics of Great Expectations' expectations are computed from a slice's new rows, in DuckDB SQL.

``measured`` returns SQL whose results are those of the library's own pandas engine: which rows are unexpected, or the
aggregates that an expectation on a slice as a whole judges. What it does not know (an expectation, an argument, a
column's type) the library evaluates itself. As in pandas, NaN is no value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from enum import Enum, auto
from typing import Any

import pyarrow as pa

from cdc_core.quality.regex import translated
from cdc_core.quality.rules import literal, quote

_PREFIXES = (
    "expect_column_values_to_",
    "expect_column_value_",
    "expect_column_pair_values_",
    "expect_column_",
    "expect_",
)
COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list")
# Arguments that do not change which rows are unexpected; those that select rows are evaluated by the library.
_WITHOUT_EFFECT = {"mostly", "batch_id", "result_format", "catch_exceptions"}
JUDGED = "filter (where $applies)"
"""Stands in aggregates for the filter that selects the rows to be judged."""

_EXACT = Context(prec=400)
_DIGITS = 38
_FLOAT32_MAX = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Measured:
    """SQL over the columns of ``after``: a condition that is false for unexpected rows, or aggregates by metric.

    ``ignored`` is true for rows without a value to be judged. ``is_presence``: only whether the columns have values is
    read, so they may be of any type.
    """

    predicate: str = "true"
    ignored: str = "false"
    measures: tuple[tuple[str, str], ...] = ()
    is_presence: bool = False


class _Kind(Enum):
    WHOLE = auto()
    EXACT = auto()
    FLOAT = auto()
    FLOAT32 = auto()
    TEXT = auto()
    TRUTH = auto()


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as a SQL expression that is null where pandas has no value; ``scale`` is that of a decimal."""

    sql: str
    kind: _Kind
    scale: int = 0

    @property
    def missing(self) -> str:
        return f"({self.sql}) is null"


def short_name(kind: str, kwargs: Mapping[str, Any]) -> str:
    """A name for an expectation without one: its kind and its columns."""
    short = next((kind.removeprefix(prefix) for prefix in _PREFIXES if kind.startswith(prefix)), kind)
    named = columns_of(kwargs)
    return f"{short}:{','.join(named)}" if named else short


def columns_of(kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that an expectation names."""
    names: list[str] = []
    for name in COLUMN_ARGUMENTS:
        value = kwargs.get(name)
        names += [value] if isinstance(value, str) else [column for column in value or () if isinstance(column, str)]
    return tuple(dict.fromkeys(names))


def measured(kind: str, kwargs: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> Measured | None:
    """Return how DuckDB computes the expectation's metrics; None if it does not."""
    arguments = {name: value for name, value in kwargs.items() if value is not None and name not in _WITHOUT_EFFECT}
    if kind in _TABLE:
        return _TABLE[kind](types) if arguments.keys() <= _BETWEEN | {"value"} else None
    if kind in _PRESENCE:
        return _presence(kind, arguments, types)
    if kind in _PAIRS:
        return _pair(kind, arguments, types)
    return _of_column(kind, arguments, types)


def _of_column(kind: str, arguments: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> Measured | None:
    make, known = {**_ROWS, **_AGGREGATES}.get(kind, (None, frozenset[str]()))
    column = _column(arguments.get("column"), types)
    expression = None
    if make is not None and column is not None and arguments.keys() <= known | {"column"}:
        expression = make(column, arguments)
    if expression is None or column is None:
        return None
    if kind in _AGGREGATES:
        return Measured(measures=((_AGGREGATE_METRICS[kind], expression),))
    return Measured(expression, column.missing)


def _column(name: Any, types: Mapping[str, pa.DataType]) -> _Column | None:
    kind = types.get(name) if isinstance(name, str) else None
    if kind is None:
        return None
    sql = f"after.{quote(name)}"
    if pa.types.is_integer(kind):
        return _Column(sql, _Kind.WHOLE)
    if pa.types.is_decimal128(kind):
        return _Column(sql, _Kind.EXACT, kind.scale)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        nan = f"case when isnan({sql}) then null else {sql} end"
        return _Column(nan, _Kind.FLOAT32 if pa.types.is_float32(kind) else _Kind.FLOAT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _Column(sql, _Kind.TEXT)
    return _Column(sql, _Kind.TRUTH) if pa.types.is_boolean(kind) else None


def _presence(kind: str, arguments: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> Measured | None:
    name = arguments.get("column")
    if arguments.keys() != {"column"} or not isinstance(name, str) or name not in types:
        return None
    is_null = kind == "expect_column_values_to_be_null"
    column = _column(name, types)
    missing = f"after.{quote(name)} is null" if column is None else column.missing
    # A null is what both judge, so none is ignored.
    predicate = missing if is_null else f"not ({missing})"
    is_presence = column is None or column.kind not in (_Kind.FLOAT, _Kind.FLOAT32)
    return Measured(predicate, missing if is_null else "false", is_presence=is_presence)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _compared(column: _Column, operator: str, value: Any) -> str | None:
    """``column operator value``, exactly: in pandas a decimal column has Python's decimals."""
    if not _is_number(value):
        return None
    if column.kind in (_Kind.WHOLE, _Kind.EXACT):
        return _exactly(column, operator, value)
    kinds = {_Kind.FLOAT: "double", _Kind.FLOAT32: "float"}
    if column.kind not in kinds or (column.kind is _Kind.FLOAT32 and abs(value) >= _FLOAT32_MAX):
        return None
    return f"{column.sql} {operator} cast('{float(value)!r}' as {kinds[column.kind]})"


def _exactly(column: _Column, operator: str, value: int | float) -> str | None:
    up = operator in (">=", "<")
    step = Decimal(1).scaleb(-column.scale)
    bound = Decimal(value).quantize(step, ROUND_CEILING if up else ROUND_FLOOR, context=_EXACT)
    if abs(bound) >= Decimal(10) ** (_DIGITS - column.scale - 1):
        return None
    return f"{column.sql} {operator} cast('{bound:f}' as decimal({_DIGITS}, {column.scale}))"


def _between(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    low, high = arguments.get("min_value"), arguments.get("max_value")
    if low is None and high is None:
        return None
    parts = []
    if low is not None:
        parts.append(_compared(column, ">" if arguments.get("strict_min") else ">=", low))
    if high is not None:
        parts.append(_compared(column, "<" if arguments.get("strict_max") else "<=", high))
    known = [part for part in parts if part is not None]
    is_known = len(known) == len(parts) and (low is None or high is None or low <= high)  # others the library refuses
    return " and ".join(known) if is_known else None


def _members(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    values = arguments.get("value_set")
    if not isinstance(values, list) or not values:
        return None
    if column.kind is _Kind.TEXT:
        is_known = all(isinstance(value, str) and "\0" not in value for value in values)
        return f"{column.sql} in ({', '.join(map(literal, values))})" if is_known else None
    if column.kind is _Kind.WHOLE:
        whole = all(isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 for value in values)
        return f"{column.sql} in ({', '.join(map(str, values))})" if whole else None
    return None


def _not_members(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    members = _members(column, arguments)
    return None if members is None else f"not ({members})"


def _regex(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    pattern = arguments.get("regex")
    regex = translated(pattern) if column.kind is _Kind.TEXT and isinstance(pattern, str) else None
    return None if regex is None else f"regexp_matches({column.sql}, {literal(regex)})"


def _not_regex(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    matches = _regex(column, arguments)
    return None if matches is None else f"not {matches}"


def _like(column: _Column, patterns: Any, joined: str, operator: str) -> str | None:
    """``column operator pattern`` for each pattern: SQL's LIKE without an escape character, as DuckDB has it."""
    is_known = isinstance(patterns, list) and patterns and all(isinstance(pattern, str) for pattern in patterns)
    if column.kind is not _Kind.TEXT or not is_known:
        return None
    return "(" + joined.join(f"{column.sql} {operator} {literal(pattern)}" for pattern in patterns) + ")"


def _matches_like(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    return _like(column, [arguments.get("like_pattern")], " and ", "like")


def _matches_no_like(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    return _like(column, [arguments.get("like_pattern")], " and ", "not like")


def _matches_likes(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    joins = {"any": " or ", "all": " and "}
    how = arguments.get("match_on", "any")
    return _like(column, arguments.get("like_pattern_list"), joins[how], "like") if how in joins else None


def _matches_no_likes(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    return _like(column, arguments.get("like_pattern_list"), " and ", "not like")


def _lengths(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    return _between(_Column(f"length({column.sql})", _Kind.WHOLE), arguments) if column.kind is _Kind.TEXT else None


def _length(column: _Column, arguments: Mapping[str, Any]) -> str | None:
    value = arguments.get("value")
    is_known = column.kind is _Kind.TEXT and isinstance(value, int) and not isinstance(value, bool)
    return f"length({column.sql}) = {value}" if is_known else None


def _pair(kind: str, arguments: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> Measured | None:
    first, second = (_column(arguments.get(name), types) for name in ("column_A", "column_B"))
    if first is None or second is None or not arguments.keys() <= {"column_A", "column_B", "or_equal", "ignore_row_if"}:
        return None
    if (first.kind, first.scale) != (second.kind, second.scale) or first.kind is _Kind.FLOAT32:
        return None
    if kind == "expect_column_pair_values_to_be_equal":
        operator = "="
    elif first.kind in (_Kind.WHOLE, _Kind.FLOAT):
        operator = ">=" if arguments.get("or_equal") else ">"
    else:
        return None  # Python does not order missing values of other types
    joins = {"both_values_are_missing": "and", "either_value_is_missing": "or"}
    how = arguments.get("ignore_row_if", "both_values_are_missing")
    if how not in (*joins, "neither"):
        return None
    ignored = "false" if how == "neither" else f"({first.missing} {joins[how]} {second.missing})"
    # A row with one value is unexpected: a comparison with no value is false.
    return Measured(f"{ignored} or coalesce({first.sql} {operator} {second.sql}, false)", ignored)


def _numeric(function: str) -> Callable[[_Column, Mapping[str, Any]], str | None]:
    def make(column: _Column, _: Mapping[str, Any]) -> str | None:
        if column.kind is _Kind.WHOLE and function in ("avg", "sum"):
            call = f"{function}({column.sql}) {JUDGED}"  # without a rounding error
        elif column.kind in (_Kind.WHOLE, _Kind.EXACT, _Kind.FLOAT):
            call = f"{function}(cast({column.sql} as double)) {JUDGED}"
        else:
            return None
        return f"coalesce({call}, 0)" if function == "sum" else call

    return make


def _extreme(function: str) -> Callable[[_Column, Mapping[str, Any]], str | None]:
    def make(column: _Column, _: Mapping[str, Any]) -> str | None:
        known = (_Kind.WHOLE, _Kind.EXACT, _Kind.FLOAT, _Kind.TEXT)
        return f"{function}({column.sql}) {JUDGED}" if column.kind in known else None

    return make


def _distinct(column: _Column, _: Mapping[str, Any]) -> str | None:
    return f"count(distinct {column.sql}) {JUDGED}"


def _unique_share(column: _Column, _: Mapping[str, Any]) -> str | None:
    present = f"nullif(count({column.sql}) {JUDGED}, 0)"
    return f"coalesce(count(distinct {column.sql}) {JUDGED} / {present}, 0)"


def _present_share(column: _Column, _: Mapping[str, Any]) -> str | None:
    return f"coalesce(count({column.sql}) {JUDGED} / nullif(count(*) {JUDGED}, 0), 0)"


_BETWEEN = frozenset({"min_value", "max_value", "strict_min", "strict_max"})
_Make = Callable[[_Column, Mapping[str, Any]], "str | None"]
_PRESENCE = ("expect_column_values_to_not_be_null", "expect_column_values_to_be_null")
_PAIRS = ("expect_column_pair_values_a_to_be_greater_than_b", "expect_column_pair_values_to_be_equal")
_ROWS: dict[str, tuple[_Make, frozenset[str]]] = {
    "expect_column_values_to_be_between": (_between, _BETWEEN),
    "expect_column_values_to_be_in_set": (_members, frozenset({"value_set"})),
    "expect_column_values_to_not_be_in_set": (_not_members, frozenset({"value_set"})),
    "expect_column_values_to_match_regex": (_regex, frozenset({"regex"})),
    "expect_column_values_to_not_match_regex": (_not_regex, frozenset({"regex"})),
    "expect_column_values_to_match_like_pattern": (_matches_like, frozenset({"like_pattern"})),
    "expect_column_values_to_not_match_like_pattern": (_matches_no_like, frozenset({"like_pattern"})),
    "expect_column_values_to_match_like_pattern_list": (
        _matches_likes,
        frozenset({"like_pattern_list", "match_on"}),
    ),
    "expect_column_values_to_not_match_like_pattern_list": (_matches_no_likes, frozenset({"like_pattern_list"})),
    "expect_column_value_lengths_to_be_between": (_lengths, _BETWEEN),
    "expect_column_value_lengths_to_equal": (_length, frozenset({"value"})),
}
_AGGREGATE_METRICS = {
    "expect_column_mean_to_be_between": "column.mean",
    "expect_column_sum_to_be_between": "column.sum",
    "expect_column_median_to_be_between": "column.median",
    "expect_column_stdev_to_be_between": "column.standard_deviation",
    "expect_column_min_to_be_between": "column.min",
    "expect_column_max_to_be_between": "column.max",
    "expect_column_unique_value_count_to_be_between": "column.distinct_values.count",
    "expect_column_proportion_of_unique_values_to_be_between": "column.unique_proportion",
    "expect_column_proportion_of_non_null_values_to_be_between": "column.non_null_proportion",
}
_AGGREGATE_MAKERS: dict[str, _Make] = {
    "column.mean": _numeric("avg"),
    "column.sum": _numeric("sum"),
    "column.median": _numeric("median"),
    "column.standard_deviation": _numeric("stddev_samp"),
    "column.min": _extreme("min"),
    "column.max": _extreme("max"),
    "column.distinct_values.count": _distinct,
    "column.unique_proportion": _unique_share,
    "column.non_null_proportion": _present_share,
}
_AGGREGATES = {kind: (_AGGREGATE_MAKERS[metric], _BETWEEN) for kind, metric in _AGGREGATE_METRICS.items()}
_ROW_COUNT = Measured(measures=(("table.row_count", f"count(*) {JUDGED}"),))
_TABLE: dict[str, Callable[[Mapping[str, pa.DataType]], Measured]] = {
    "expect_table_row_count_to_be_between": lambda _: _ROW_COUNT,
    "expect_table_row_count_to_equal": lambda _: _ROW_COUNT,
}

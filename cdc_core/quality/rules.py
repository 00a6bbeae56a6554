"""A rule of a table is one expectation of Great Expectations, and how its metrics are computed from change rows.

    kind, kwargs        the expectation: a class of the library, or ``expect_rows_to_satisfy_condition`` (``condition``)
    applies, predicate, ignored, measures       DuckDB SQL from which its metrics are computed in one pass (``duck``)

The expectation judges the metrics (``great_expectations``); SQL decides nothing by itself. This module uses neither
library: a rule is text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pyarrow as pa

from cdc_core.quality.options import UserRule
from cdc_core.schema import Column, PgType, TableSchema, TypeKind

CONDITION = "expect_rows_to_satisfy_condition"
"""The type of expectations that carry a condition in SQL (``quality.condition``)."""

KEY_UNIQUE = "key_unique_in_batch"
"""The name of the rule over all changes of a batch; the caller determines its failures."""

NOT_NULL, LENGTH, MEMBER = (
    "expect_column_values_to_not_be_null",
    "expect_column_value_lengths_to_be_between",
    "expect_column_values_to_be_in_set",
)
GENERATED_KINDS = frozenset({CONDITION, NOT_NULL, LENGTH, MEMBER})
"""The types of expectations of generated rules."""

_LENGTH_TYPES = ("varchar", "bpchar")
_TYPMOD_HEADER = 4  # atttypmod of varchar(n) and char(n) includes the four bytes of the length word
_UNBOUNDED_TYPES = ("numeric", "date", "timestamp", "timestamptz", "time", "timetz")
_CONSTRAINTS = ("not_null", "max_length", "enum_member", KEY_UNIQUE)
_HAS_AFTER = "__op in ('c', 'u', 'r')"


class Severity(StrEnum):
    """The consequence of a failed expectation.

    ``error``, Great Expectations' critical: its unexpected rows are quarantined, and the table is paused if it is one
    on a slice as a whole. ``warn``: it is reported.
    """

    ERROR = "error"
    WARN = "warn"


class Origin(StrEnum):
    """The origin of a rule: the format of change rows, the source's catalogue, or the connector file."""

    ROW = "row"
    CATALOGUE = "catalogue"
    USER = "user"


class Reads(StrEnum):
    """What a rule reads of its column in either image: nothing, whether it has a value, or the value itself."""

    NOTHING = "nothing"
    PRESENCE = "presence"
    VALUE = "value"


class By(StrEnum):
    """What computes a rule's metrics: one DuckDB statement for all rules, its own query, or the library with pandas."""

    SQL = "sql"
    QUERY = "query"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class Rule:
    """One expectation on a slice's change rows (``__op``, ``__commit_lsn``, ``before.<column>``, ``after.<column>`` …).

    ``applies`` selects the rows that it judges. Of these, ``ignored`` ones have no value to be judged, and a row is
    unexpected if ``predicate`` is false; as in a CHECK constraint, null passes. ``measures`` are (metric, aggregate) of
    an expectation on the slice as a whole, which has no unexpected rows. A rule by QUERY or LIBRARY has none of these
    but ``columns``, those it judges: rows without their values are left out.

    ``column`` is the rule's column, empty for the entire row or its key, and ``reads`` what it reads of that column and
    of ``columns``; for a user's condition this is determined from its text. ``description`` is a sentence for users.
    For rows up to the commit LSN ``since`` it is unknown whether the rule was in force in the source, so these pass. If
    at most ``tolerated_rows``, or that share of the rows, are unexpected, the condition's expectation is met.
    """

    name: str
    column: str
    predicate: str
    description: str
    severity: Severity = Severity.ERROR
    applies: str = "true"
    origin: Origin = Origin.CATALOGUE
    reads: Reads = Reads.VALUE
    since: int = 0
    tolerated_rows: int = 0
    tolerated_share: float = 0.0
    kind: str = CONDITION
    kwargs: str = ""
    ignored: str = "false"
    measures: tuple[tuple[str, str], ...] = ()
    by: By = By.SQL
    columns: tuple[str, ...] = ()

    @property
    def failure(self) -> str:
        """SQL that is true for an unexpected row, else false or null."""
        # The line break ends a comment at the end of a user's predicate.
        return f"(({self.applies}) and not ({self.predicate}\n))"

    @property
    def arguments(self) -> dict[str, Any]:
        """The expectation's keyword arguments."""
        if self.kind != CONDITION:
            arguments: dict[str, Any] = json.loads(self.kwargs)
            return arguments
        mostly = round(1 - self.tolerated_share, 12)
        return {
            "condition": self.predicate,
            "applies": self.applies,
            "mostly": mostly,
            "tolerated_rows": self.tolerated_rows,
        }

    @property
    def is_condition(self) -> bool:
        """Whether the predicate is a user's own text."""
        return self.origin is Origin.USER and self.kind == CONDITION

    @property
    def plain_name(self) -> str:
        """The name as users write it."""
        return self.name.removeprefix("user:")

    def is_among(self, names: Collection[str]) -> bool:
        """Whether the rule is one of these, which may be without ``user:``."""
        return self.name in names or self.plain_name in names


def rules_for(
    table: TableSchema,
    natural: Mapping[str, pa.DataType],
    user_rules: Iterable[tuple[str, UserRule]] = (),
    mapped: Collection[str] = (),
    since: Mapping[str, int] | None = None,
) -> tuple[Rule, ...]:
    """Return all rules of one table: those of every change row, the catalogue's, and the user's.

    ``natural`` maps the columns of ``after`` to their natural types; a column missing in it is not in the change rows
    and gets no rule. ``mapped`` names columns whose values were masked, truncated or hashed: only their presence is
    checked. ``user_rules`` contains (name, rule) of every table; those of others are left out. ``since`` maps columns
    to the commit LSN up to which their constraints may have been different; a column missing in it has none.
    """
    carried = [column for column in table.columns if column.name in natural]
    rules = [*row_rules()]
    # What a delete carries: under REPLICA IDENTITY USING INDEX not the primary key.
    key = table.row_key
    rules += [key_rule(column.name) for column in carried if column.name in key]
    if _has_enforced_key(table) and set(table.row_key) <= natural.keys() - set(mapped):
        rules.append(_key_unique_rule(table.row_key))
    for column in carried:
        if not column.optional and column.name not in key:
            rules.append(not_null_rule(column.name))
        if column.name not in mapped:
            rules += _value_rules(column, natural[column.name])
    if since:
        rules = [replace(rule, since=since.get(rule.column, 0)) if _is_constraint(rule) else rule for rule in rules]
    rules += user_rules_for(table, user_rules)
    return tuple(rules)


def user_rules_for(table: TableSchema, user_rules: Iterable[tuple[str, UserRule]]) -> list[Rule]:
    """Return the rules of the connector file for ``table``."""
    return [
        Rule(
            f"user:{name}",
            "",
            rule.predicate,
            f"{name}: {rule.predicate}",
            applies="__op <> 't'",
            origin=Origin.USER,
        )
        for name, rule in user_rules
        if rule.table == str(table.id)
    ]


def _is_constraint(rule: Rule) -> bool:
    """Whether the rule is a constraint of the source, which ALTER TABLE may have set recently."""
    return rule.origin is Origin.CATALOGUE and rule.name.partition(":")[0] in _CONSTRAINTS


def quote(name: str) -> str:
    """A column's name as a SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def row_rules() -> tuple[Rule, ...]:
    """Return the rules on the form and the position of every change row."""
    return (
        Rule(
            "op_known",
            "__op",
            "coalesce(__op in ('c', 'u', 'd', 'r', 't'), false)",
            "the operation is one of create, update, delete, read, truncate",
            origin=Origin.ROW,
        ),
        Rule(
            "position_valid",
            "__commit_lsn",
            "coalesce(__commit_lsn > 0 and (__tx_index >= 0 or __op = 'r'), false)",
            "the row has a commit LSN above zero and, unless it was read, an index in its transaction",
            origin=Origin.ROW,
        ),
        Rule(
            "lsn_order",
            "__lsn",
            "__lsn <= __commit_lsn",
            "the change lies before its transaction's commit in the log",
            origin=Origin.ROW,
        ),
        Rule(
            "image_present",
            "",
            f"case when {_HAS_AFTER} then after is not null"
            " when __op = 'd' then before is not null"
            " when __op = 't' then before is null and after is null end",
            "create, update and read have a new row, delete an old one, truncate neither",
            origin=Origin.ROW,
        ),
    )


def key_rule(name: str) -> Rule:
    """Return the rule that a key column has a value."""
    after, before = f"after.{quote(name)}", f"before.{quote(name)}"
    return Rule(
        f"key_not_null:{name}",
        name,
        f"case when __op = 'd' then {before} is not null or {_rescued('before', name)}"
        f" else {after} is not null or {_rescued('after', name)} or ({_unchanged(name)} and {before} is not null) end",
        f"key column {name} has a value",
        applies=f"(({_HAS_AFTER} and after is not null) or (__op = 'd' and before is not null))",
        reads=Reads.PRESENCE,
    )


def _key_unique_rule(key: Sequence[str]) -> Rule:
    return Rule(
        KEY_UNIQUE,
        "",
        "true",
        f"no two inserts of one key ({', '.join(key)}) without its delete between them",
        reads=Reads.NOTHING,
    )


def _has_enforced_key(table: TableSchema) -> bool:
    """Whether two inserts of one key in the stream always have an event in between that removed the first row.

    Rows of a partitioned table also disappear when a partition is detached or truncated, those of a filtered one by the
    filter; there are no events for either.
    """
    marks, key = table.fingerprint, table.row_key
    if not key or marks is None or marks.is_partitioned:
        return False
    published = marks.publication
    if published is None:
        return True
    return set("udt") <= set(published.operations) and not any(entry.is_filtered for entry in published.entries)


def _value_rules(column: Column, natural: pa.DataType) -> list[Rule]:
    rules = []
    base, modifier = _base_type(column.type, column.modifier)
    is_text = pa.types.is_string(natural) or pa.types.is_large_string(natural)
    if base.name in _LENGTH_TYPES and modifier > _TYPMOD_HEADER and is_text:
        rules.append(length_rule(column.name, modifier - _TYPMOD_HEADER))
    if base.kind is TypeKind.ENUM and base.labels and is_text:
        rules.append(enum_rule(column.name, base.labels))
    if base.name in _UNBOUNDED_TYPES and not is_text:
        rules.append(natural_range_rule(column.name, str(natural)))
    return rules


def not_null_rule(name: str) -> Rule:
    """Return the rule of a column that is NOT NULL."""
    return Rule(
        f"not_null:{name}",
        name,
        f"after.{quote(name)} is not null or {_unchanged(name)} or {_rescued('after', name)}",
        f"column {name} is NOT NULL at the source",
        applies=f"{_HAS_AFTER} and after is not null",
        reads=Reads.PRESENCE,
        kind=NOT_NULL,
        kwargs=json.dumps({"column": name}),
    )


def length_rule(name: str, length: int) -> Rule:
    """Return the rule of a column of at most ``length`` characters."""
    return Rule(
        f"max_length:{name}",
        name,
        f"length(after.{quote(name)}) <= {length}",
        f"column {name} holds at most {length} characters",
        applies=_HAS_AFTER,
        kind=LENGTH,
        kwargs=json.dumps({"column": name, "max_value": length}),
        ignored=f"after.{quote(name)} is null",
    )


def enum_rule(name: str, labels: Sequence[str]) -> Rule:
    """Return the rule of a column of an enum with these labels."""
    return Rule(
        f"enum_member:{name}",
        name,
        f"after.{quote(name)} in ({', '.join(literal(label) for label in labels)})",
        f"column {name} holds one of its enum's {len(labels)} labels",
        applies=_HAS_AFTER,
        kind=MEMBER,
        kwargs=json.dumps({"column": name, "value_set": list(labels)}),
        ignored=f"after.{quote(name)} is null",
    )


def natural_range_rule(name: str, natural: str) -> Rule:
    """Return the rule that values fit their type in the lake, ``natural``."""
    return Rule(
        f"natural_range:{name}",
        name,
        f"not {_rescued('after', name)}",
        f"column {name} fits {natural}; a value that does not is kept as text in __rescued",
        severity=Severity.WARN,
        applies=_HAS_AFTER,
        reads=Reads.NOTHING,
    )


def _unchanged(name: str) -> str:
    return f"coalesce(list_contains(__unchanged, {literal(name)}), false)"


def _rescued(image: str, name: str) -> str:
    return f"coalesce(map_contains({image}.__rescued, {literal(name)}), false)"


def _base_type(declared: PgType, modifier: int) -> tuple[PgType, int]:
    """Return a domain's base with the modifier in force: the domain's own, else the column's."""
    while declared.kind is TypeKind.DOMAIN and declared.inner is not None:
        modifier = declared.inner_modifier if declared.inner_modifier > 0 else modifier
        declared = declared.inner
    return declared, modifier

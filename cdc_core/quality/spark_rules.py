"""The rules of cdc_core.quality.rules in Spark's dialect, for rounds that Spark checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from cdc_core.quality.options import UserRule
from cdc_core.quality.rules import Origin, Rule, Severity
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column, TableSchema

_LENGTH_TYPES = ("varchar", "bpchar")
_TYPMOD_HEADER = 4  # atttypmod of varchar(n) and char(n) counts the four bytes of the length word
_UNBOUNDED_TYPES = ("numeric", "date", "timestamp", "timestamptz", "time", "timetz")
_HAS_AFTER = "coalesce(__op in ('c', 'u', 'r'), false)"
_HAS_BEFORE = "coalesce(__op = 'd', false)"


def rules_for(
    table: TableSchema,
    natural: Mapping[str, pa.DataType],
    user_rules: Iterable[tuple[str, UserRule]] = (),
    mapped: Collection[str] = (),
) -> tuple[Rule, ...]:
    """All rules of one table: those of every change row, the catalogue's, and the user's.

    ``natural`` maps the columns of ``after`` to their natural types; a column that it lacks is not in the change rows
    and gets no rule. ``mapped`` names columns whose values were masked, truncated or hashed: of these only their
    presence is checked. ``user_rules`` holds (name, rule) of every table; the others' are left out.
    """
    carried = [column for column in table.columns if column.name in natural]
    rules = [*_row_rules()]
    key = table.lake_key
    rules += [_key_rule(column.name) for column in carried if column.name in key]
    for column in carried:
        if not column.optional and column.name not in key:
            rules.append(_not_null_rule(column.name))
        if column.name not in mapped:
            rules += _value_rules(column, natural[column.name])
    rules += user_rules_for(table, user_rules)
    return tuple(rules)


def user_rules_for(table: TableSchema, user_rules: Iterable[tuple[str, UserRule]]) -> list[Rule]:
    """The rules that the connector file names for ``table``."""
    return [
        Rule(
            f"user:{name}",
            "",
            f"({rule.predicate})",
            f"{name}: {rule.predicate}",
            applies="coalesce(__op <> 't', false)",
            origin=Origin.USER,
        )
        for name, rule in user_rules
        if rule.table == str(table.id)
    ]


def quote(name: str) -> str:
    """A column's name as a Spark SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a Spark SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def _row_rules() -> tuple[Rule, ...]:
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
            "coalesce(__commit_lsn > 0 and __tx_index >= if(__op = 'r', -1, 0), false)",
            "the row has a commit LSN above zero and an index in its transaction",
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
            f" when {_HAS_BEFORE} then before is not null"
            " when __op = 't' then before is null and after is null end",
            "create, update and read have a new row, delete an old one, truncate neither",
            origin=Origin.ROW,
        ),
    )


def _key_rule(name: str) -> Rule:
    after, before = f"after.{quote(name)}", f"before.{quote(name)}"
    unchanged = f"coalesce(array_contains(__unchanged, {literal(name)}), false)"
    return Rule(
        f"key_not_null:{name}",
        name,
        f"case when __op = 'd' then {before} is not null or {_rescued('before', name)}"
        f" else {after} is not null or {_rescued('after', name)} or ({unchanged} and {before} is not null) end",
        f"key column {name} has a value",
        applies=f"(({_HAS_AFTER} and after is not null) or ({_HAS_BEFORE} and before is not null))",
    )


def _value_rules(column: Column, natural: pa.DataType) -> list[Rule]:
    rules = []
    base, modifier = _base_type(column.type, column.modifier)
    is_text = pa.types.is_string(natural) or pa.types.is_large_string(natural)
    if base.name in _LENGTH_TYPES and modifier > _TYPMOD_HEADER and is_text:
        rules.append(_length_rule(column.name, modifier - _TYPMOD_HEADER))
    if base.kind is TypeKind.ENUM and base.labels and is_text:
        rules.append(_enum_rule(column.name, base.labels))
    if base.name in _UNBOUNDED_TYPES and not is_text:
        rules.append(_natural_range_rule(column.name, str(natural)))
    return rules


def _not_null_rule(name: str) -> Rule:
    return Rule(
        f"not_null:{name}",
        name,
        f"after.{quote(name)} is not null or coalesce(array_contains(__unchanged, {literal(name)}), false)"
        f" or {_rescued('after', name)}",
        f"column {name} is NOT NULL at the source",
        applies=f"({_HAS_AFTER} and after is not null)",
    )


def _length_rule(name: str, length: int) -> Rule:
    return Rule(
        f"max_length:{name}",
        name,
        f"char_length(after.{quote(name)}) <= {length}",
        f"column {name} holds at most {length} characters",
        applies=_HAS_AFTER,
    )


def _enum_rule(name: str, labels: Sequence[str]) -> Rule:
    return Rule(
        f"enum_member:{name}",
        name,
        f"after.{quote(name)} in ({', '.join(literal(label) for label in labels)})",
        f"column {name} holds one of its enum's {len(labels)} labels",
        applies=_HAS_AFTER,
    )


def _natural_range_rule(name: str, natural: str) -> Rule:
    return Rule(
        f"natural_range:{name}",
        name,
        f"not {_rescued('after', name)}",
        f"column {name} fits {natural}; a value that does not is kept as text in __rescued",
        severity=Severity.WARN,
        applies=_HAS_AFTER,
    )


def _rescued(image: str, name: str) -> str:
    return f"coalesce(map_contains_key({image}.__rescued, {literal(name)}), false)"


def _base_type(declared: PgType, modifier: int) -> tuple[PgType, int]:
    """A domain's base with the modifier in force: the domain's own, else the column's."""
    while declared.kind is TypeKind.DOMAIN and declared.inner is not None:
        modifier = declared.inner_modifier if declared.inner_modifier > 0 else modifier
        declared = declared.inner
    return declared, modifier

"""The included columns of a table, and the transformation of each.

Debezium's order (ColumnMappers): truncation, mask, propagation by column, propagation by type, hash version 1, hash
version 2. Only the first rule that matches a column is applied, so a truncated column is not also hashed. Mappers
change values only: they are not applied to the event's key or to a default in a schema.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from cdc_core.schema import Column, TableSchema
from cdc_core.selection.digests import DIGESTS
from cdc_core.selection.mappers import Hash, Mask, TruncateBytes, TruncateMapper
from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.patterns import Pattern, compile_all, matches_any
from cdc_core.selection.source_types import is_bytes, is_character, is_textual, source_type

Mapper = Callable[[pa.Array], pa.Array]
EXCLUDED = "excluded"  # the treatment of a column that is not captured
SKIPPED = ""  # the key of skipped operations, among the treatments of columns by name


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The treatment of one column.

    ``mapper`` converts PostgreSQL's text[N] to text[N] before the type's converter, or is None if values are unchanged.
    ``parameters`` are added to the field's schema, after the type's own. ``hides`` is true if the mapper replaces
    values (mask, hash), false if it only shortens them. ``cut`` is the length of a truncation, which in an event is
    applied to the string or bytes returned by the converter, numbers in string modes included; None for no truncation.
    ``note`` is set if a rule matches a column it cannot change: the text that follows the column's name in the warning.
    """

    name: str
    included: bool
    mapper: Mapper | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    hides: bool = False
    note: str = ""
    cut: int | None = None

    @property
    def treatment(self) -> str:
        """What becomes of the column's values in the lake, as a text that is stored: empty if they are unchanged.

        A salt is part of it only through a digest. Equal texts: equal values have become equal ones.
        """
        if not self.included:
            return EXCLUDED
        match self.mapper:
            case None:
                return ""
            case TruncateMapper(length) | TruncateBytes(length):
                return f"truncated to {length}"
            case Mask(length):
                return f"masked with {length}"
            case mapper:
                return f"hashed {_digest(mapper)}"


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    patterns: tuple[Pattern, ...]
    number: int = 0
    algorithm: str = ""
    salt: str = ""

    @property
    def property(self) -> str:
        """The property that it is from, without a salt."""
        match self.kind:
            case "truncate":
                return f"column.truncate.to.{self.number}.chars"
            case "mask":
                return f"column.mask.with.{self.number}.chars"
        version = "v2." if self.kind == "hash v2" else ""
        return f"column.mask.hash.{version}{self.algorithm}"


# A slice asks for it, and a file of rows before that: to match the expressions takes longer than to spool a few rows.
@lru_cache(maxsize=2_000)
def plan_columns(table: TableSchema, options: SelectionOptions, *, snapshot: bool = False) -> tuple[ColumnPlan, ...]:
    """Return one plan per column, in the table's order.

    ``snapshot`` is true for rows read by a snapshot, for which the driver describes serial and numeric columns
    differently.
    """
    kept = _Kept.of(options)
    plans = []
    for column in table.columns:
        if not kept.allows(f"{table.id}.{column.name}"):
            plans.append(ColumnPlan(column.name, False))
            continue
        rule = _rule_for(table, column, _rules(options), snapshot)
        plans.append(_applied(rule, column, snapshot) if rule else ColumnPlan(column.name, True))
    return tuple(plans)


def lake_key_conflicts(table: TableSchema, plans: tuple[ColumnPlan, ...]) -> tuple[str, ...]:
    """Return columns of the lake table's key that are excluded, masked or truncated, so that keys may not be unique.

    A hash keeps values distinct, unless it is truncated to the column's length, and is no conflict.
    """
    by_name = {plan.name: plan for plan in plans}
    conflicts = []
    for name in table.lake_key:
        plan = by_name.get(name)
        whole_hash = plan is not None and isinstance(plan.mapper, Hash) and not 0 < plan.mapper.length < 32
        if plan is None or not plan.included or not (plan.mapper is None or whole_hash):
            conflicts.append(name)
    return tuple(conflicts)


def _digest(mapper: Mapper) -> str:
    assert isinstance(mapper, Hash)
    whole = hashlib.new(DIGESTS[mapper.algorithm.upper()], usedforsecurity=False).digest_size * 2
    length = min(mapper.length, whole) if mapper.length > 0 else whole
    facts = (mapper.algorithm.upper(), mapper.salt, mapper.java_serialised, length)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Kept:
    included: tuple[Pattern, ...]
    excluded: tuple[Pattern, ...]

    @classmethod
    def of(cls, options: SelectionOptions) -> _Kept:
        return cls(compile_all(options.column_include_list), compile_all(options.column_exclude_list))

    def allows(self, name: str) -> bool:
        if self.included:
            return matches_any(self.included, name)
        return not matches_any(self.excluded, name)


@lru_cache(maxsize=64)
def _rules(options: SelectionOptions) -> tuple[_Rule, ...]:
    rules = [_Rule("truncate", compile_all(p), int(n)) for n, p in options.column_truncate_to_n_chars]
    rules += [_Rule("mask", compile_all(p), int(n)) for n, p in options.column_mask_with_n_chars]
    rules.append(_Rule("propagate", compile_all(options.column_propagate_source_type)))
    rules.append(_Rule("propagate type", compile_all(options.datatype_propagate_source_type)))
    rules += [_Rule("hash v1", compile_all(p), 0, a, s) for a, s, p in options.column_mask_hash]
    rules += [_Rule("hash v2", compile_all(p), 0, a, s) for a, s, p in options.column_mask_hash_v2]
    return tuple(rules)


def _rule_for(table: TableSchema, column: Column, rules: tuple[_Rule, ...], snapshot: bool) -> _Rule | None:
    by_name = f"{table.id}.{column.name}"
    by_type = f"{table.id}.{source_type(column, snapshot).name}"
    for rule in rules:
        if matches_any(rule.patterns, by_type if rule.kind == "propagate type" else by_name):
            return rule
    return None


def _applied(rule: _Rule, column: Column, snapshot: bool) -> ColumnPlan:
    if rule.kind == "truncate":
        return _truncated(rule, column)
    if rule.kind.startswith("propagate"):
        return ColumnPlan(column.name, True, None, _source_parameters(column, snapshot))
    masked = (("masked", "true"),)
    if not is_character(column.type):
        note = (
            f"is of type {column.type.name}, and {rule.property} leaves its values as they are, as Debezium does: "
            "masks and hashes apply to character types only."
        )
        return ColumnPlan(column.name, True, None, masked, note=note)
    mapper: Any = Mask(rule.number)
    if rule.kind.startswith("hash"):
        length = source_type(column).length
        mapper = Hash(rule.algorithm, rule.salt, rule.kind == "hash v1", length)
    return ColumnPlan(column.name, True, mapper, masked, hides=True)


def _truncated(rule: _Rule, column: Column) -> ColumnPlan:
    # A column that cannot have more than N characters is not changed and gets no parameter.
    if 0 <= source_type(column).length <= rule.number:
        return ColumnPlan(column.name, True)
    mapper: Mapper | None = None
    note = ""
    if is_textual(column.type):
        mapper = TruncateMapper(rule.number)
    elif is_bytes(column.type):
        mapper = TruncateBytes(rule.number)
    else:
        note = (
            f"is of type {column.type.name}, and {rule.property} leaves its values in the lake as they are: character "
            "types and bytea are truncated."
        )
    parameters = (("truncateLength", str(rule.number)),)
    return ColumnPlan(column.name, True, mapper, parameters, note=note, cut=rule.number)


def _source_parameters(column: Column, snapshot: bool) -> tuple[tuple[str, str], ...]:
    described = source_type(column, snapshot)
    parameters = [
        ("__debezium.source.column.type", described.name.upper()),
        ("__debezium.source.column.length", str(described.length)),
    ]
    if described.scale is not None:
        parameters.append(("__debezium.source.column.scale", str(described.scale)))
    parameters.append(("__debezium.source.column.name", column.name))
    return tuple(parameters)

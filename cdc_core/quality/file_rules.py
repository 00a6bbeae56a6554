"""Converts rules of the user's files to rules for one table."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from cdc_core.errors import TableError
from cdc_core.quality.duck import columns_of_query, over_new_image
from cdc_core.quality.expectations import JUDGED, columns_of, measured
from cdc_core.quality.rule_files import FileRule
from cdc_core.quality.rules import By, Origin, Reads, Rule, literal
from cdc_core.quality.suites import FileExpectation
from cdc_core.schema import TableSchema

_QUERY = "unexpected_rows_expectation"


def rules_of_files(
    table: TableSchema,
    rules: tuple[FileRule, ...],
    expectations: tuple[FileExpectation, ...],
    types: Mapping[str, pa.DataType],
) -> tuple[Rule, ...]:
    """Return the rules for change rows of ``table``; ``types`` are those of its columns in change rows.

    A rule applies to new rows for which all columns in it have a value: neither unchanged TOAST nor stored as text
    because their type cannot represent the value. Raises TableError naming file and rule, with every problem.
    """
    problems = list[str]()
    table_rules = [*_of_conditions(table, rules, problems), *_of_suites(table, expectations, types, problems)]
    if problems:
        raise TableError(" ".join(problems), "Correct the named files.", str(table.id))
    return tuple(table_rules)


def _of_suites(
    table: TableSchema,
    expectations: tuple[FileExpectation, ...],
    types: Mapping[str, pa.DataType],
    problems: list[str],
) -> list[Rule]:
    table_rules = []
    for expectation in expectations:
        kwargs = json.loads(expectation.kwargs)
        by, columns = By.SQL, columns_of(kwargs)
        known = measured(expectation.kind, kwargs, types)
        if expectation.kind == _QUERY:
            by = By.QUERY
            columns = columns_of_query(str(kwargs.get("unexpected_rows_query", "")), types)
        elif known is None:
            by = By.LIBRARY
        unknown = [name for name in columns if name not in types]
        if unknown:
            problems.append(f"{expectation.place} refers to {', '.join(unknown)}, which {table.id} does not have.")
            continue
        applies = _applies(columns)
        table_rules.append(
            Rule(
                f"user:{expectation.name}",
                "",
                "true" if known is None else known.predicate,
                expectation.description or f"{expectation.kind} of {', '.join(columns) or table.id}",
                expectation.severity,
                applies,
                Origin.USER,
                Reads.PRESENCE if known is not None and known.is_presence else Reads.VALUE,
                kind=expectation.kind,
                kwargs=expectation.kwargs,
                ignored="false" if known is None else known.ignored,
                measures=() if known is None else _placed(known.measures, applies),
                by=by,
                columns=columns if by is By.SQL else (),
            )
        )
    return table_rules


def _placed(measures: tuple[tuple[str, str], ...], applies: str) -> tuple[tuple[str, str], ...]:
    judged = JUDGED.replace("$applies", applies)
    return tuple((name, sql.replace(JUDGED, judged)) for name, sql in measures)


def _of_conditions(table: TableSchema, rules: tuple[FileRule, ...], problems: list[str]) -> list[Rule]:
    table_rules = []
    known = {column.name.lower() for column in table.columns}
    for rule in rules:
        try:
            predicate, columns = over_new_image(rule.condition)
        except ValueError as error:
            problems.append(f"{rule.place}: rule {rule.name} is not valid ({error}).")
            continue
        unknown = [name for name in columns if name.lower() not in known]
        if unknown:
            problems.append(
                f"{rule.place}: rule {rule.name} refers to {', '.join(unknown)}, which {table.id} does not have."
            )
            continue
        table_rules.append(
            Rule(
                f"user:{rule.name}",
                "",
                predicate,
                rule.description or rule.condition,
                rule.severity,
                _applies(tuple(_spelled(table, name) for name in columns)),
                Origin.USER,
                tolerated_rows=rule.tolerated_rows,
                tolerated_share=rule.tolerated_share,
            )
        )
    return table_rules


def _applies(columns: tuple[str, ...]) -> str:
    new = "__op in ('c', 'u', 'r') and after is not null"
    if not columns:
        return new
    names = ", ".join(literal(name) for name in columns)
    unsent = f"coalesce(list_has_any(__unchanged, [{names}]), false)"
    rescued = f"coalesce(list_has_any(map_keys(after.__rescued), [{names}]), false)"
    return f"{new} and not {unsent} and not {rescued}"


def _spelled(table: TableSchema, name: str) -> str:
    """Return the column's name in the source's spelling."""
    return next(column.name for column in table.columns if column.name.lower() == name.lower())

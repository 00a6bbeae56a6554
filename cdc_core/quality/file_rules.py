"""Converts rules of the user's files to rules for one table."""

from __future__ import annotations

from cdc_core.errors import TableError
from cdc_core.quality.duck import over_new_image
from cdc_core.quality.rule_files import FileRule
from cdc_core.quality.rules import Origin, Rule, literal
from cdc_core.schema.table import TableSchema


def rules_of_files(table: TableSchema, rules: tuple[FileRule, ...]) -> tuple[Rule, ...]:
    """Return the rules for change rows of ``table``.

    A rule applies to new rows for which all columns in it have a value: neither unchanged TOAST nor stored as text
    because their type cannot represent the value. Raises TableError naming file and rule, with every problem.
    """
    problems, found = list[str](), list[Rule]()
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
        found.append(
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
    if problems:
        raise TableError(" ".join(problems), "Correct the named files.", str(table.id))
    return tuple(found)


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

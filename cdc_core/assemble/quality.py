"""The quality checks of a connector: its rules, compiled for the current tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.errors import CdcError, TableError
from cdc_core.lake import TableChecks
from cdc_core.postgres import DescribeNow, Finding, bad, connection_string, doubtful, good
from cdc_core.quality import RuleFiles, read_rule_files
from cdc_core.schema import TableId, TableSchema, streamed

_log = logging.getLogger(__name__)
_said: set[tuple[TableId, tuple[str, ...]]] = set()


def table_checks(context: RunContext, tables: Iterable[TableSchema]) -> TableChecks:
    """The checks of every table. Raises ConfigError or TableError if a rule or a rule file is not valid."""
    config = context.config
    folder = config.quality.quality_rules_path if config.quality.quality_enabled else ""
    files = read_rule_files(folder).without_plain_suites() if folder else RuleFiles()
    checks = TableChecks(config.quality, context.plan, DescribeNow(connection_string(config.postgres)), files)
    tables = list(tables)
    problems = checks.rule_problems(tables)
    if problems:
        raise TableError(" ".join(problems), "Correct the named rules.")
    for table in tables:
        _say_cost(table, checks)
        _say_edits(table, checks)
    return checks


def _say_cost(table: TableSchema, checks: TableChecks) -> None:
    """Say once which expectations DuckDB does not measure: in streams of small slices they are most of the CPU time."""
    names = checks.by_rows(table)
    if names and (table.id, names) not in _said:
        _said.add((table.id, names))
        _log.warning(
            "%s: Great Expectations evaluates %s itself, with pandas: 5 to 20 ms of CPU time for each slice, and more "
            "for large ones.",
            table.id,
            ", ".join(names),
        )


def _say_edits(table: TableSchema, checks: TableChecks) -> None:
    """Say once which generated rules a suite changes: less is checked than the catalogue says."""
    edits = checks.edits(table.id)
    if edits and (table.id, edits) not in _said:
        _said.add((table.id, edits))
        _log.info("%s: its suite changes generated rules: %s.", table.id, ", ".join(edits))


def require_rules(context: RunContext, tables: Iterable[TableSchema]) -> None:
    """Raise ConfigError or TableError if a rule is not valid for the captured tables, before a row is read."""
    quality = context.config.quality
    if quality.quality_enabled and (quality.quality_rules_path or quality.quality_rules):
        table_checks(context, [streamed(table) for table in tables])


def rules_findings(context: RunContext) -> list[Finding]:
    """Whether the user's rules are valid for the captured tables, which are read from the server; none without rules.

    Rules are read and compiled for the tables' columns, so that an unknown one or a wrong type is found.
    """
    quality = context.config.quality
    folder = quality.quality_rules_path
    if not quality.quality_enabled or not (folder or quality.quality_rules):
        return []
    try:
        with context.source() as source:
            tables = [streamed(table) for table in source.tables()]
        checks = table_checks(context, tables)
        files = read_rule_files(folder) if folder else RuleFiles()
    except CdcError as error:
        return [bad("rules", error.message, error.remedy)]
    count = len(quality.quality_rules) + sum(len(file.rules) for file in files.files)
    count += sum(len(suite.expectations) for suite in files.suites)
    unused = _unused_rules(files, [table.id for table in tables])
    edits = [f"{suite.name}: {', '.join(suite.edits)}" for suite in files.suites if suite.edits]
    edited = [good("rules", f"Generated rules as suites say: {'; '.join(edits)}.")] if edits else []
    return [*unused, *edited, *_on_slices(checks, tables), good("rules", f"All {count} rules are valid.")]


def _on_slices(checks: TableChecks, tables: Sequence[TableSchema]) -> list[Finding]:
    names = [f"{name} of {table.id}" for table in tables for name in checks.over_slices(table)]
    if not names:
        return []
    found = f"Judge slices of streamed changes, and no rows that snapshots read: {', '.join(names)}."
    return [good("rules", f"{found} wal2lake quality test has them judge whole tables.")]


def _unused_rules(files: RuleFiles, tables: Sequence[TableId]) -> list[Finding]:
    """Report rules of tables that are not captured: they would never be evaluated, and nobody would notice."""
    names = [str(table) for table in tables]
    said = [
        (f"{file.path} is for no captured table.", Path(file.path).stem)
        for file in files.files
        if not any(file.is_for(table) for table in tables)
    ]
    said += [
        (f"The suite {suite.name} is for no captured table.", suite.name)
        for suite in files.suites
        if suite.name not in names
    ]
    return [doubtful("rules", found, _nearest(wanted, names)) for found, wanted in said]


def _nearest(wanted: str, names: Sequence[str]) -> str:
    near = get_close_matches(wanted, names, n=1)
    return f"Did you mean {near[0]}?" if near else "Correct the name, or capture the table."

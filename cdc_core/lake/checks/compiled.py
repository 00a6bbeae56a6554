"""The rules of a connector, compiled for the current tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from cdc_core.errors import TableError
from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.postgres import DescribeNow, PostgresOptions, connection_string
from cdc_core.quality import QualityOptions, RuleFiles, read_rule_files
from cdc_core.schema import TableId, TableSchema
from cdc_core.worker_memory import MEMORY

_log = logging.getLogger(__name__)
_said: dict[tuple[TableId, tuple[str, ...]], bool] = MEMORY.part()


def compiled_checks(
    options: QualityOptions, plan: TypingPlan, server: PostgresOptions, tables: Iterable[TableSchema]
) -> TableChecks:
    """Return the checks of every table. Raises ConfigError or TableError if a rule or a rule file is not valid."""
    folder = options.quality_rules_path if options.quality_enabled else ""
    files = read_rule_files(folder).without_plain_suites() if folder else RuleFiles()
    checks = TableChecks(options, plan, DescribeNow(connection_string(server)), files)
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
        _said[table.id, names] = True
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
        _said[table.id, edits] = True
        _log.info("%s: its suite changes generated rules: %s.", table.id, ", ".join(edits))

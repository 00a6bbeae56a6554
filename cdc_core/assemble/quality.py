"""The quality checks of a connector: its rules, compiled for the current tables."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_core.assemble.context import RunContext
from cdc_core.engine.checks.describe_now import DescribeNow
from cdc_core.engine.checks.table_checks import TableChecks
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.round.references import References
from cdc_core.errors import CdcError
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connect import connection_string
from cdc_core.postgres.preflight.finding import Finding, bad, good
from cdc_core.quality.great_expectations import suite_problem
from cdc_core.quality.rule_files import RuleFiles, read_rule_files
from cdc_core.schema.table import TableSchema


def table_checks(context: RunContext, tables: Iterable[TableSchema]) -> TableChecks:
    """The checks of every table. Raises ConfigError or TableError if a rule file is not valid."""
    config = context.config
    folder = config.quality.quality_rules_path if config.quality.quality_enabled else ""
    files = read_rule_files(folder) if folder else RuleFiles()
    checks = TableChecks(config.quality, context.plan, DescribeNow(connection_string(config.postgres)), files)
    checks.require_rules(tables)
    return checks


def reference_checks(context: RunContext, catalog: Catalog, registry: TableRegistry) -> References | None:
    """The foreign keys that are checked after each round; None if none are to be checked."""
    quality = context.config.quality
    if not quality.quality_enabled or not quality.quality_references:
        return None
    severity = quality.quality_references_severity
    return References(quality.quality_references, catalog.foreign_keys, registry, context.plan, severity)


def rules_finding(context: RunContext) -> Finding | None:
    """Whether the rule files are valid; None if there are none. Reads the tables' columns from the server."""
    folder = context.config.quality.quality_rules_path
    if not folder:
        return None
    try:
        with context.source() as source:
            table_checks(context, source.tables())
        for file in read_rule_files(folder).files:
            problem = suite_problem(file.suite) if file.suite else ""
            if problem:
                return bad(
                    "rules", f"{file.path}: an expectation cannot be evaluated: {problem}.", "Correct the named file."
                )
    except CdcError as error:
        return bad("rules", error.message, error.remedy)
    return good("rules", f"The rule files in {folder} are valid.")

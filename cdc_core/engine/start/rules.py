"""Whether the rules of a connector are valid for its tables, before a row is read, and what they say of lake tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.reports import LakeJudgement
from cdc_core.errors import CdcError, NotJudgedError, UnreadableError
from cdc_core.lake import LakeTable, TableChecks
from cdc_core.postgres import Finding, bad, doubtful, good
from cdc_core.quality import RuleFiles, read_rule_files
from cdc_core.schema import TableId, TableSchema, streamed


def require_rules(lake: ConnectorLake, tables: Iterable[TableSchema]) -> None:
    """Raise ConfigError or TableError if a rule is not valid for the captured tables, before a row is read."""
    quality = lake.quality
    if quality.quality_enabled and (quality.quality_rules_path or quality.quality_rules):
        lake.checks([streamed(table) for table in tables])


def rules_findings(lake: ConnectorLake, captured: Sequence[TableSchema]) -> list[Finding]:
    """Whether the user's rules are valid for the captured tables; none without rules.

    Rules are read and compiled for the tables' columns, so that an unknown one or a wrong type is found.
    """
    quality = lake.quality
    folder = quality.quality_rules_path
    if not quality.quality_enabled or not (folder or quality.quality_rules):
        return []
    tables = [streamed(table) for table in captured]
    try:
        checks = lake.checks(tables)
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
    message = f"Judge slices of streamed changes, and no rows that snapshots read: {', '.join(names)}."
    return [good("rules", f"{message} wal2lake quality test has them judge whole tables.")]


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
    return [doubtful("rules", message, _nearest(name, names)) for message, name in said]


def _nearest(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]}?" if near else "Correct the name, or capture the table."


def judge_table(lake: ConnectorLake, checks: TableChecks, table: TableSchema) -> LakeJudgement:
    """Have the rules judge a lake table as it is; what keeps them from that is in the result."""
    started = time.monotonic()
    try:
        judged = LakeTable(lake.paths, lake.scope, table.id).judge(checks, table)
    except (NotJudgedError, UnreadableError) as error:
        return LakeJudgement(table.id, reason=f"{error.message} {error.remedy}".strip())
    if judged is None:
        return LakeJudgement(table.id, reason="it is not in the lake yet")
    version, report = judged
    return LakeJudgement(table.id, version, report, seconds=time.monotonic() - started)

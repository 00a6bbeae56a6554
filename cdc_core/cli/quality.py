"""``wal2lake quality``: the rules as a Great Expectations project, and what they say of the lake as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cdc_core.cli.arguments import ConnectorFile, TableType, config_argument
from cdc_core.cli.exits import DONE, FAILED
from cdc_core.schema import TableId

if TYPE_CHECKING:
    from cdc_core.engine import LakeJudgement
    from cdc_core.quality import RuleResult, SuiteReport


@click.group("quality", short_help="Manage and test quality rules.")
def command() -> None:
    """Make the rules a Great Expectations project, or have them judge the lake as it is."""


@command.command("init", short_help="Create the Great Expectations project.")
@config_argument
def init(config: ConnectorFile) -> int:
    """Make the Great Expectations project in the folder of wal2lake.quality.rules.path, or update it.

    Each captured table gets a suite with the expectations that follow from the source's catalogue. Executed again, it
    adds those of new tables and columns and changes those that the catalogue changed; expectations that were edited,
    deleted or added stay as they are. Edits count from the next start on.
    """
    reports = config.open().quality_init()
    for report in reports:
        click.echo(_suite(report))
    return FAILED if any(report.problem for report in reports) else DONE


def _suite(report: SuiteReport) -> str:
    if report.problem:
        return f"{report.table}: no suite: {report.problem}"
    counts = ("added", "changed", "removed", "edited")
    found = ", ".join(f"{getattr(report, name)} {name}" for name in counts if getattr(report, name))
    return f"{report.table}: {report.path}: generated expectations: {found or 'unchanged'}; {report.own} others"


@command.command("test", short_help="Judge the lake tables as they are.")
@config_argument
@click.argument("tables", type=TableType(), nargs=-1, metavar="[TABLE]...")
def test(config: ConnectorFile, tables: tuple[TableId, ...]) -> int:
    """Have the rules judge the lake tables as they are, as a preview of a new rule. Changes nothing.

    Judged are the rows that the source has: not those marked as deleted, nor ended versions. Without TABLE
    (schema.table) all captured tables are judged. Prints what each expectation says, with numbers of rows; never
    values.

    Exit codes: 0 if no expectation of severity critical fails, 1 if one does, or a table could not be judged.
    """

    def say(result: LakeJudgement) -> None:
        for line in _lines(result):
            click.echo(line)

    results = config.open().quality_test(tables or None, say)
    return DONE if all(result.success for result in results) else FAILED


def _lines(result: LakeJudgement) -> Iterator[str]:
    if result.report is None:
        yield f"{result.table}: not judged: {result.reason}"
        return
    rules = result.report.rules
    failed = f"{sum(not rule.success for rule in rules)} of {len(rules)} expectations failed"
    yield f"{result.table}: {result.report.rows:,} rows at version {result.version}, {failed}"
    for rule in rules:
        yield f"  {_verdict(rule)} {rule.name.removeprefix('user:')}: {_shown(rule)}"


def _verdict(rule: RuleResult) -> str:
    if rule.success:
        return "passed "
    return "FAILED " if rule.severity == "error" else "warning"


def _shown(rule: RuleResult) -> str:
    return f"{rule.checked:,} rows" if rule.success else rule.said

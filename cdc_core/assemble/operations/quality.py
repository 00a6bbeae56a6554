"""Operations on the rules: their Great Expectations project, and what they say of the lake tables as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_core.assemble.context import RunContext
from cdc_core.engine import LakeJudgement, judge_table
from cdc_core.errors import ConfigError
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.selection import chosen_tables

if TYPE_CHECKING:
    from cdc_core.quality import SuiteReport

_RULES = "wal2lake.quality.rules.path"


def init(context: RunContext) -> list[SuiteReport]:
    """Make the project of the rules' folder, or bring its suites up to date with the source's catalogue."""
    from cdc_core.quality import make_project, write_suite

    folder = context.config.quality.quality_rules_path
    if not folder:
        raise ConfigError(f"{_RULES} is not set.", f"Set {_RULES} to the folder for the project, for example rules.")
    try:
        make_project(Path(folder))
        tables = _captured(context)
        checks = context.lake.checks(tables)
        return [write_suite(Path(folder), table.id, checks.generated(table)) for table in tables]
    except OSError as error:
        raise ConfigError(
            f"The folder {folder} of {_RULES} cannot be written ({type(error).__name__}).", "Check its permissions."
        ) from None


def test(
    context: RunContext, tables: Sequence[TableId] | None, on_table: Callable[[LakeJudgement], None] | None
) -> list[LakeJudgement]:
    """Have the rules judge lake tables as they are. Raises CdcError; what concerns one table is in its result."""
    if not context.config.quality.quality_enabled:
        raise ConfigError("wal2lake.quality.enabled is false: there are no rules.", "Remove the property.")
    captured = _captured(context)
    named = captured if tables is None else chosen_tables(captured, tables)
    checks, judgements = context.lake.checks(named), list[LakeJudgement]()
    for table in named:
        judgements.append(judge_table(context.lake, checks, table))
        if on_table is not None:
            on_table(judgements[-1])
    return judgements


def _captured(context: RunContext) -> list[TableSchema]:
    with context.source() as source:
        tables = context.captured(source)
    return [streamed(table) for table in tables]

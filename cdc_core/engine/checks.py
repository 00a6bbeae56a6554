"""Checks before a merge: which change rows of a slice may go on, and what is reported of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from cdc_core.engine.reports import CheckReport, RuleResult
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.quality.options import QualityOptions
from cdc_core.quality.report import TableReport
from cdc_core.quality.rules import Rule, rules_for
from cdc_core.schema.table import TableId, TableSchema

# The rules of each table as this process made them last: a task is unpickled anew for every slice.
_made: dict[TableId, tuple[QualityOptions, TypingPlan, TableSchema, tuple[Rule, ...]]] = {}


class TableChecks:
    """The quality step of every table. ``refresh`` reads one table's description from the source as it is now.

    Picklable where ``refresh`` is, for it travels to the tasks that take a slice through the round.
    """

    def __init__(
        self, options: QualityOptions, plan: TypingPlan, refresh: Callable[[TableSchema], TableSchema]
    ) -> None:
        self._options = options
        self._plan = plan
        self._refresh = refresh

    def check(self, table: TableSchema, changes: pa.Table) -> tuple[pa.Table, pa.Table | None, CheckReport | None]:
        """The rows that may be merged, those for the quarantine table (None where there are none), and the report.

        ``changes`` are change rows, before anything of them is merged. Without checks everything passes, without a
        report. Great Expectations has not validated the report's summary yet. Raises TableError where more rows fail
        than the limit allows, where a position occurs twice, and for a rule that cannot be evaluated.
        """
        if not self._options.quality_enabled:
            return changes, None, None
        from cdc_core.quality.evaluate import check  # loads DuckDB, which only the tasks need

        found = check(
            changes,
            table.id,
            self._table_rules(table),
            refresh=lambda: self._table_rules(self._refresh(table)),
            failure_limit=self._options.quality_failure_limit,
        )
        return found.good, found.bad, replace(_report(found.report), summary=found.summary)

    def _table_rules(self, table: TableSchema) -> tuple[Rule, ...]:
        held = _made.get(table.id)
        if held is None or held[:3] != (self._options, self._plan, table):
            typer = self._plan.typer(table)
            natural = {field.name: field.type for field in typer.row_type}
            mapped = [plan.name for plan in typer.plans if plan.mapper is not None]
            rules = rules_for(table, natural, self._options.quality_rules, mapped)
            held = _made[table.id] = (self._options, self._plan, table, rules)
        return held[3]


def _report(found: TableReport) -> CheckReport:
    rules = tuple(
        RuleResult(rule.name, rule.column, rule.severity, rule.checked, rule.failed, rule.description)
        for rule in found.rules
    )
    return CheckReport(found.table, found.rows, found.quarantined, found.suite_success, rules, found.validation_json)

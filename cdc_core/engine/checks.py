"""Checks before a merge: the slice is judged, what fails goes to quarantine, the rest is merged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cdc_core.engine.reports import CheckReport, MergeReport, RuleResult
from cdc_core.engine.typing_plan import TypingPlan
from cdc_core.lsn import Lsn
from cdc_core.quality import spark as quality_spark
from cdc_core.quality import spark_evaluate
from cdc_core.quality.options import QualityOptions
from cdc_core.quality.report import TableReport
from cdc_core.quality.rules import Rule, rules_for
from cdc_core.quality.spark_rules import rules_for as spark_rules_for
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.sink.delta.change_slice import read_slice
from cdc_core.sink.delta.merge import MergeFacts, Round
from cdc_core.sink.delta.quarantine import write_quarantine

Merge = Callable[[Any, Round], MergeFacts | None]

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

    def checked_merge(self, spark: Any, todo: Round, quarantine: str, merge: Merge) -> MergeReport | None:
        """Check the round's slice, write what fails to ``quarantine``, merge the rest; None when nothing was merged.

        Quarantine comes first: a crash between the two finds the same rows again, and writes none twice.
        Raises TableError when more rows fail than the limit allows, and whatever the merge raises.
        """
        started = time.monotonic()
        report: CheckReport | None = None
        if self._options.quality_enabled:
            todo, report = self._check(spark, todo, quarantine)
        facts = merge(spark, todo)
        if facts is None:
            return None
        return MergeReport(
            todo.table.id,
            Lsn(todo.to_lsn),
            facts.version,
            facts.events,
            facts.inserted,
            facts.updated,
            facts.deleted,
            time.monotonic() - started,
            report,
        )

    def _check(self, spark: Any, todo: Round, quarantine: str) -> tuple[Round, CheckReport]:
        rows = read_slice(spark, todo.changelog, todo.from_lsn, todo.to_lsn, todo.snapshot)
        found = spark_evaluate.check(
            rows,
            todo.table.id,
            self._rules(todo.table),
            refresh=lambda: self._rules(self._refresh(todo.table)),
            failure_limit=self._options.quality_failure_limit,
        )
        if found.bad is None:
            return todo, _report(found.report)
        write_quarantine(found.bad, quarantine, todo.table.id)
        rules = found.rules
        narrowed = Round(
            todo.slot,
            todo.table,
            todo.changelog,
            todo.lake,
            todo.from_lsn,
            todo.to_lsn,
            todo.token,
            todo.snapshot,
            narrow=lambda frame: quality_spark.split(frame, rules)[0],
        )
        return narrowed, _report(found.report)

    def _rules(self, table: TableSchema) -> tuple[Rule, ...]:
        typer = self._plan.typer(table)
        natural = {field.name: field.type for field in typer.row_type}
        mapped = [plan.name for plan in typer.plans if plan.mapper is not None]
        return spark_rules_for(table, natural, self._options.quality_rules, mapped)


def _report(found: TableReport) -> CheckReport:
    rules = tuple(
        RuleResult(rule.name, rule.column, rule.severity, rule.checked, rule.failed, rule.description)
        for rule in found.rules
    )
    return CheckReport(found.table, found.rows, found.quarantined, found.suite_success, rules, found.validation_json)

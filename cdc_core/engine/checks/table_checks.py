"""Checks before a merge: which change rows of a slice may be merged, and the report of the rows that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cdc_core.engine.checks.constraints import constraint_marks
from cdc_core.engine.reports import CheckReport, RuleResult
from cdc_core.errors import TableError
from cdc_core.lake.reduce.repeated_inserts import repeated_inserts
from cdc_core.lake.rows.row_keys import merge_key
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.quality.options import Limits, QualityOptions, Recent
from cdc_core.quality.rule_files import FileRule, RuleFiles
from cdc_core.quality.rules import KEY_UNIQUE, Rule, Severity, rules_for
from cdc_core.schema.table import TableId, TableSchema

if TYPE_CHECKING:
    from cdc_core.quality.evaluate import Checked

# The rules of each table as last created in this process: a task is unpickled again for every slice.
_made: dict[TableId, tuple[tuple[object, ...], tuple[Rule, ...]]] = {}
_NEVER = 2**63 - 1
_SAMPLE_ROWS = 1_000


class TableChecks:
    """The quality checks of every table. ``refresh`` reads the current description of one table from the source.

    Picklable if ``refresh`` is: the tasks that process slices receive it.
    """

    def __init__(
        self,
        options: QualityOptions,
        plan: TypingPlan,
        refresh: Callable[[TableSchema], TableSchema],
        files: RuleFiles | None = None,
    ) -> None:
        self._options = options
        self._plan = plan
        self._refresh = refresh
        self._files = RuleFiles() if files is None else files

    def rule_problems(self, tables: Iterable[TableSchema]) -> list[str]:
        """Return what is wrong with the user's rules for these tables; no row is read."""
        from cdc_core.quality.evaluate import require_valid  # loads DuckDB

        problems = []
        for table in tables:
            if not self._has_own_rules(table.id):
                continue
            try:
                schema = self._plan.typer(table).change_schema
                require_valid(table.id, self._table_rules(table, {}), schema)
            except TableError as error:
                problems.append(error.message)
        return problems

    def rule_names(self, table: TableSchema) -> tuple[str, ...]:
        """The names of the rules that are evaluated on the table's changes, a user's as ``user:…``."""
        return tuple(rule.name for rule in self._table_rules(table, {})) if self._options.quality_enabled else ()

    def _has_own_rules(self, table: TableId) -> bool:
        named = any(rule.table == str(table) for _, rule in self._options.quality_rules)
        return self._options.quality_enabled and (named or bool(self._files.rules(table)))

    def check(self, table: TableSchema, changes: pa.Table) -> tuple[pa.Table, pa.Table | None, CheckReport | None]:
        """Return the rows that may be merged, the rows for the quarantine table, and the report.

        See ``judged``. The second is None if there are no such rows. The report is None if checks are disabled.
        """
        found = self.judged(table, changes)
        return (changes, None, None) if found is None else (found.good, found.bad, report_of(found))

    def judged(
        self,
        table: TableSchema,
        changes: pa.Table,
        since: Mapping[str, int] | None = None,
        *,
        is_batch: bool = True,
        recent: Recent | None = None,
    ) -> Checked | None:
        """Evaluate the rules on change rows before any of them is merged; None if checks are disabled.

        ``since`` maps columns to the commit LSN up to which their constraints may have been different. Great
        Expectations has not validated the summary yet. If not ``is_batch``, the rows are from quarantine, and rules
        over a batch are skipped. Raises LimitExceededError if more rows fail than the limit allows, ``recent`` changes
        included (None: without a limit), and TableError if a position occurs twice or a rule cannot be evaluated.
        """
        if not self._options.quality_enabled:
            return None
        from cdc_core.quality.evaluate import check  # loads DuckDB, which only the tasks need

        known = {**(since or {})}
        return check(
            changes,
            table.id,
            self._table_rules(table, known),
            refresh=lambda: self._renewed(table, known),
            limits=None if recent is None else self._limits(table.id),
            recent=recent or Recent(),
            key=merge_key(table),
            over_batch=(lambda rules: _over_batch(changes, merge_key(table), rules)) if is_batch else None,
        )

    def has_unique_key(self, table: TableSchema) -> bool:
        """Whether a batch of the table's changes is checked for repeated keys."""
        rules = self._table_rules(table, {}) if self._options.quality_enabled else ()
        return any(rule.name == KEY_UNIQUE for rule in rules)

    def may_refuse(self, table: TableSchema) -> bool:
        """Whether some rule can put changes of the table into quarantine."""
        rules = self._table_rules(table, {}) if self._options.quality_enabled else ()
        return any(rule.severity is Severity.ERROR for rule in rules)

    def max_waiting(self, table: TableId) -> int:
        """Maximum number of changes of a table in quarantine before the table is paused; 0 for no limit."""
        return self._limits(table).rows

    def suites(self, table: TableId) -> tuple[str, ...]:
        """The user's expectations that require more than one row, as JSON texts."""
        return self._files.suites(table)

    def _limits(self, table: TableId) -> Limits:
        return self._files.limits(table, self._options.limits)

    def _file_rules(self, table: TableSchema, rules: tuple[FileRule, ...]) -> tuple[Rule, ...]:
        from cdc_core.quality.file_rules import rules_of_files  # loads DuckDB

        return rules_of_files(table, rules)

    def _renewed(self, table: TableSchema, since: Mapping[str, int]) -> tuple[Rule, ...]:
        """Return the rules for the current catalogue. A constraint that has changed applies to none of the rows."""
        current = self._refresh(table)
        was, now = constraint_marks(table), constraint_marks(current)
        known = {name: since.get(name, 0) if was.get(name) == mark else _NEVER for name, mark in now.items()}
        return self._table_rules(current, {name: lsn for name, lsn in known.items() if lsn})

    def _table_rules(self, table: TableSchema, since: Mapping[str, int]) -> tuple[Rule, ...]:
        held = _made.get(table.id)
        # Table versions that differ in their fingerprint only are equal, but their rules are not.
        of = (self._options, self._files, self._plan, table, table.fingerprint, since)
        if held is None or held[0] != of:
            typer = self._plan.typer(table)
            natural = {field.name: field.type for field in typer.row_type}
            mapped = [plan.name for plan in typer.plans if plan.mapper is not None]
            rules = rules_for(table, natural, self._options.quality_rules, mapped, since)
            if {"u", "d"} & set(self._plan.selection.skipped_operations):
                rules = tuple(rule for rule in rules if rule.name != KEY_UNIQUE)
            own = self._files.rules(table.id)
            rules += self._file_rules(table, own) if own else ()
            held = _made[table.id] = (of, rules)
        return held[1]


def _over_batch(changes: pa.Table, key: tuple[str, ...], rules: tuple[Rule, ...]) -> dict[str, np.ndarray]:
    """Return, by rule name, the rows that fail rules over several rows. Shape: bool[N] each."""
    for rule in rules:
        if rule.name == KEY_UNIQUE:
            found = repeated_inserts(changes, key, rule.since)
            return {} if found is None else {KEY_UNIQUE: found}
    return {}


def report_of(found: Checked, suites: tuple[str, ...] = ()) -> CheckReport:
    """Create the report of a check. ``suites`` are the user's suites that run on a sample of the rows that pass."""
    told = found.report
    rules = tuple(
        RuleResult(rule.name, rule.column, rule.severity, rule.checked, rule.failed, rule.description)
        for rule in told.rules
    )
    made = CheckReport(told.table, told.rows, told.quarantined, told.suite_success, rules, told.validation_json)
    return replace(made, summary=found.summary, suites=suites, sample=_sample(found.good) if suites else b"")


def _sample(rows: pa.Table) -> bytes:
    """Return at most _SAMPLE_ROWS new rows, evenly spread, as Arrow IPC.

    Shape: change rows[N] -> the columns of ``after``.
    """
    new = rows.column("after").drop_null().combine_chunks()
    new = new.chunk(0) if isinstance(new, pa.ChunkedArray) and new.num_chunks else new
    if not len(new):
        return b""
    step = -(-len(new) // _SAMPLE_ROWS)
    picked = new.take(pa.array(range(0, len(new), step)))
    fields = [(part.name, picked.field(n)) for n, part in enumerate(picked.type) if part.name != "__rescued"]
    table = pa.table(dict(fields))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())

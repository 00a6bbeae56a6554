"""Checks before a merge: which change rows of a slice may be merged, and the report of the rows that failed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cdc_core.errors import CdcError, LimitExceededError, NotJudgedError, TableError, TransientError
from cdc_core.lake.reduce.repeated_inserts import repeated_inserts
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.stores.snapshot_events import as_reads
from cdc_core.quality import (
    CONDITION,
    KEY_UNIQUE,
    By,
    CheckReport,
    Limits,
    Origin,
    QualityOptions,
    RecentChanges,
    Rule,
    RuleFiles,
    RuleResult,
    constraint_marks,
    rules_for,
)
from cdc_core.schema import TableId, TableSchema
from cdc_core.worker_memory import MEMORY

if TYPE_CHECKING:
    from cdc_core.quality import Checked, RuleVerdict

# The rules of each table as last created in this process: a task is unpickled again for every slice.
_made: dict[TableId, tuple[tuple[object, ...], tuple[Rule, ...]]] = MEMORY.part()
_NEVER = 2**63 - 1


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
        """Return the errors in the user's rules for these tables; no row is read."""
        from cdc_core.quality import require_valid  # loads DuckDB

        problems = []
        for table in tables:
            if not self._has_own_rules(table.id):
                continue
            try:
                schema = self._plan.typer(table).change_schema
                rules = self._table_rules(table, {})
                require_valid(table.id, rules, schema)
                problems += _refused_expectations(rules)
            except TableError as error:
                problems.append(error.message)
        return problems

    def by_rows(self, table: TableSchema) -> tuple[str, ...]:
        """The names of the rules that Great Expectations evaluates itself on the rows of each slice: a user's only."""
        rules = self._table_rules(table, {}) if self._has_own_rules(table.id) else ()
        return tuple(rule.plain_name for rule in rules if rule.by is By.LIBRARY)

    def over_slices(self, table: TableSchema) -> tuple[str, ...]:
        """The names of expectations on a slice as a whole, which judge streamed changes and no rows that are read."""
        rules = self._table_rules(table, {}) if self._options.quality_enabled else ()
        return tuple(rule.plain_name for rule in rules if rule.measures)

    def rule_names(self, table: TableSchema) -> tuple[str, ...]:
        """The names of the rules that are evaluated on the table's changes, a user's as ``user:…``."""
        return tuple(rule.name for rule in self._table_rules(table, {})) if self._options.quality_enabled else ()

    def rules_on_rows(self, table: TableSchema, columns: Collection[str]) -> tuple[Rule, ...]:
        """The rules that judge rows of the table with these columns; not those on the form and order of changes."""
        rules = self._table_rules(table, {}) if self._options.quality_enabled else ()
        return tuple(
            rule
            for rule in rules
            if rule.origin is Origin.USER
            or (rule.origin is Origin.CATALOGUE and rule.name != KEY_UNIQUE and rule.column in columns)
        )

    def generated(self, table: TableSchema) -> tuple[Rule, ...]:
        """The rules of the source's catalogue for the table, regardless of its suite."""
        return self._catalogue_rules(table, {})

    def edits(self, table: TableId) -> tuple[str, ...]:
        """The differences of the table's suite from generated rules, one text each."""
        return self._files.suite(table).edits

    def _has_own_rules(self, table: TableId) -> bool:
        named = any(rule.table == str(table) for _, rule in self._options.quality_rules)
        of_files = self._files.rules(table) or self._files.suite(table).expectations
        return self._options.quality_enabled and (named or bool(of_files))

    def judged(
        self,
        table: TableSchema,
        changes: pa.Table,
        since: Mapping[str, int] | None = None,
        *,
        is_batch: bool = True,
        recent: RecentChanges | None = None,
        accept: Collection[str] = (),
        accept_all: bool = False,
        removals: pa.Table | None = None,
    ) -> Checked | None:
        """Judge change rows before any of them is merged; None if checks are disabled. Every writer calls this.

        The result says which rows are refused, with the rules by which each is, and, as ``failure``, whether the rows
        as a whole may be merged; a caller raises that error before it writes anything. ``since`` maps columns to the
        commit LSN up to which their constraints may have been different. If not ``is_batch``, the rows are from
        quarantine, and neither rules over a batch nor expectations on a slice as a whole judge them. ``accept`` names
        expectations on a slice whose failure is accepted, ``accept_all`` accepts it of all of them. ``removals`` are
        deletes that are not judged, and that rules over a batch take into account. Raises LimitExceededError if more
        rows are refused than the limit allows, ``recent`` changes included (None: without a limit), NotJudgedError if a
        rule cannot be evaluated, and TableError if a position occurs twice.
        """
        if not self._options.quality_enabled:
            return None
        from cdc_core.quality import check  # loads DuckDB, which only the tasks need

        known = {**(since or {})}
        return check(
            changes,
            table.id,
            self._table_rules(table, known),
            refresh=lambda: self._renewed(table, known),
            limits=None if recent is None else self.limits(table.id),
            recent=recent or RecentChanges(),
            key=table.row_key,
            over_batch=(lambda rules: _over_batch(changes, removals, table.row_key, rules)) if is_batch else None,
            accept=accept,
            is_slice=is_batch and not accept_all,
        )

    def judge_reads(
        self, table: TableSchema, rows: pa.Table, since: Mapping[str, int] | None = None
    ) -> tuple[np.ndarray, pa.ListArray] | None:
        """Judge lake rows that were read from the source, before any of them enters the lake.

        Returns which rows a rule refuses, and the rules that each of these fails: bool[N], list<string>[refused rows];
        None if none is refused. Rules over several rows are not evaluated. Raises NotJudgedError if they cannot be
        judged, TransientError of the server.
        """
        if not rows.num_rows:
            return None
        reads = as_reads(rows)
        at = reads.schema.get_field_index("__tx_index")
        reads = reads.set_column(at, reads.schema.field(at), pa.array(np.arange(rows.num_rows)))
        try:
            judgement = self.judged(table, reads, since, is_batch=False)
        except TransientError:
            raise
        except Exception as error:
            said = error.message if isinstance(error, CdcError) else f"evaluating them failed ({type(error).__name__})."
            told = f"Rows read from {table.id} could not be checked against its rules: {said}"
            raise NotJudgedError(told, "Correct the rule.", str(table.id)) from error
        if judgement is None or judgement.refused is None or judgement.reasons is None:
            return None
        return np.asarray(judgement.refused), judgement.reasons

    def require_limits(self, table: TableId, refused: int, rows: int, waiting: int) -> None:
        """Raise LimitExceededError if more of the rows that were read of a table are refused than may be.

        ``waiting`` changes would then be in its quarantine.
        """
        limits = self.limits(table)
        if limits.exceeded(RecentChanges(), rows, refused):
            raise LimitExceededError(
                f"{refused:,} of {rows:,} rows read from {table} fail a rule, more than {limits.share_name} "
                f"({limits.share:g}) allows.",
                f"Correct the source or the rule, or raise {limits.share_name}.",
                str(table),
            )
        limits.require_room(str(table), waiting)

    def has_unique_key(self, table: TableSchema) -> bool:
        """Whether a batch of the table's changes is checked for repeated keys."""
        rules = self._table_rules(table, {}) if self._options.quality_enabled else ()
        return any(rule.name == KEY_UNIQUE for rule in rules)

    def limits(self, table: TableId) -> Limits:
        """The limits above which a table is paused."""
        return self._files.limits(table, self._options.limits)

    def _file_rules(self, table: TableSchema, types: Mapping[str, pa.DataType]) -> tuple[Rule, ...]:
        rules, expectations = self._files.rules(table.id), self._files.suite(table.id).expectations
        if not rules and not expectations:
            return ()
        from cdc_core.quality import rules_of_files  # loads DuckDB

        return rules_of_files(table, rules, expectations, types)

    def _renewed(self, table: TableSchema, since: Mapping[str, int]) -> tuple[Rule, ...]:
        """Return the rules for the current catalogue. A constraint that has changed applies to none of the rows."""
        current = self._refresh(table)
        was, now = constraint_marks(table), constraint_marks(current)
        known = {name: since.get(name, 0) if was.get(name) == mark else _NEVER for name, mark in now.items()}
        return self._table_rules(current, {name: lsn for name, lsn in known.items() if lsn})

    def _table_rules(self, table: TableSchema, since: Mapping[str, int]) -> tuple[Rule, ...]:
        entry = _made.get(table.id)
        # Table versions that differ in their fingerprint only are equal, but their rules are not.
        of = (self._options, self._files, self._plan, table, table.fingerprint, since)
        if entry is None or entry[0] != of:
            rules = self._files.suite(table.id).applied(self._catalogue_rules(table, since))
            natural = {field.name: field.type for field in self._plan.typer(table).row_type}
            rules += self._file_rules(table, natural)
            entry = _made[table.id] = (of, rules)
        return entry[1]

    def _catalogue_rules(self, table: TableSchema, since: Mapping[str, int]) -> tuple[Rule, ...]:
        typer = self._plan.typer(table)
        natural = {field.name: field.type for field in typer.row_type}
        mapped = [plan.name for plan in typer.plans if plan.mapper is not None]
        rules = rules_for(table, natural, self._options.quality_rules, mapped, since)
        if {"u", "d"} & set(self._plan.selection.skipped_operations):
            rules = tuple(rule for rule in rules if rule.name != KEY_UNIQUE)
        return rules


def _over_batch(
    changes: pa.Table, removals: pa.Table | None, key: tuple[str, ...], rules: tuple[Rule, ...]
) -> dict[str, np.ndarray]:
    """Return, by rule name, the changes that fail rules over several rows. Shape: bool[N] each."""
    for rule in rules:
        if rule.name == KEY_UNIQUE:
            every = changes if removals is None else pa.concat_tables([changes, removals])
            repeats = repeated_inserts(every, key, rule.since)
            return {} if repeats is None else {KEY_UNIQUE: repeats[: changes.num_rows]}
    return {}


def _refused_expectations(rules: tuple[Rule, ...]) -> list[str]:
    """Return the library's errors in expectations of the user's suites."""
    own = [rule for rule in rules if rule.origin is Origin.USER and rule.kind != CONDITION]
    if not own:
        return []
    from cdc_core.quality import problem  # loads the library, which takes seconds

    problems = [(rule, problem(rule)) for rule in own]
    return [f"Expectation {rule.plain_name}: {wrong}." for rule, wrong in problems if wrong]


def report_of(judgement: Checked) -> CheckReport:
    """The report of a judgement."""
    summary = judgement.summary
    return CheckReport(
        judgement.table, summary.rows, summary.quarantined, judgement.success, results_of(judgement.verdicts)
    )


def results_of(verdicts: Iterable[RuleVerdict]) -> tuple[RuleResult, ...]:
    """The results of rules, for a report."""
    from cdc_core.quality import expected, observed  # loads DuckDB, as what made the verdicts did

    return tuple(
        RuleResult(
            verdict.rule.name,
            verdict.rule.column,
            str(verdict.rule.severity),
            verdict.metrics.rows,
            verdict.metrics.unexpected,
            verdict.rule.description,
            verdict.success,
            observed(verdict),
            "" if verdict.rule.kind == CONDITION else expected(verdict.rule),
            verdict.rule.kind,
            verdict.rule.kwargs,
            verdict.over_slice,
        )
        for verdict in verdicts
    )

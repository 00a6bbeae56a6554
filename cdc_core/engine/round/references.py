"""Foreign keys between lake tables: whether the rows written by a round have the rows that they refer to.

A deferred foreign key may be violated within a transaction, so keys are checked only at the end of a round, when both
tables are merged up to the same LSN and every transaction is complete in the lake. If one of the two tables cannot be
merged, because it is paused or being re-read, its foreign keys are checked once it is merged again, for all rows since.
A run that ends before that leaves it to the next one, which sees in the last recorded round where the table stood.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.reports import CheckReport, RuleResult
from cdc_core.engine.round.table_state import MergeStates
from cdc_core.engine.slice.order import SliceOrder
from cdc_core.engine.slice.outcome import SliceOutcome
from cdc_core.engine.slice.task import SliceTask
from cdc_core.errors import CdcError
from cdc_core.lake.delta.opened import opened
from cdc_core.lake.positions import lake_position
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.stores.missing_parents import Missing, missing_parents
from cdc_core.lake.stores.quarantine import count_waiting
from cdc_core.lake.stores.rounds import Round, TableState
from cdc_core.quality.report import Summary
from cdc_core.schema.foreign_key import ForeignKey
from cdc_core.schema.table import TableId
from cdc_core.selection.patterns import compile_all, matches_any
from cdc_core.spark.run_tasks import run_tasks

_log = logging.getLogger(__name__)

REFERENCE_PRESENT = "reference_present"
_FRESH_SECONDS = 30.0
_RETRY_SECONDS = 10.0
# Different texts of these types may be equal in the source.
_LOOSE_TYPES = ("citext", "bpchar")


@dataclass(frozen=True, slots=True)
class ReferenceOrder:
    """A foreign key to be checked, for rows written by changes after the LSN ``since``."""

    key: ForeignKey
    since: int


@dataclass(frozen=True, slots=True)
class ReferenceOutcome:
    """``found`` is None if the lake's columns cannot be compared. ``waiting`` is the number of the parent's changes in
    quarantine, counted only if a row is missing.
    """

    key: ForeignKey
    found: Missing | None
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ReferenceTask:
    """Checks one foreign key, in a Spark task; picklable."""

    task: SliceTask

    def __call__(self, order: ReferenceOrder) -> ReferenceOutcome:
        """Raises LakeError if a lake table cannot be read."""
        key, run, paths = order.key, self.task.run, self.task.paths
        child, parent = opened(run, paths.lake(key.table)), opened(run, paths.lake(key.parent))
        if child is None or parent is None:
            return ReferenceOutcome(key, None)
        found = missing_parents(child, key.columns, order.since, parent, key.parent_columns)
        if found is None or not found.missing:
            return ReferenceOutcome(key, found)
        place = lake_position(parent, self.task.scope, key.parent)
        return ReferenceOutcome(key, found, count_waiting(paths.quarantine(key.parent), place))


class References:
    """The foreign keys of the tables that ``patterns`` match. For one thread.

    ``foreign_keys`` queries the source; it is called again at intervals, and before a row is counted as missing.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        foreign_keys: Callable[[], list[ForeignKey]],
        registry: TableRegistry,
        plan: TypingPlan,
        severity: str,
    ) -> None:
        self._patterns = compile_all(patterns)
        self._foreign_keys = foreign_keys
        self._registry = registry
        self._plan = plan
        self._severity = severity
        self._known: dict[TableId, list[ForeignKey]] = {}
        self._read_at = float("-inf")
        # Changed tables with the LSN of the first unchecked change; foreign keys with unchecked rows; results not
        # reported yet.
        self._changed: dict[TableId, int] = {}
        self._since: dict[ForeignKey, int] = {}
        self._found: dict[ForeignKey, Missing] = {}
        # Parent tables that were not merged when an earlier run ended, with the LSN at which they stood.
        self._awaited: dict[TableId, int] = {}
        self._told: set[str] = set()
        self._failed_at = float("-inf")

    def judge(
        self,
        spark: Callable[[], Any],
        task: SliceTask,
        states: MergeStates,
        to_lsn: int,
        orders: Sequence[SliceOrder],
        outcomes: Sequence[SliceOutcome],
    ) -> list[SliceOutcome]:
        """Check the rows written by a round to ``to_lsn``; returns its outcomes with the results. Never raises a
        CdcError.
        """
        round_ = {order.table: (order, outcome) for order, outcome in zip(orders, outcomes, strict=True)}
        try:
            self._note_changed(round_)
            due = [key for key in self._since if self._can_judge(key, states, to_lsn, round_)]
            if due:
                todo = [[ReferenceOrder(key, self._since[key])] for key in due]
                self._note(run_tasks(spark(), todo, ReferenceTask(task), "checking foreign keys"))
        except CdcError as error:
            self._note_failed(error)
        return [self._reported(outcome) for outcome in outcomes]

    def recall(self, last: Round | None) -> None:
        """Take over what the runs before this one could not check; ``last`` is the newest recorded round of the epoch.

        Rows may be checked again: a round tells where a table stood, not since when its keys were waiting.
        """
        if last is None:
            return
        for one in last.tables:
            if one.state not in (TableState.CURRENT, TableState.UNREAD):
                self._awaited[one.table] = min(one.merged_lsn or 0, int(last.head.lsn))

    def is_due(self, states: MergeStates, to_lsn: int) -> bool:
        """Whether a round to ``to_lsn`` without changes could check keys that earlier rounds could not."""
        if time.monotonic() - self._failed_at < _RETRY_SECONDS:
            return False
        if self._awaited:
            try:
                self._read()
            except CdcError as error:
                self._note_failed(error)
                return False
        return any(self._can_judge(key, states, to_lsn, {}) for key in self._since)

    def _note_failed(self, error: CdcError) -> None:
        self._failed_at = time.monotonic()
        _log.warning("Foreign keys were not checked in this round: %s", error)

    def _note_changed(self, round_: dict[TableId, tuple[SliceOrder, SliceOutcome]]) -> None:
        for table, (order, outcome) in round_.items():
            if outcome.applied is not None and matches_any(self._patterns, str(table)):
                self._changed.setdefault(table, order.snapshot.merged or 0)
        if self._awaited or (self._changed and time.monotonic() - self._read_at >= _FRESH_SECONDS):
            self._read()
        for table, since in self._changed.items():
            for key in self._known.get(table, ()):
                self._since.setdefault(key, since)
        self._changed.clear()

    def _read(self) -> None:
        """Read the foreign keys again, and leave out those that cannot be checked."""
        found: dict[TableId, list[ForeignKey]] = {}
        for key in self._foreign_keys():
            if not matches_any(self._patterns, str(key.table)) or key.table not in self._registry:
                continue
            problem = self._problem(key)
            if problem:
                self._tell(f"Foreign key {key.name} of {key.table} is not checked: {problem}.")
            else:
                found.setdefault(key.table, []).append(key)
        self._known, self._read_at = found, time.monotonic()
        every = {key for keys in found.values() for key in keys}
        self._since = {key: since for key, since in self._since.items() if key in every}
        self._found = {key: result for key, result in self._found.items() if key in every}
        for key in every:
            since = self._awaited.get(key.parent)
            if since is not None:
                self._since[key] = min(since, self._since.get(key, since))
        self._awaited.clear()

    def _problem(self, key: ForeignKey) -> str:
        """Return why a foreign key cannot be checked; empty if it can."""
        if key.parent not in self._registry:
            return f"its parent table {key.parent} is not captured"
        if not key.is_exact:
            return "a column has a nondeterministic collation"
        for table, names in ((key.table, key.columns), (key.parent, key.parent_columns)):
            current = self._registry.current(table)
            plans = {plan.name: plan for plan in self._plan.typer(current).plans}
            for name in names:
                if name not in plans or not plans[name].included:
                    return f"column {name} of {table} is not captured"
                if plans[name].mapper is not None:
                    return f"column {name} of {table} is masked"
                if current.column(name).type.name in _LOOSE_TYPES:
                    return f"column {name} of {table} is of type {current.column(name).type.name}"
        return ""

    def _can_judge(
        self,
        key: ForeignKey,
        states: MergeStates,
        to_lsn: int,
        round_: dict[TableId, tuple[SliceOrder, SliceOutcome]],
    ) -> bool:
        """Whether both tables are merged up to the round's LSN."""
        behind = [table for table in (key.table, key.parent) if not _is_at(table, states, to_lsn, round_)]
        for table in behind:
            paused = states.of(table).versions.paused
            if paused is not None:
                self._tell(f"Foreign key {key.name} of {key.table} is not checked while {table} is paused.")
        if not behind and states.of(key.parent).token is None:
            self._tell(
                f"Foreign key {key.name} of {key.table} is not checked: {key.parent} never had a snapshot, so earlier "
                "rows are not in the lake."
            )
            return False
        return not behind

    def _note(self, outcomes: Sequence[ReferenceOutcome]) -> None:
        if any(outcome.found is not None and outcome.found.missing for outcome in outcomes):
            # A foreign key that was dropped in the meantime is no longer violated.
            self._read()
        for outcome in outcomes:
            key, found = outcome.key, outcome.found
            if self._since.pop(key, None) is None:
                continue
            if found is None:
                self._tell(f"Foreign key {key.name} of {key.table} is not checked: its columns differ in the lake.")
                continue
            before = self._found.get(key, Missing())
            self._found[key] = Missing(before.checked + found.checked, before.missing + found.missing)
            if found.missing:
                _log.warning(
                    "%d of %d changed rows of %s have no parent row in %s (foreign key %s).%s",
                    found.missing,
                    found.checked,
                    key.table,
                    key.parent,
                    key.name,
                    f" {outcome.waiting} changes of {key.parent} are in quarantine, which may be the reason."
                    if outcome.waiting
                    else "",
                )

    def _reported(self, outcome: SliceOutcome) -> SliceOutcome:
        """Return the outcome with the rules of the table's foreign keys; a delayed result is in the next check."""
        keys = self._known.get(outcome.table, ())
        if not keys or outcome.applied is None:
            return outcome
        check = outcome.done.check or CheckReport(outcome.table, 0, 0, True, summary=Summary(0, {}, 0))
        results = {key: self._found.pop(key, Missing()) for key in keys}
        rules = tuple(
            RuleResult(rule_name(key), "", self._severity, found.checked, found.missing, _description(key))
            for key, found in results.items()
        )
        summary = check.summary
        if summary is not None:
            counts = {rule_name(key): found.missing for key, found in results.items()}
            summary = replace(summary, failed={**summary.failed, **counts})
        check = replace(check, rules=(*check.rules, *rules), summary=summary)
        return replace(outcome, done=replace(outcome.done, check=check))

    def _tell(self, text: str) -> None:
        """Log a text once per run."""
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)


def rule_name(key: ForeignKey) -> str:
    """The rule's name, unique in its table."""
    return f"{REFERENCE_PRESENT}:{key.name}"


def _description(key: ForeignKey) -> str:
    return f"({', '.join(key.columns)}) refers to a row of {key.parent} ({', '.join(key.parent_columns)})"


def _is_at(
    table: TableId,
    states: MergeStates,
    to_lsn: int,
    round_: dict[TableId, tuple[SliceOrder, SliceOutcome]],
) -> bool:
    """Whether the lake table shows the source as of the end of a round to ``to_lsn`` that has not been recorded yet."""
    state = states.of(table)
    overlap = states.overlap(table)
    if (state.version is None and table not in round_) or (overlap is not None and overlap.lsn > to_lsn):
        return False
    order, outcome = round_.get(table, (None, None))
    if order is not None and outcome is not None and order.to_lsn is not None:
        return outcome.error is None and outcome.merged is not None and to_lsn <= outcome.merged <= order.to_lsn
    if states.holds_back(table, to_lsn) or state.awaits_retry or (state.merged or 0) > to_lsn:
        return False
    return order is not None or state.backlog is None or state.backlog > to_lsn

"""The complete check of one table's slice: judge, decide, and split only if a row is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from numbers import Number

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import LimitExceededError, SliceFailedError, TableError
from cdc_core.quality import duck
from cdc_core.quality.expectations import COLUMN_ARGUMENTS
from cdc_core.quality.judge import SliceVerdicts, judge, quarantine_rows
from cdc_core.quality.options import NONE_RECENT, Limits, RecentChanges
from cdc_core.quality.report import RuleVerdict, Summary
from cdc_core.quality.rules import Origin, Rule, Severity
from cdc_core.schema import TableId

# Aggregates that are values of rows, which no message contains.
_VALUES_OF_ROWS = ("_max_to_be", "_min_to_be", "_distinct_values_to", "_most_common_value", "_quantile_values_to")
_NOT_TOLD = (*COLUMN_ARGUMENTS, "condition_parser")


@dataclass(frozen=True, slots=True)
class Checked:
    """The judgement of a slice: its rows by whether they are refused, and whether it may be merged at all; picklable.

    ``good`` contains the slice's rows that are not refused, with its schema and order. ``bad`` contains quarantine rows
    (position columns, ``reasons`` list<string>, ``row`` and ``key`` JSON text), or is None if no row is refused.
    ``refused`` is the mask of these in the slice and ``reasons`` the rules by which each is, None like ``bad``:
    bool[N], list<string>[bad rows]. ``failure`` is the error with which the table is paused if a critical expectation
    on the slice as a whole failed: then none of its rows may be merged, and none is quarantined. ``verdicts`` are those
    of all rules.
    """

    table: TableId
    good: pa.Table
    bad: pa.Table | None
    rules: tuple[Rule, ...]
    summary: Summary
    verdicts: tuple[RuleVerdict, ...]
    refused: pa.BooleanArray | None = None
    reasons: pa.ListArray | None = None
    failure: SliceFailedError | None = None

    @property
    def success(self) -> bool:
        """Whether no expectation of severity error failed."""
        return all(verdict.success or verdict.rule.severity is not Severity.ERROR for verdict in self.verdicts)


def check(
    changes: pa.Table,
    table: TableId,
    rules: tuple[Rule, ...],
    *,
    refresh: Callable[[], tuple[Rule, ...]] | None = None,
    limits: Limits | None = None,
    recent: RecentChanges = NONE_RECENT,
    key: tuple[str, ...] = (),
    over_batch: Callable[[tuple[Rule, ...]], Mapping[str, np.ndarray]] | None = None,
    accept: Collection[str] = (),
    is_slice: bool = True,
) -> Checked:
    """Judge a slice of change rows before it is merged.

    Unexpected rows of failed error rules are returned as ``bad``. ``refresh`` returns the rules for the current
    catalogue: it is called once if a catalogue rule failed, because the source may have a new enum label or a dropped
    NOT NULL that the stream does not contain; such rules have the LSN from which they are known to be in force. ``key``
    names the key columns in quarantine rows. ``over_batch`` returns the unexpected rows of rules over several rows, by
    the rule's name, bool[N] each. ``accept`` names expectations on the slice as a whole whose failure does not keep it
    from being merged; if the rows are not ``is_slice``, none does. Raises LimitExceededError if the refused rows exceed
    ``limits`` (None: without limit) after those of the ``recent`` changes, NotJudgedError if a rule cannot be
    evaluated, and TableError if a position occurs twice, which no later step could repair.
    """
    name = str(table)
    rules = applicable(changes.schema, rules)
    judged = judge(name, changes, rules, None if over_batch is None else over_batch(rules))
    if refresh is not None and _catalogue_failed(judged):
        renewed = applicable(changes.schema, refresh())
        if renewed != rules:
            rules = renewed
            judged = judge(name, changes, rules, None if over_batch is None else over_batch(rules))
    summary = judged.summary
    if summary.duplicates:
        raise TableError(
            f"The changelog of {name} has {summary.duplicates} row(s) with duplicate positions.",
            "This round was not merged; the changelog was written to by something other than wal2lake.",
            name,
        )
    if limits is not None and limits.exceeded(recent, summary.rows, summary.quarantined):
        before = f", after {recent.refused:.0f} of the {recent.rows:.0f} before" if recent.rows else ""
        raise LimitExceededError(
            f"{summary.quarantined} of {summary.rows} changes of {name} fail a rule "
            f"({_worst(judged)}){before}: more than {limits.share_name} ({limits.share}) allows.",
            f"Correct the rule, then run wal2lake replay with {name}, or with --accept-all to merge the changes as "
            "they are; they are kept in the changelog.",
            name,
        )
    good, bad = _split(changes, judged, key)
    stopping = [
        verdict for verdict in judged.verdicts if is_slice and verdict.stops and not verdict.rule.is_among(accept)
    ]
    failure = _failure(name, stopping)
    return Checked(table, good, bad, rules, summary, judged.verdicts, judged.bad, judged.reasons, failure)


def require_valid(table: TableId, rules: tuple[Rule, ...], schema: pa.Schema) -> None:
    """Raise TableError naming a user's rule that cannot be evaluated on change rows of ``schema``."""
    duck.require_valid(str(table), applicable(schema, rules), schema)


def applicable(schema: pa.Schema, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules without those of columns missing in the slice, as in rows of an older version."""
    carried = {part.name for part in schema.field("after").type}
    return tuple(rule for rule in rules if rule.origin is not Origin.CATALOGUE or rule.column in ("", *carried))


def expected(rule: Rule) -> str:
    """What an expectation expects, as ``min_value 0, max_value 5``; a condition's own text."""
    if rule.is_condition:
        return rule.description
    told = {name: value for name, value in rule.arguments.items() if name not in _NOT_TOLD}
    return ", ".join(f"{name} {value}" for name, value in told.items() if value is not None) or rule.description


def observed(verdict: RuleVerdict) -> str:
    """What an expectation on a slice observed, as far as it is no value of a row."""
    value = verdict.observed
    if (
        isinstance(value, bool)
        or not isinstance(value, Number)
        or any(part in verdict.rule.kind for part in _VALUES_OF_ROWS)
    ):
        return ""
    return str(value)


def _failure(table: str, failed: list[RuleVerdict]) -> SliceFailedError | None:
    if not failed:
        return None
    told = "; ".join(
        f"{verdict.rule.plain_name} on {verdict.metrics.rows} rows"
        f"{f', observed {observed(verdict)}' if observed(verdict) else ''}, expected {expected(verdict.rule)}"
        for verdict in failed
    )
    accepted = " ".join(f"--accept {verdict.rule.plain_name}" for verdict in failed)
    return SliceFailedError(
        f"Changes of {table} fail an expectation of severity critical: {told}.",
        f"Correct the source or the expectation and run wal2lake replay with {table}, or merge them by {accepted}; "
        "the changes are kept in the changelog.",
        table,
    )


def _split(changes: pa.Table, judged: SliceVerdicts, key: tuple[str, ...]) -> tuple[pa.Table, pa.Table | None]:
    if judged.bad is None:
        return changes, None
    return changes.filter(pc.invert(judged.bad)), quarantine_rows(changes, judged, key)


def _catalogue_failed(judged: SliceVerdicts) -> bool:
    return any(not verdict.success and verdict.rule.origin is Origin.CATALOGUE for verdict in judged.verdicts)


def _worst(judged: SliceVerdicts) -> str:
    """Return the error rules that failed, those with most failures first."""
    failed = [
        (verdict.metrics.unexpected, verdict.rule.name)
        for verdict in judged.verdicts
        if not verdict.success and verdict.rule.severity is Severity.ERROR and not verdict.over_slice
    ]
    return ", ".join(f"{name} {count}" for count, name in sorted(failed, reverse=True) if count)

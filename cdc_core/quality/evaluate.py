"""The complete check of one table's slice: count, decide, and split only if something failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import LimitExceededError, TableError
from cdc_core.quality import duck
from cdc_core.quality.duck import Judged, judge, quarantine_rows
from cdc_core.quality.options import NONE_RECENT, Limits, Recent
from cdc_core.quality.report import Summary, TableReport, error_rules, outcomes
from cdc_core.quality.rules import Origin, Rule
from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of ``check``; picklable.

    ``good`` contains the slice's rows that may be merged, with its schema and order. ``bad`` contains quarantine rows
    (position columns, ``reasons`` list<string>, ``row`` and ``key`` JSON text), or is None if no row failed.
    ``refused`` is the mask of these in the slice and ``reasons`` the rules that each fails, None like ``bad``: bool[N],
    list<string>[bad rows]. ``rules`` and ``summary`` are validated by Great Expectations; ``report.suite_success`` is
    the expected result.
    """

    good: pa.Table
    bad: pa.Table | None
    report: TableReport
    rules: tuple[Rule, ...]
    summary: Summary
    refused: pa.BooleanArray | None = None
    reasons: pa.ListArray | None = None


def check(
    changes: pa.Table,
    table: TableId,
    rules: tuple[Rule, ...],
    *,
    refresh: Callable[[], tuple[Rule, ...]] | None = None,
    limits: Limits | None = None,
    recent: Recent = NONE_RECENT,
    key: tuple[str, ...] = (),
    over_batch: Callable[[tuple[Rule, ...]], Mapping[str, np.ndarray]] | None = None,
) -> Checked:
    """Evaluate ``rules`` on a slice of change rows before it is merged.

    Rows that fail an error rule are returned as ``bad``. ``refresh`` returns the rules for the current catalogue: it is
    called once if a catalogue rule failed, because the source may have a new enum label or a dropped NOT NULL that the
    stream does not contain; such rules have the LSN from which they are known to be in force. ``key`` names the key
    columns in quarantine rows. ``over_batch`` returns the rows that fail rules over several rows, by the rule's name,
    bool[N] each. Raises LimitExceededError if the failures exceed ``limits`` (None: without limit) after those of the
    ``recent`` changes, TableError if a position occurs twice, which no later step could repair, and for a user's rule
    that DuckDB cannot evaluate.
    """
    name = str(table)
    rules = applicable(changes.schema, rules)
    judged = judge(name, changes, rules, None if over_batch is None else over_batch(rules))
    if refresh is not None and _catalogue_failed(rules, judged.summary):
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
            f"({_worst(rules, summary)}){before}: more than {limits.share_name} ({limits.share}) allows.",
            f"Correct the rule, then run wal2lake replay with {name}, or with --accept-all to merge the changes as "
            "they are; they are kept in the changelog.",
            name,
        )
    good, bad = _split(changes, judged, key)
    report = TableReport(
        table, summary.rows, summary.quarantined, bad is None, outcomes(rules, summary), summary.duplicates
    )
    return Checked(good, bad, report, rules, summary, judged.bad, judged.reasons)


def require_valid(table: TableId, rules: tuple[Rule, ...], schema: pa.Schema) -> None:
    """Raise TableError naming a user's rule that cannot be evaluated on change rows of ``schema``."""
    duck.require_valid(str(table), applicable(schema, rules), schema)


def applicable(schema: pa.Schema, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules without those of columns missing in the slice, as in rows of an older version."""
    carried = {part.name for part in schema.field("after").type}
    return tuple(rule for rule in rules if rule.origin is not Origin.CATALOGUE or rule.column in ("", *carried))


def _split(changes: pa.Table, judged: Judged, key: tuple[str, ...]) -> tuple[pa.Table, pa.Table | None]:
    if judged.bad is None:
        return changes, None
    return changes.filter(pc.invert(judged.bad)), quarantine_rows(changes, judged, key)


def _catalogue_failed(rules: tuple[Rule, ...], summary: Summary) -> bool:
    return any(rule.origin is Origin.CATALOGUE and summary.failed.get(rule.name, 0) for rule in rules)


def _worst(rules: tuple[Rule, ...], summary: Summary) -> str:
    """Return the error rules that failed, those with most failures first."""
    failed = [(summary.failed.get(rule.name, 0), rule.name) for rule in error_rules(rules)]
    return ", ".join(f"{name} {count}" for count, name in sorted(failed, reverse=True) if count)

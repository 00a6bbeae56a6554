"""Judges one slice of a table: which rows are refused, and whether the slice as a whole may be merged.

    change rows ─▶ metrics, of rows that are all as         ┐
                   expected by Arrow (``sound``),           │
                   else one DuckDB statement (``duck``)     │
                   or the library itself, with pandas        ├▶ verdict of each expectation (``great_expectations``)
                                                             ┘        ─▶ unexpected rows of those that failed

An expectation that cannot be evaluated is never met: any error of DuckDB, the library or a rule is a NotJudgedError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import NotJudgedError
from cdc_core.quality.duck import as_quarantine_rows, measuring, queried
from cdc_core.quality.great_expectations import ExpectationVerdict, evaluated, verdict
from cdc_core.quality.report import Metrics, RuleVerdict, Summary
from cdc_core.quality.rules import By, Rule, Severity
from cdc_core.quality.sound import sound_metrics


@dataclass(frozen=True, slots=True)
class SliceVerdicts:
    """The verdicts on a slice. ``bad`` and ``reasons`` are set only if a row is refused.

    ``bad`` is a mask of the slice's rows, ``reasons`` the names of the error rules by which each bad row is unexpected,
    in the rules' order: bool[N], list<string>[bad rows].
    """

    summary: Summary
    verdicts: tuple[RuleVerdict, ...] = ()
    bad: pa.BooleanArray | None = None
    reasons: pa.ListArray | None = None


@dataclass(slots=True)
class Findings:
    """The evaluation of one rule on some rows: metrics, unexpected rows if requested, a verdict by rows."""

    rule: Rule
    metrics: Metrics
    unexpected: np.ndarray | None = field(default=None)
    verdict: ExpectationVerdict | None = field(default=None)


def judge(
    table: str, changes: pa.Table, rules: Sequence[Rule], found_failed: Mapping[str, np.ndarray] | None = None
) -> SliceVerdicts:
    """Have the rules of ``table`` (``schema.table``) judge its change rows.

    The unexpected rows are determined, by a second pass, only if there are any. ``found_failed`` contains the
    unexpected rows of rules over several rows, by rule, bool[N] each; such rules are true in SQL. Raises NotJudgedError
    naming the rule that cannot be evaluated; the text never contains a row's values.
    """
    rules = tuple(rules)
    duplicates, highest = _duplicates(changes), pc.max(changes.column("__commit_lsn")).as_py()
    if not changes.num_rows:
        return SliceVerdicts(Summary(0, {rule.name: 0 for rule in rules}, 0, 0, None))
    findings = _measured(table, changes, rules, found_failed or {})
    verdicts = tuple(verdict_of(table, finding) for finding in findings)
    failed = {
        rule_verdict.rule.name: 0 if rule_verdict.success else rule_verdict.metrics.unexpected
        for rule_verdict in verdicts
    }
    refusing = [
        finding
        for finding, rule_verdict in zip(findings, verdicts, strict=True)
        if not rule_verdict.success and finding.rule.severity is Severity.ERROR and finding.unexpected is not None
    ]
    if not refusing:
        return SliceVerdicts(Summary(changes.num_rows, failed, 0, duplicates, highest), verdicts)
    grid = np.stack([finding.unexpected for finding in refusing if finding.unexpected is not None], axis=1)
    bad = grid.any(axis=1)
    summary = Summary(changes.num_rows, failed, int(bad.sum()), duplicates, highest)
    reasons = _reasons(grid[bad], [finding.rule.name for finding in refusing])
    return SliceVerdicts(summary, verdicts, pa.array(bad), reasons)


def _measured(
    table: str, changes: pa.Table, rules: tuple[Rule, ...], found_failed: Mapping[str, np.ndarray]
) -> list[Findings]:
    sound = None if found_failed else sound_metrics(changes, rules)
    if sound is not None:
        return [Findings(*pair) for pair in zip(rules, sound, strict=True)]
    with measuring(table, changes, rules) as slice_:
        findings = [Findings(*pair) for pair in zip(rules, slice_.metrics(), strict=True)]
        for finding in findings:
            finding.unexpected = found_failed.get(finding.rule.name)
        wrong = [
            finding for finding in findings if finding.metrics.unexpected and finding.rule.severity is Severity.ERROR
        ]
        if wrong:
            grid = slice_.unexpected([finding.rule for finding in wrong])
            lsn = changes.column("__commit_lsn").fill_null(0).to_numpy()
            for number, finding in enumerate(wrong):
                # A rule may not have been in force when an earlier row was written.
                finding.unexpected = (
                    grid[:, number] & (lsn > finding.rule.since) if finding.rule.since else grid[:, number]
                )
        by_rows = [finding for finding in findings if finding.rule.by is not By.SQL and finding.metrics.rows]
        judged = slice_.judged([finding.rule for finding in by_rows]).T if by_rows else ()
    for finding, of_rule in zip(by_rows, judged, strict=True):
        _judge_rows(table, changes, finding, of_rule)
    for finding in findings:
        if finding.unexpected is not None:
            finding.metrics = replace(finding.metrics, unexpected=int(finding.unexpected.sum()))
    return findings


def _judge_rows(table: str, changes: pa.Table, finding: Findings, judged: np.ndarray) -> None:
    places = judge_rows(table, new_rows(changes.filter(pa.array(judged))), finding)
    if places is not None:
        finding.unexpected = np.zeros(changes.num_rows, dtype=bool)
        finding.unexpected[np.flatnonzero(judged)[places]] = True


def judge_rows(table: str, rows: pa.Table, finding: Findings) -> np.ndarray | None:
    """Have the rule's query, or the library, evaluate the new rows that it judges.

    Returns the positions of the unexpected rows, None for an expectation on the rows as a whole: int64[U].
    """
    rule = finding.rule
    if rule.by is By.QUERY:
        count, places = queried(table, rule, rows)
        counts = {"unexpected_rows_query.row_count": count, "unexpected_rows_query.table": None}
        finding.metrics = Metrics(finding.metrics.rows, unexpected=count, values=counts)
        finding.verdict = _guarded(table, rule, lambda: replace(verdict(rule, finding.metrics), unexpected=places))
    else:
        finding.verdict = _guarded(table, rule, lambda: evaluated(rule, rows))
        places = finding.verdict.unexpected
    return places


def new_rows(changes: pa.Table) -> pa.Table:
    """Return the new rows of changes that have one, in the columns of the table: what a suite of the user judges."""
    after = changes.column("after")
    names = [part.name for part in after.type]
    columns = {name: pc.struct_field(after, [at]) for at, name in enumerate(names) if name != "__rescued"}
    return pa.table(columns)


def verdict_of(table: str, finding: Findings) -> RuleVerdict:
    """Have the rule's expectation judge the metrics, if the library has not judged rows. Raises NotJudgedError."""
    rule, metrics, of_rows = finding.rule, finding.metrics, finding.verdict
    over_slice = bool(rule.measures) or (of_rows is not None and of_rows.unexpected is None)
    is_empty = not metrics.rows and (rule.measures or rule.by is not By.SQL)
    if is_empty:
        return RuleVerdict(rule, True, metrics, over_slice=over_slice)  # an aggregate of no rows proves nothing
    if of_rows is None:
        of_rows = _guarded(table, rule, lambda: verdict(rule, metrics))
    return RuleVerdict(rule, of_rows.success, metrics, of_rows.observed if over_slice else None, over_slice)


def _guarded(table: str, rule: Rule, judged: Callable[[], ExpectationVerdict]) -> ExpectationVerdict:
    try:
        return judged()
    except NotJudgedError:
        raise
    except Exception as error:  # any error of a library: it must not count as success
        raise NotJudgedError(
            f"Expectation {rule.plain_name} of {table} could not be evaluated ({type(error).__name__}): "
            f"{rule.description}.",
            f"Correct the expectation and run wal2lake replay with {table}; the changes are kept in the changelog.",
            table,
        ) from None


def quarantine_rows(changes: pa.Table, judged: SliceVerdicts, key: Sequence[str] = ()) -> pa.Table | None:
    """Return the refused rows as rows of the quarantine table (``as_quarantine_rows``); None if there are none."""
    if judged.bad is None or judged.reasons is None:
        return None
    return as_quarantine_rows(changes.filter(judged.bad), judged.reasons, key)


def _reasons(grid: np.ndarray, names: list[str]) -> pa.ListArray:
    """Return the names of the rules that each row fails. Shape: bool[N, rules] -> list<string>[N]."""
    offsets = np.concatenate(([0], np.cumsum(grid.sum(axis=1)))).astype(np.int32)
    which = pa.array(np.nonzero(grid)[1])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(names, pa.string()).take(which))


def _duplicates(changes: pa.Table) -> int:
    """Count the rows whose position (commit LSN, index in the transaction) an earlier row has, too."""
    lsn, index = (
        changes.column(name).cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
        for name in ("__commit_lsn", "__tx_index")
    )
    rising = (lsn[1:] > lsn[:-1]) | ((lsn[1:] == lsn[:-1]) & (index[1:] > index[:-1]))
    if rising.all():  # the order in which a changelog is written
        return 0
    order = np.lexsort((index, lsn))
    lsn, index = lsn[order], index[order]
    return int(((lsn[1:] == lsn[:-1]) & (index[1:] == index[:-1])).sum())

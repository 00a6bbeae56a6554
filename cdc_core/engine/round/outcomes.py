"""Aggregates the outcomes of a round's slices for its report."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.engine.reports import MergeReport
from cdc_core.errors import ChangesRefusedError
from cdc_core.lake import SliceOutcome
from cdc_core.lsn import Lsn
from cdc_core.quality import CheckReport, RuleResult


def merge_report(outcome: SliceOutcome) -> MergeReport | None:
    """The report of a table that the round merged; None if it merged nothing of it."""
    applied, quarantined = outcome.applied, outcome.done.quarantined
    if applied is None:
        return None
    return MergeReport(
        outcome.table,
        Lsn(outcome.merged or 0),
        applied.version,
        applied.events,
        applied.inserted,
        applied.updated,
        applied.deleted,
        sum(outcome.timings.seconds.values()),
        outcome.done.check,
        0 if quarantined is None else quarantined.waiting,
        applied.committed_us,
    )


def refused(outcomes: Sequence[SliceOutcome], merges: Sequence[MergeReport]) -> tuple[CheckReport, ...]:
    """The judgements of slices that were not merged; of one that could not be judged, that nothing of it passed."""
    merged = {merge.table for merge in merges}
    judgements = (o.done.check or _not_judged(o) for o in outcomes if o.table not in merged)
    return tuple(check for check in judgements if check is not None)


def _not_judged(outcome: SliceOutcome) -> CheckReport | None:
    if not isinstance(outcome.error, ChangesRefusedError):
        return None
    rule = RuleResult("judged", "", "error", 0, 0, outcome.error.message, success=False, over_slice=True)
    return CheckReport(outcome.table, 0, 0, False, (rule,))


def cpu_parts(outcomes: Sequence[SliceOutcome]) -> dict[str, float]:
    """CPU-seconds of the round's tasks by part."""
    totals: dict[str, float] = {}
    for outcome in outcomes:
        for part, seconds in outcome.timings.cpu_seconds.items():
            totals[part] = totals.get(part, 0.0) + seconds
    return totals

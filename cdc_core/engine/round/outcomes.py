"""Aggregates the outcomes of a round's slices for its report."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.engine.reports import MergeReport
from cdc_core.engine.slice.order import Applied, SliceOrder, SliceOutcome
from cdc_core.lsn import Lsn


def has_rest(order: SliceOrder, outcome: SliceOutcome) -> bool:
    """Whether Spark merged only the first part of a slice because its key changed: the next round merges the rest."""
    if outcome.staged is None or outcome.error is not None or order.to_lsn is None:
        return False
    return outcome.staged.to_lsn < order.to_lsn


def merge_report(order: SliceOrder, outcome: SliceOutcome, applied: Applied) -> MergeReport:
    """The report of a table that the round merged."""
    return MergeReport(
        order.table.id,
        Lsn(outcome.merged or 0),
        applied.version,
        applied.events,
        applied.inserted,
        applied.updated,
        applied.deleted,
        sum(outcome.seconds.values()),
        outcome.check,
        outcome.waiting or 0,
    )


def cpu_parts(outcomes: Sequence[SliceOutcome]) -> dict[str, float]:
    """CPU-seconds of the round's tasks by part."""
    found: dict[str, float] = {}
    for outcome in outcomes:
        for part, seconds in outcome.cpu_seconds.items():
            found[part] = found.get(part, 0.0) + seconds
    return found

"""A check result as a separate event, for a run that has not ended; later results of the run replace it."""

from __future__ import annotations

import dagster as dg


def evaluation(result: dg.AssetCheckResult, key: dg.AssetCheckKey, *, blocking: bool) -> dg.AssetCheckEvaluation:
    """The event. Unlike a result of the step, a failed evaluation does not end the run."""
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.passed,
        metadata=result.metadata,
        severity=result.severity,
        description=result.description,
        blocking=blocking,
    )

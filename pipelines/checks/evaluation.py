"""A check's result as an event of its own, for a run that is not at its end; later ones of the run replace it."""

from __future__ import annotations

import dagster as dg


def evaluation(result: dg.AssetCheckResult, key: dg.AssetCheckKey, *, blocking: bool) -> dg.AssetCheckEvaluation:
    """The event. Unlike a result, one that did not pass ends nothing."""
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.passed,
        metadata=result.metadata,
        severity=result.severity,
        description=result.description,
        blocking=blocking,
    )

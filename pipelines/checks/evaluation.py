"""Check results as separate events, for a run that has not ended; later results of the run replace them."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from wal2lake.pipelines.step.log import logged

_PLANNED = "PLANNED"


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


class Evaluations:
    """Logs the evaluations of a run that lasts, so that the latest one is shown. For the step's thread only.

    Dagster keeps one evaluation of a check for each run, in the order in which the runs first had one. So once another
    run has evaluated a check (*Execute* on its page), all later ones of this run would be hidden behind that; they are
    reported without a run instead.
    """

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._context = context
        self._logged: set[dg.AssetCheckKey] = set()

    def log(self, result: dg.AssetCheckResult, key: dg.AssetCheckKey, *, blocking: bool) -> None:
        """Log an evaluation now."""
        made = evaluation(result, key, blocking=blocking)
        if self.hidden([key]):
            self._context.instance.report_runless_asset_event(made)
        else:
            logged(self._context, made)
            self._logged.add(key)

    def hidden(self, keys: Iterable[dg.AssetCheckKey]) -> set[dg.AssetCheckKey]:
        """The checks that this run has evaluated, and another one since; not those that are being executed."""
        mine = [key for key in keys if key in self._logged]
        latest = self._context.instance.event_log_storage.get_latest_asset_check_execution_by_key(mine)
        own = self._context.run.run_id
        return {key for key, found in latest.items() if found.run_id != own and found.status.value != _PLANNED}

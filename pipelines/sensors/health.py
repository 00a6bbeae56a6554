"""A sensor that evaluates the slot's checks and metrics without a run, also while no run is streaming."""

from __future__ import annotations

import json
import time

import dagster as dg

from cdc_core.errors import CdcError
from wal2lake.pipelines.checks.evaluation import evaluation
from wal2lake.pipelines.checks.slot import SAME_SECONDS, check_keys, facts, results
from wal2lake.pipelines.connector.keys import changes_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports.freshness import up_to_date

POLL_SECONDS = 60


def health_sensor(site: Site) -> dg.SensorDefinition:
    """Checks the slot each minute: reports a change of its checks immediately, an unchanged state every five minutes.

    Tables with a freshness policy that are up to date without a change are materialized again (``up_to_date``).
    """

    @dg.sensor(
        name=f"{site.safe_name}_slot_health",
        minimum_interval_seconds=POLL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Checks the replication slot {site.slot}: lag in bytes and seconds, retained WAL, activity.",
    )
    def watch_health(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            backlog = site.open().pending()
            current = up_to_date(context.instance, site, backlog)
        except CdcError as error:
            return dg.SkipReason(str(error))
        slot_results = results(site, backlog)
        state = [bool(result.passed) for result in slot_results]
        told, at = _parsed(context.cursor)
        now = time.time()
        if state == told and now - at < SAME_SECONDS:
            if not current:
                return dg.SkipReason("nothing changed")
            return dg.SensorResult(
                skip_reason=f"{len(current)} tables are up to date", cursor=context.cursor, asset_events=current
            )
        failed = [str(result.check_name) for result in slot_results if not result.passed]
        return dg.SensorResult(
            skip_reason=f"failed: {', '.join(failed)}" if failed else "all checks passed",
            cursor=json.dumps([state, now]),
            asset_events=[
                *current,
                dg.AssetObservation(asset_key=changes_key(site), metadata=facts(backlog)),
                *(
                    evaluation(result, key, blocking=False)
                    for result, key in zip(slot_results, check_keys(site), strict=True)
                ),
            ],
        )

    return watch_health


def _parsed(cursor: str | None) -> tuple[list[bool], float]:
    try:
        state, at = json.loads(cursor or "")
        return list(state), float(at)
    except (ValueError, TypeError):
        return [], 0.0

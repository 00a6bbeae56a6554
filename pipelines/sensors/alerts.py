"""Alerts: failed runs, and checks that start to fail or pass again, are posted to a webhook.

What makes several checks fail is posted once: by the check that the others name in their metadata.

``WAL2LAKE_ALERT_WEBHOOK`` is the URL for the whole code location; without it the sensors are not defined. An alert is a
JSON object with a message for chat services in ``text``, and separate fields.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import dagster as dg

from cdc_core import outbox
from wal2lake.pipelines.checks.tables import REPORTED_BY

VARIABLE = "WAL2LAKE_ALERT_WEBHOOK"
POLL_SECONDS = 30
_TIMEOUT_SECONDS = 10.0
_MAX_EVENTS = 500


class AlertError(Exception):
    """The webhook did not accept an alert. The message does not contain the URL, which may be a secret."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Position in the event log of checks, and the checks (``asset:check``) that failed last."""

    after: int | None = None
    failing: tuple[str, ...] = ()

    @classmethod
    def parse(cls, cursor: str | None) -> Watched:
        """Parse a cursor; a new one if it is missing or not valid."""
        try:
            state = json.loads(cursor or "{}")
            return cls(state.get("after"), tuple(state.get("failing", ())))
        except (ValueError, AttributeError, TypeError):
            return cls()

    def text(self) -> str:
        """The cursor as text."""
        return json.dumps({"after": self.after, "failing": list(self.failing)})


def alert_sensors() -> list[dg.SensorDefinition]:
    """The sensors of the code location; none if no URL is set."""
    return [_run_failures(), _check_failures()] if os.environ.get(VARIABLE, "").strip() else []


def post(alert: Mapping[str, str]) -> None:
    """Post an alert. Raises AlertError."""
    address = os.environ.get(VARIABLE, "").strip()
    if not address.startswith(("http://", "https://")):
        raise AlertError(f"{VARIABLE} is not an http address.")
    try:
        outbox.post(address, json.dumps(dict(alert)).encode(), {}, _TIMEOUT_SECONDS)
    except outbox.DeliveryError as error:
        what = f"answered {error.status}" if error.status else f"cannot be reached: {error.fault}"
        raise AlertError(f"The address of {VARIABLE} {what}.") from None


def run_failed(run: dg.DagsterRun, message: str) -> dict[str, str]:
    """The alert of a failed run."""
    return {
        "event": "run_failure",
        "text": f"Run {run.run_id[:8]} of {run.job_name} failed: {message}",
        "job": run.job_name,
        "run_id": run.run_id,
        "message": message,
    }


def check_changed(key: str, evaluation: dg.AssetCheckEvaluation, run_id: str) -> dict[str, str]:
    """The alert for a check that started to fail, or passes again."""
    verdict = "passes again" if evaluation.passed else f"failed: {evaluation.description or 'see its metadata'}"
    return {
        "event": "check_recovery" if evaluation.passed else "check_failure",
        "text": f"Check {evaluation.check_name} of {evaluation.asset_key.to_user_string()} {verdict}",
        "check": key,
        "severity": evaluation.severity.value,
        "run_id": run_id,
        "message": evaluation.description or "",
    }


def _run_failures() -> dg.SensorDefinition:
    @dg.run_failure_sensor(
        name="wal2lake_run_failures",
        minimum_interval_seconds=POLL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Posts each failed run to the address of {VARIABLE}.",
    )
    def watch_runs(context: dg.RunFailureSensorContext) -> None:
        post(run_failed(context.dagster_run, _why(context)))

    return watch_runs


def _check_failures() -> dg.SensorDefinition:
    @dg.sensor(
        name="wal2lake_check_failures",
        minimum_interval_seconds=POLL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Posts each check that starts to fail, or passes again, to the address of {VARIABLE}.",
    )
    def watch_checks(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        watched = Watched.parse(context.cursor)
        if watched.after is None:
            # Failures from before the first evaluation of the sensor are not posted.
            context.update_cursor(replace(watched, after=_newest(context.instance)).text())
            return dg.SkipReason("the sensor has started; earlier results are not posted")
        reported = 0
        records_filter = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION, after_cursor=watched.after)
        for record in context.instance.event_log_storage.get_event_records(records_filter, _MAX_EVENTS, ascending=True):
            event = record.event_log_entry.dagster_event
            evaluation = event.event_specific_data if event is not None else None
            failing = set(watched.failing)
            if isinstance(evaluation, dg.AssetCheckEvaluation):
                key = f"{evaluation.asset_key.to_user_string()}:{evaluation.check_name}"
                is_other = not evaluation.passed and REPORTED_BY in evaluation.metadata
                if evaluation.passed == (key in failing) and not is_other:
                    post(check_changed(key, evaluation, record.event_log_entry.run_id))
                    reported += 1
                    failing = failing - {key} if evaluation.passed else failing | {key}
            # One at a time: if the webhook is not available, remaining alerts are posted at the next evaluation.
            watched = Watched(record.storage_id, tuple(sorted(failing)))
            context.update_cursor(watched.text())
        return dg.SkipReason(f"{reported} changes posted" if reported else "no check changed")

    return watch_checks


def _why(context: dg.RunFailureSensorContext) -> str:
    """The error message of the failed step, otherwise Dagster's message about the run."""
    for event in context.get_step_failure_events():
        data = event.step_failure_data
        if data.user_failure_data is not None and data.user_failure_data.description:
            return data.user_failure_data.description
        # A step that failed in all retries ends with another error, whose cause is the engine's error.
        error = data.error
        while error is not None:
            if error.cls_name == "Failure":
                return error.message.partition(": ")[2].strip()
            error = error.cause
    return context.failure_event.message or ""


def _newest(instance: dg.DagsterInstance) -> int:
    records_filter = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    records = instance.event_log_storage.get_event_records(records_filter, 1, ascending=False)
    return records[0].storage_id if records else 0

"""Alerts: failed runs, and checks that start to fail or pass again, are posted to a webhook.

What makes several checks fail is posted once: by the check that the others name in their metadata.

``WAL2LAKE_ALERT_WEBHOOK`` is the URL for the whole code location; without it the sensors are not defined. An alert is a
JSON object with a message for chat services in ``text``, and separate fields.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import dagster as dg

from cdc_core import outbox
from wal2lake.pipelines.checks.tables import REPORTED_BY

VARIABLE = "WAL2LAKE_ALERT_WEBHOOK"
POLL_SECONDS = 30
_TIMEOUT_SECONDS = 10.0


class AlertError(Exception):
    """The webhook did not accept an alert. The message does not contain the URL, which may be a secret."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The time of the newest evaluation when the sensor started, and the checks (``asset:check``) that fail since."""

    after: float | None = None
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
        assert context.repository_def is not None  # of every sensor that is evaluated
        newest = _evaluated(context.instance, context.repository_def.asset_graph.asset_check_keys)
        watched = Watched.parse(context.cursor)
        if watched.after is None:
            # Failures from before the first evaluation of the sensor are not posted.
            last = max((event.timestamp for event, _ in newest.values()), default=0.0)
            context.update_cursor(replace(watched, after=last).text())
            return dg.SkipReason("the sensor has started; earlier results are not posted")
        reported, failing = 0, set(watched.failing)
        for key, (event, evaluation) in newest.items():
            is_other = not evaluation.passed and REPORTED_BY in evaluation.metadata
            if event.timestamp <= watched.after or evaluation.passed != (key in failing) or is_other:
                continue
            post(check_changed(key, evaluation, event.run_id))
            reported += 1
            failing ^= {key}
            # One at a time: if the webhook is not available, remaining alerts are posted at the next evaluation.
            context.update_cursor(replace(watched, failing=tuple(sorted(failing))).text())
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


def _evaluated(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetCheckKey]
) -> dict[str, tuple[dg.EventLogEntry, dg.AssetCheckEvaluation]]:
    """Return the newest evaluation of each check that has one, by ``asset:check``.

    From the table of checks, which every storage has: with SQLite, events are kept by run and have no common order.
    """
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys))
    return {
        f"{key.asset_key.to_user_string()}:{key.name}": (record.event, record.evaluation)
        for key, record in sorted(records.items())
        if record.event is not None and record.evaluation is not None
    }

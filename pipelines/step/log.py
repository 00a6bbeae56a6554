"""Events of a step that are logged at once, and what a step's log leaves out."""

from __future__ import annotations

import logging
from typing import Any

import dagster as dg


def is_not_about_missing_results(record: logging.LogRecord) -> bool:
    """A filter without Dagster's line on checks that a step did not evaluate, for a step that has said so itself."""
    return "did not yield or return expected outputs" not in record.getMessage()


def logged(context: dg.AssetExecutionContext, event: Any) -> None:
    """Write an event (materialization, observation, evaluation) to Dagster's event log now, and keep nothing of it."""
    context.log_event(event)
    # It is in the event log by now. The step would keep it for an iteration over the run in this process, which would
    # use much memory over an hour.
    for _ in context.consume_events():
        pass

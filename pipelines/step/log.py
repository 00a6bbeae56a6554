"""Events of a step that are logged at once, and what a step's log leaves out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import dagster as dg

_REST_SECONDS = 1.0

_log = logging.getLogger(__name__)


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


class RetriedReports:
    """Calls ``report_due``, which logs what is due to Dagster; after an error, again once a second has passed.

    ``subject`` is what is reported, for the line in the process's log. For one thread.
    """

    def __init__(self, subject: str, report_due: Callable[[], None], clock: Callable[[], float]) -> None:
        self._subject = subject
        self._report_due = report_due
        self._now = clock
        self._rest_until = 0.0

    def __call__(self) -> None:
        """Report, unless the last attempt has just failed."""
        if self._now() < self._rest_until:
            return
        try:
            self._report_due()
        except Exception as error:
            # Not by context.log, which uses the same database. The work that is reported continues.
            _log.warning(
                "A report of %s could not be logged to Dagster: %s. Retrying.", self._subject, type(error).__name__
            )
            self._rest_until = self._now() + _REST_SECONDS

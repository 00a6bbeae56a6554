"""Events of a step that are logged at once, and what a step's log leaves out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import dagster as dg

RUN_TAG = "wal2lake/run"
_REST_SECONDS = 1.0
_MOST_NAMES, _MOST_CHARACTERS = 3, 250

_log = logging.getLogger(__name__)


def is_not_about_missing_results(record: logging.LogRecord) -> bool:
    """A filter without Dagster's line on checks that a step did not evaluate, for a step that reports this itself."""
    return "did not yield or return expected outputs" not in record.getMessage()


def logged(context: dg.AssetExecutionContext, event: Any) -> None:
    """Write an event (materialization, observation, evaluation) to Dagster's event log now, and keep nothing of it."""
    context.log_event(event)
    # It is in the event log by now. The step would keep it for an iteration over the run in this process, which would
    # use much memory over an hour.
    for _ in context.consume_events():
        pass


def name_run(context: dg.AssetExecutionContext, what: str) -> None:
    """Say in a tag of the run what it does: the runs of selected assets are all called ``__ASSET_JOB`` by Dagster."""
    try:
        context.instance.add_run_tags(context.run.run_id, {RUN_TAG: what[:_MOST_CHARACTERS]})
    except Exception as error:
        _log.warning("A tag of the run could not be written to Dagster's database: %s.", type(error).__name__)


def listed(names: Iterable[object]) -> str:
    """The first names, and how many more there are: ``shop.a, shop.b and 3 more``."""
    texts = list(dict.fromkeys(map(str, names)))
    more = len(texts) - _MOST_NAMES
    return ", ".join(texts[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


class RetriedReports:
    """Calls ``report_due``, which logs pending events to Dagster; after an error, again once a second has passed.

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

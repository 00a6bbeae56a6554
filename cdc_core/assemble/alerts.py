"""Alerts of a connector's runs, posted to ``wal2lake.alerts.url``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.observers import Observer
from cdc_core.engine import BatchReport, RoundReport
from cdc_core.errors import CdcError
from cdc_core.observe import AlertEvent, Alerts
from cdc_core.outbox import Outbox, address, post
from cdc_core.schema import TableId
from cdc_core.snapshot import SnapshotReport

_CLOSE_SECONDS = 10.0
_TIMEOUT_SECONDS = 10.0
# A webhook that is away for a minute gets what happened meanwhile.
_RETRY_SECONDS = (1.0, 5.0, 15.0, 30.0)


class AlertObserver(Observer):
    """Posts what an operator has to know of one run."""

    def __init__(self, context: RunContext) -> None:
        observe = context.config.observe
        url = observe.alerts_url.reveal()
        self._limit_bytes, self._limit_rows = observe.alerts_lag_bytes, observe.alerts_quarantine_rows

        def deliver(alert: Mapping[str, str]) -> None:
            post(url, json.dumps(alert).encode(), {}, _TIMEOUT_SECONDS)

        self._outbox = Outbox(f"Alerts to {address(url)}", deliver, most=200, retry_seconds=_RETRY_SECONDS)
        self._alerts = Alerts(context.name, self._outbox.put, observe.alerts_after_seconds)
        self._alerts.begin()

    def read(self, report: SnapshotReport) -> None:
        """Note that the run works."""
        self._alerts.clear(AlertEvent.STREAM_DOWN)

    def durable(self, report: BatchReport) -> None:
        """Compare the lag with its limit."""
        self._alerts.clear(AlertEvent.STREAM_DOWN)
        self._note_lag(report.lag_bytes)

    def merged(self, report: RoundReport) -> None:
        """Compare lag and quarantines with their limits."""
        self._note_lag(report.lag_bytes)
        waiting = {merge.table: merge.waiting for merge in report.merges}
        waiting |= {table: replay.waiting for table, replay in report.replays.items()}
        for table, rows in waiting.items():
            if rows > self._limit_rows:
                text = f"{rows:,} changes wait in quarantine, more than {self._limit_rows:,}."
                self._alerts.set(AlertEvent.QUARANTINE, text, str(table))
            else:
                self._alerts.clear(AlertEvent.QUARANTINE, str(table))

    def unmerged(self, tables: Mapping[TableId, str]) -> None:
        """Note the tables that are not merged."""
        self._alerts.clear(AlertEvent.STREAM_DOWN)
        self._alerts.only(AlertEvent.TABLE_PAUSED, {str(table) for table in tables})
        for table, reason in tables.items():
            self._alerts.set(AlertEvent.TABLE_PAUSED, f"not merged: {reason}", str(table))

    def failed(self, error: Exception) -> None:
        """Note that the run does not work."""
        reason = str(error) if isinstance(error, CdcError) else type(error).__name__
        self._alerts.set(AlertEvent.STREAM_DOWN, f"the stream is down: {reason}")

    def end(self) -> None:
        """Post that the run ended by an error, and wait a moment until alerts are delivered."""
        self._alerts.close()
        self._outbox.close(_CLOSE_SECONDS)

    def _note_lag(self, lag_bytes: int) -> None:
        if lag_bytes > self._limit_bytes:
            text = f"{lag_bytes:,} bytes of WAL are not confirmed, more than {self._limit_bytes:,}."
            self._alerts.set(AlertEvent.SLOT_LAG, text)
        else:
            self._alerts.clear(AlertEvent.SLOT_LAG)

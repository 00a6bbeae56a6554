"""Telemetry of a connector's runs: its metrics, and rounds and snapshots as traces."""

from __future__ import annotations

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.metrics import meter
from cdc_core.assemble.observers import Observer
from cdc_core.clock import now_ns
from cdc_core.engine import MergeReport, RoundReport
from cdc_core.snapshot import SnapshotReport
from cdc_core.telemetry import Telemetry, TracedRound, TracedTable

_CLOSE_SECONDS = 10.0


class TelemetryObserver(Observer):
    """Sends metrics and traces of one run."""

    def __init__(self, context: RunContext) -> None:
        options = context.config.telemetry
        self._telemetry = Telemetry(
            options.telemetry_otlp_endpoint,
            context.name,
            meter(context).metrics.collect,
            options.telemetry_otlp_interval_seconds,
        )
        self._telemetry.begin()

    def read(self, report: SnapshotReport) -> None:
        """Trace a table's snapshot."""
        facts: dict[str, str | int | float] = {"wal2lake.table": str(report.table), "wal2lake.rows": report.rows}
        self._telemetry.add(TracedRound("snapshot", now_ns(), report.seconds, facts))

    def merged(self, report: RoundReport) -> None:
        """Trace a round with its tables."""
        tables = [_table(merge) for merge in report.merges]
        tables += [TracedTable(str(table), 0.0, error=reason) for table, reason in report.failed.items()]
        facts: dict[str, str | int | float] = {
            "wal2lake.lsn": str(report.lsn),
            "wal2lake.lag.bytes": report.lag_bytes,
            **{f"wal2lake.cpu.{part}": round(seconds, 4) for part, seconds in report.parts.items()},
        }
        self._telemetry.add(TracedRound("round", now_ns(), report.seconds, facts, tables))

    def end(self) -> None:
        """Send what is left."""
        self._telemetry.close(_CLOSE_SECONDS)


def _table(merge: MergeReport) -> TracedTable:
    facts = {
        "wal2lake.lake.version": merge.lake_version,
        "wal2lake.events": merge.events,
        "wal2lake.inserted": merge.inserted,
        "wal2lake.updated": merge.updated,
        "wal2lake.deleted": merge.deleted,
        "wal2lake.quarantined": merge.check.quarantined if merge.check else 0,
    }
    return TracedTable(str(merge.table), merge.seconds, facts)

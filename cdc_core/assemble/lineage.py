"""Lineage of a connector's runs: what an observer is told, as OpenLineage events of captured tables."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.describe import describe, described_topic
from cdc_core.assemble.observers import Observer
from cdc_core.described import DescribedTable
from cdc_core.engine import RoundReport
from cdc_core.errors import CdcError
from cdc_core.lineage import Job, LineageRun, MergedUpTo, SourceDatabase, Written, opened_transport
from cdc_core.outbox import Outbox
from cdc_core.schema import TableSchema
from cdc_core.snapshot import SnapshotReport

_CLOSE_SECONDS = 10.0


class LineageObserver(Observer):
    """Sends the events of one run."""

    def __init__(self, context: RunContext) -> None:
        transport = opened_transport(context.config.lineage.openlineage_integration_config_file_path)
        postgres = context.config.postgres
        database = SourceDatabase(postgres.database_hostname, postgres.database_port, postgres.database_dbname)
        self._context = context
        self._outbox = Outbox[Mapping[str, Any]](f"OpenLineage events to {transport.place}", transport.send)
        self._run = LineageRun(_job(context), database, self._outbox.put)
        self._run.start()

    def opened(self, tables: Sequence[TableSchema]) -> None:
        """Report the tables."""
        self._run.opened(self._described(table) for table in tables)

    def described(self, table: TableSchema) -> None:
        """Report the table if it has changed."""
        self._run.opened([self._described(table)])

    def _described(self, table: TableSchema) -> DescribedTable:
        return replace(describe(self._context, table), topic=described_topic(self._context, table))

    def read(self, report: SnapshotReport) -> None:
        """Report the rows of a snapshot."""
        self._run.read(report.table, Written(report.rows - report.refused, report.lake_version))

    def merged(self, report: RoundReport) -> None:
        """Count the rows of a round."""
        written = {m.table: Written(m.inserted + m.updated + m.deleted, m.lake_version) for m in report.merges}
        self._run.merged(written, MergedUpTo(str(report.lsn), report.lag_bytes, report.lag_seconds))

    def failed(self, error: Exception) -> None:
        """Report the error, without what a foreign error says: that may have values of rows."""
        message = str(error) if isinstance(error, CdcError) else type(error).__name__
        self._run.failed(message, "".join(traceback.format_tb(error.__traceback__)))

    def end(self) -> None:
        """Report the end, and wait a moment until events are delivered."""
        self._run.end()
        self._outbox.close(_CLOSE_SECONDS)


def _job(context: RunContext) -> Job:
    config, lineage = context.config, context.config.lineage
    return Job(
        lineage.openlineage_integration_job_namespace or context.name,
        f"{context.name}.0",
        lineage.openlineage_integration_job_description or f"Debezium CDC job for {context.name}",
        lineage.openlineage_integration_job_tags,
        lineage.openlineage_integration_job_owners,
        [f"{setting.shown_name}={setting.shown}" for setting in config.settings],
    )

"""Read-only operations: ``check``, ``pending`` (the slot's backlog) and ``status``."""

from __future__ import annotations

from pathlib import Path

from cdc_core.assemble.backlog import SlotBacklog
from cdc_core.assemble.context import RunContext
from cdc_core.assemble.continuity import continuity_finding, stream_status
from cdc_core.assemble.own_signals import own_signals
from cdc_core.assemble.prerequisites import folder_finding
from cdc_core.assemble.quality import rules_finding
from cdc_core.engine.reports import Status, TableStatus
from cdc_core.postgres import slot as slots
from cdc_core.postgres.connect import connect
from cdc_core.postgres.preflight.check import run_checks
from cdc_core.postgres.preflight.finding import Finding
from cdc_core.postgres.server import wal_end
from cdc_core.postgres.source import is_claimed
from cdc_core.schema.table import TableId
from cdc_core.selection.tables import TableSelection


def check(context: RunContext) -> list[Finding]:
    """Check the server and the lake's folder. Changes nothing."""
    config = context.config
    findings = run_checks(config.postgres, TableSelection(config.selection).includes, config.selection)
    if context.has_lake and config.sink.lake_path:
        findings.append(folder_finding("lake", "wal2lake.lake.path", config.sink.lake_path))
    if context.has_lake and not any(finding.is_error and not finding.ok for finding in findings):
        found = rules_finding(context)
        findings += [] if found is None else [found]
        found = continuity_finding(context)
        findings += [] if found is None else [found]
    return findings


def pending(context: RunContext) -> SlotBacklog:
    """The backlog of the slot. Queries the server only."""
    with connect(context.config.postgres) as connection:
        found = slots.inspect(connection, context.slot)
        ages = slots.ages(connection, context.slot)
        return SlotBacklog(
            found.exists,
            found.active,
            found.confirmed_lsn,
            wal_end(connection),
            found.wal_status,
            is_claimed(connection, context.slot),
            _has_signals(context),
            ages.lag_seconds,
            ages.inactive_seconds,
        )


def _has_signals(context: RunContext) -> bool:
    """Whether a signal file that streaming runs read is not empty. It is emptied when its signals are processed."""
    signals = context.config.signals
    files = [own_signals(context)] if context.has_lake else []
    if context.has_lake and "file" in signals.signal_enabled_channels:
        files.append(Path(signals.signal_file))
    return any(file.is_file() and file.stat().st_size > 0 for file in files)


def status(context: RunContext, count_rows: bool) -> Status:
    """The state of the slot and each table's positions according to its Delta commits; row counts if ``count_rows``."""
    from cdc_core.engine.status import lake_status, source_rows

    config = context.config
    with context.source() as source:
        found = source.slot()
        tables = [table for table in context.lake_tables(source) if source.selection.is_table(table.id)]
        rows = source_rows(config.postgres, tables) if count_rows else {}
        backlog = pending(context)
    lake: dict[TableId, TableStatus] = {}
    if context.has_lake and config.sink.lake_path:
        includes = TableSelection(config.selection).includes
        lake = lake_status(context.paths, context.scope, tables, rows, count_rows, includes)
    return Status(
        context.slot,
        found.exists,
        found.active,
        found.wal_status,
        found.restart_lsn,
        found.confirmed_lsn,
        backlog.wal_end_lsn,
        backlog.lag_bytes,
        tuple(lake.values()),
        stream_status(context, tables) if context.has_lake and config.sink.lake_path else None,
    )

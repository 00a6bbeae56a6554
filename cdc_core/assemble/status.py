"""The verbs that only look: the server's findings, the slot's news, where each table stands."""

from __future__ import annotations

from cdc_core.assemble.beforehand import folder_finding
from cdc_core.assemble.context import RunContext
from cdc_core.assemble.news import SlotNews
from cdc_core.engine.reports import Status, TableStatus
from cdc_core.engine.source import is_claimed
from cdc_core.postgres import slot as slots
from cdc_core.postgres.connect import connect
from cdc_core.postgres.preflight.check import run_checks
from cdc_core.postgres.preflight.finding import Finding
from cdc_core.postgres.server import wal_end
from cdc_core.schema.table import TableId
from cdc_core.selection.tables import TableSelection


def check(context: RunContext) -> list[Finding]:
    """Look at the server (and the lake's folder); changes nothing."""
    config = context.config
    findings = run_checks(
        config.postgres,
        TableSelection(config.selection).includes,
        config.selection.table_include_list,
        config.selection.skipped_operations,
    )
    if context.has_lake and config.sink.lake_path:
        findings.append(folder_finding("lake", "wal2lake.lake.path", config.sink.lake_path))
    return findings


def pending(context: RunContext) -> SlotNews:
    """Whether the slot has something. Asks the server only."""
    with connect(context.config.postgres) as connection:
        found = slots.inspect(connection, context.slot)
        return SlotNews(
            found.exists,
            found.active,
            found.confirmed_lsn,
            wal_end(connection),
            found.wal_status,
            is_claimed(connection, context.slot),
        )


def status(context: RunContext, count_rows: bool) -> Status:
    """The slot, and where each table stands by the Delta tables' own commits; rows on both sides if ``count_rows``."""
    from cdc_core.engine.status import lake_status, source_rows

    config = context.config
    with context.source() as source:
        found = source.slot()
        tables = source.tables()
        rows = source_rows(config.postgres, tables) if count_rows else {}
        news = pending(context)
    lake: dict[TableId, TableStatus] = {}
    if context.has_lake and config.sink.lake_path:
        includes = TableSelection(config.selection).includes
        lake = lake_status(context.paths, context.slot, tables, rows, count_rows, includes)
    return Status(
        context.slot,
        found.exists,
        found.active,
        found.wal_status,
        found.restart_lsn,
        found.confirmed_lsn,
        news.wal_end_lsn,
        news.lag_bytes,
        tuple(lake.values()),
    )

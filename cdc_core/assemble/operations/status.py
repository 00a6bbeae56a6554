"""Read-only operations: ``check``, ``pending`` (the slot's backlog) and ``status``."""

from __future__ import annotations

from dataclasses import replace

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.observed import observer_findings
from cdc_core.assemble.signals.channels import channel_findings
from cdc_core.config import effects_check
from cdc_core.engine import RereadsFile, SlotBacklog, Status, WaitingFile, folder_finding, source_rows
from cdc_core.errors import CdcError, SourceError, TransientError
from cdc_core.postgres import Connection, Finding, SlotInfo, bad, connect, is_claimed, plugin, run_checks, wal_end
from cdc_core.postgres import slot as slots
from cdc_core.schema import TableId, TableSchema
from cdc_core.selection import TableSelection
from cdc_core.snapshot import load_actions, mode_actions


def check(context: RunContext, administrator: str | None = None) -> list[Finding]:
    """Check the server and the destinations. Changes nothing.

    ``administrator``: the connection that asks the server where the connector's role cannot connect.
    """
    config, destinations = context.config, context.destinations
    selection = replace(config.selection, skipped_operations=context.unpublished)
    # Without a lake the file is Debezium's own, whose events are read.
    writes_events = not config.lake.lake_path or any(destination.writes_events for destination in destinations)
    more = [effects_check(config, writes_events=writes_events)]
    findings = run_checks(config.postgres, TableSelection(selection).includes, selection, more, administrator)
    findings += _unready(context)
    findings += channel_findings(config)
    findings += observer_findings(context)
    for destination in destinations:
        findings += destination.place_findings()
    findings.append(folder_finding("state", "wal2lake.state.path", str(config.state_path)))
    is_ready = not any(finding.is_error and not finding.ok for finding in findings)
    for destination in destinations:
        findings += destination.table_findings(is_ready=is_ready)
    return findings


def _unready(context: RunContext) -> list[Finding]:
    """Return an error for each part of the file with which no run would start, found without the server."""
    config = context.config
    findings = []
    for part in (
        config.require_carried,
        lambda: mode_actions(config.snapshot),
        lambda: load_actions(config.signals.signal_actions),
        lambda: plugin.checked(config.postgres.plugin_name, config.postgres.slot_stream_params),
    ):
        try:
            part()
        except CdcError as error:
            findings.append(bad("connector file", error.message, error.remedy))
    return findings


def pending(context: RunContext) -> SlotBacklog:
    """The backlog of the slot. Queries the server only."""
    with connect(context.config.postgres) as connection:
        return _backlog(context, connection, slots.inspect(connection, context.slot))


def _backlog(context: RunContext, connection: Connection, slot: SlotInfo) -> SlotBacklog:
    ages = slots.ages(connection, context.slot)
    # A signal file is emptied when its signals are processed.
    files = [file for destination in context.destinations for file in destination.signal_files]
    return SlotBacklog(
        slot.exists,
        slot.active,
        slot.confirmed_lsn,
        wal_end(connection),
        slot.wal_status,
        is_claimed(connection, context.slot),
        any(file.is_file() and file.stat().st_size > 0 for file in files),
        ages.lag_seconds,
        ages.inactive_seconds,
    )


def status(context: RunContext, count_rows: bool) -> Status:
    """The state of the slot, and of each destination by its own positions; row counts if ``count_rows``.

    What cannot be queried is unknown in the result, with the reason: the server, or a destination.
    """
    config = context.config
    tables: list[TableSchema] | None = None
    slot: SlotInfo | None = None
    backlog: SlotBacklog | None = None
    rows: dict[TableId, int] = {}
    server_error = ""
    try:
        with context.source() as source:
            slot = source.slot()
            backlog = _backlog(context, source.connection, slot)
            tables = context.captured(source)
            rows = source_rows(config.postgres, tables) if count_rows else {}
    except (SourceError, TransientError) as error:
        server_error = str(error)
    result = Status(
        context.slot,
        None if slot is None else slot.exists,
        None if slot is None else slot.active,
        None if slot is None else slot.wal_status,
        None if slot is None else slot.restart_lsn,
        None if slot is None else slot.confirmed_lsn,
        None if backlog is None else backlog.wal_end_lsn,
        None if backlog is None else backlog.lag_bytes,
        (),
        server_error=server_error,
        waiting=WaitingFile(config.state_path, context.name, context.slot).read(),
        rereads=RereadsFile(config.state_path, context.name, context.slot).read(),
        lag_seconds=None if backlog is None else backlog.lag_seconds,
    )
    for destination in context.destinations:
        result = destination.add_status(result, tables, rows if count_rows else None)
    return result

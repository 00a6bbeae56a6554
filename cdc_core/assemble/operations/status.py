"""Read-only operations: ``check``, ``pending`` (the slot's backlog) and ``status``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cdc_core.assemble.backlog import SlotBacklog
from cdc_core.assemble.context import RunContext
from cdc_core.assemble.effects import effects_check
from cdc_core.assemble.prerequisites import folder_finding, java_finding, lake_finding
from cdc_core.assemble.quality import rules_findings
from cdc_core.assemble.signal_topic import channel_findings
from cdc_core.assemble.signals.own_file import own_signals
from cdc_core.assemble.start.clashes import clash_findings
from cdc_core.assemble.start.continuity import continuity_finding, stream_status
from cdc_core.engine.reports import KafkaStatus, OwnTableStatus, Status, StreamStatus, TableStatus
from cdc_core.engine.run_state import RereadsFile, WaitingFile
from cdc_core.errors import CdcError, SourceError, TransientError
from cdc_core.postgres.connect import Connection, connect
from cdc_core.postgres.preflight.check import run_checks
from cdc_core.postgres.preflight.finding import Finding, bad
from cdc_core.postgres.replication import plugin
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.replication.slot import SlotInfo
from cdc_core.postgres.server import wal_end
from cdc_core.postgres.source import is_claimed
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.tables import TableSelection
from cdc_core.snapshot.incremental.reports import IncrementalProgress
from cdc_core.snapshot.modes import mode_actions
from cdc_core.snapshot.signals.actions import load_actions


def check(context: RunContext, administrator: str | None = None) -> list[Finding]:
    """Check the server and the lake's folder. Changes nothing.

    ``administrator``: the connection that asks the server where the connector's role cannot connect.
    """
    config = context.config
    selection = replace(config.selection, skipped_operations=context.unpublished)
    more = [effects_check(config)]
    findings = run_checks(config.postgres, TableSelection(selection).includes, selection, more, administrator)
    findings += _unready(context)
    findings += channel_findings(config)
    if context.has_lake:
        findings += [lake_finding(config), java_finding(config, context.spark)]
    findings.append(folder_finding("state", "wal2lake.state.path", str(config.state_path)))
    if context.has_lake and not any(finding.is_error and not finding.ok for finding in findings):
        findings += rules_findings(context)
        found = continuity_finding(context)
        findings += [] if found is None else [found]
        findings += clash_findings(context)
        findings += _misfit_findings(context)
    if context.has_kafka:
        from cdc_core.assemble.kafka_state import kafka_findings

        findings += kafka_findings(context, _captured(context, findings))
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


def _misfit_findings(context: RunContext) -> list[Finding]:
    """Return an error for each captured table for which a run would not start."""
    with context.source() as source:
        misfits = list(context.misfits(source, context.lake_tables(source)))
    return [bad("lake tables", error.message, error.remedy) for error in misfits]


def _captured(context: RunContext, findings: list[Finding]) -> list[TableSchema]:
    """The captured tables, none if the server cannot be asked."""
    if any(finding.is_error and not finding.ok for finding in findings):
        return []
    with context.source() as source:
        return source.tables()


def pending(context: RunContext) -> SlotBacklog:
    """The backlog of the slot. Queries the server only."""
    with connect(context.config.postgres) as connection:
        return _backlog(context, connection, slots.inspect(connection, context.slot))


def _backlog(context: RunContext, connection: Connection, found: SlotInfo) -> SlotBacklog:
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


def _kafka_status(context: RunContext, tables: Sequence[TableSchema]) -> KafkaStatus | None:
    if not context.has_kafka:
        return None
    from cdc_core.assemble.kafka_state import kafka_status

    return kafka_status(context, tables)


def _has_signals(context: RunContext) -> bool:
    """Whether a signal file that streaming runs read is not empty. It is emptied when its signals are processed."""
    signals = context.config.signals
    files = [own_signals(context)] if context.has_lake or context.has_kafka else []
    if context.has_lake and "file" in signals.signal_enabled_channels:
        files.append(Path(signals.signal_file))
    return any(file.is_file() and file.stat().st_size > 0 for file in files)


def status(context: RunContext, count_rows: bool) -> Status:
    """The state of the slot and each table's positions according to its Delta commits; row counts if ``count_rows``.

    What cannot be queried is unknown in the result, with the reason: the server, or the Delta tables of one table.
    """
    from cdc_core.engine.status import incremental_status, lake_status, own_table_status, source_rows

    config = context.config
    tables: list[TableSchema] | None = None
    found: SlotInfo | None = None
    backlog: SlotBacklog | None = None
    rows: dict[TableId, int] = {}
    server_error = ""
    try:
        with context.source() as source:
            found = source.slot()
            backlog = _backlog(context, source.connection, found)
            tables = [table for table in context.lake_tables(source) if source.selection.is_table(table.id)]
            rows = source_rows(config.postgres, tables) if count_rows else {}
    except (SourceError, TransientError) as error:
        server_error = str(error)
    lake: dict[TableId, TableStatus] = {}
    lake_error = ""
    stream: StreamStatus | None = None
    own_tables: tuple[OwnTableStatus, ...] = ()
    incremental: tuple[IncrementalProgress, ...] = ()
    if context.has_lake and config.lake.lake_path:
        includes = TableSelection(config.selection).includes
        try:
            stream = stream_status(context, tables or ())
            scope = context.scope
        except CdcError as error:
            lake_error, scope = str(error), context.slot
        lake, problem = lake_status(context.paths, scope, tables, rows, count_rows, includes)
        own_tables = own_table_status(context.paths, scope)
        incremental = incremental_status(context.paths, scope)
        lake_error = " ".join(part for part in (lake_error, problem) if part)
    return Status(
        context.slot,
        None if found is None else found.exists,
        None if found is None else found.active,
        None if found is None else found.wal_status,
        None if found is None else found.restart_lsn,
        None if found is None else found.confirmed_lsn,
        None if backlog is None else backlog.wal_end_lsn,
        None if backlog is None else backlog.lag_bytes,
        tuple(lake.values()),
        stream,
        server_error,
        lake_error,
        _kafka_status(context, tables or ()),
        WaitingFile(config.state_path, context.name, context.slot).read(),
        None if backlog is None else backlog.lag_seconds,
        own_tables,
        incremental,
        RereadsFile(config.state_path, context.name, context.slot).read(),
    )

"""Operation ``envelopes``: writes Debezium's records to a file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from cdc_core.assemble.context import RunContext, recreate_lost_slot
from cdc_core.assemble.signals.envelopes import envelope_signals
from cdc_core.engine.envelopes.output import EnvelopeOutput, Position
from cdc_core.engine.envelopes.run import EnvelopeRun
from cdc_core.engine.reports import Until
from cdc_core.envelope.context import EnvelopeContext
from cdc_core.errors import OlderTransactionsError
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.snapshot.modes import ModeActions, mode_actions
from cdc_core.snapshot.notifications import Notification, Notifier
from cdc_core.snapshot.signals.channels import Inbox


def envelopes(
    context: RunContext,
    output: Path,
    until: Until,
    should_stop: Callable[[], bool] | None,
    inbox: Inbox | None = None,
    on_notification: Callable[[Notification], None] | None = None,
) -> int:
    """Write Debezium's records to ``output``, first the snapshot, then the stream; returns their number."""
    config = context.config
    config.require_carried()
    outlet = config.outlet()
    mode = mode_actions(config.snapshot)
    with context.claimed(writes_lake=False) as source, EnvelopeOutput(output, context.slot) as written_to:
        is_lost = mode.position_lost and source.slot().is_lost
        recreate_lost_slot(source, mode.position_lost)
        tables = source.tables()
        if source.publish(tables).added and source.slot().exists and not source.await_older_transactions():
            raise OlderTransactionsError(
                "Tables were added to the publication, and older transactions are still open.",
                "End them (see pg_stat_activity, oldest xact_start first) and run again.",
            )
        events = EnvelopeContext.of(
            config.schema,
            config.postgres.database_dbname,
            config.envelope,
            skipped=config.selection.skipped_operations,
            binary=config.types.binary_handling_mode,
            outlet=outlet,
        )
        notifier = Notifier(context.name, config.signals.notification_enabled_channels, on_notification)
        run = EnvelopeRun(source, events, config.types, config.selection, config.snapshot, notifier)
        left = run.resume(written_to)
        if left.makes_slot and left.in_snapshot and mode.interrupted:
            # The rows that it wrote are removed; the new slot exports a snapshot with which they are read again.
            source.drop_slot()
        found = source.check_slot()
        written = 0
        if _reads(mode, left, found.exists, is_lost):
            chosen = [table for table in tables if source.selection.includes_in_snapshot(table.id)]
            written = run.snapshot(context.in_reading_order(source, chosen), written_to)
        elif not found.exists:
            source.make_slot()
        if mode.stream:
            goes_on = should_stop or (lambda: False)
            with closing(ChunkConnection(config.postgres)) as chunks:
                run.use_signals(envelope_signals(context, source, run, chunks, notifier, left.progress, inbox))
                written += run.stream(tables, written_to, until, goes_on, found.confirmed_lsn)
        written_to.finish([] if outlet is None else outlet.last_lines())
        source.drop_on_stop()
        return written


def _reads(mode: ModeActions, left: Position, slot_exists: bool, is_lost: bool) -> bool:
    """Whether this start reads rows. ``left`` is the position at the end of the last run."""
    if left.in_snapshot:
        return mode.interrupted
    if is_lost or (not slot_exists and left.lsn and mode.position_lost):
        return True
    return mode.later if slot_exists else mode.first

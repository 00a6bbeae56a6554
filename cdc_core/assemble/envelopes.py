"""The verb that writes Debezium's records to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cdc_core.assemble.context import RunContext, renew_lost_slot
from cdc_core.engine.envelope_output import EnvelopeOutput
from cdc_core.engine.envelope_run import EnvelopeRun
from cdc_core.engine.reports import Until
from cdc_core.envelope.context import EnvelopeContext
from cdc_core.snapshot.modes import answers


def envelopes(context: RunContext, output: Path, until: Until, should_stop: Callable[[], bool] | None) -> int:
    """Write Debezium's records to ``output``, snapshot then stream; how many."""
    config = context.config
    config.require_carried()
    mode = answers(config.snapshot.snapshot_mode)
    with context.claimed() as source, EnvelopeOutput(output, context.slot) as written_to:
        renew_lost_slot(source, mode.slot_lost)
        tables = source.tables()
        source.publish(tables)
        events = EnvelopeContext.of(
            config.schema,
            config.postgres.database_dbname,
            config.envelope,
            skipped=config.selection.skipped_operations,
            binary=config.types.binary_handling_mode,
        )
        run = EnvelopeRun(source, events, config.types, config.selection, config.snapshot)
        if run.resume(written_to):
            source.drop_slot()
        found = source.check_slot()
        written = 0
        if mode.all or (mode.missing and not found.exists):
            chosen = [table for table in tables if source.selection.includes_in_snapshot(table.id)]
            written = run.snapshot(chosen, written_to)
        elif not found.exists:
            source.make_slot()
        if mode.stream:
            goes_on = should_stop or (lambda: False)
            written += run.stream(tables, written_to, until, goes_on, found.confirmed_lsn)
        source.drop_on_stop()
        return written

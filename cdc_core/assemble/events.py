"""A connector's events, with its options: what precedes a run of them, and the run."""

from __future__ import annotations

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.signals.channels import require_channels
from cdc_core.config import say_effects
from cdc_core.errors import OlderTransactionsError
from cdc_core.events import EnvelopeContext, EventOutlet, EventSettings, EventStart, EventStream, Output
from cdc_core.postgres import Source
from cdc_core.snapshot import Notifier, mode_actions


def envelope_context(context: RunContext, outlet: EventOutlet | None) -> EnvelopeContext:
    """What all records of a run have in common. ``outlet``: transforms and formats, None without any."""
    config = context.config
    return EnvelopeContext.of(
        config.schema,
        config.postgres.database_dbname,
        config.envelope,
        skipped=config.selection.skipped_operations,
        binary=config.types.binary_handling_mode,
        outlet=outlet,
    )


def event_stream(
    context: RunContext,
    source: Source,
    records: EnvelopeContext,
    output: Output,
    notifier: Notifier,
    *,
    beside_lake: bool = False,
    is_apart: bool = False,
) -> EventStream:
    """A run of events into an output that is not opened yet. ``source`` is claimed.

    ``beside_lake`` as in EventStream, ``is_apart`` as in EventStart. Raises CdcError.
    """
    config = context.config
    settings = EventSettings(config.selection, config.snapshot, config.signals, config.schema, config.types)
    tables = source.tables()
    if beside_lake:
        return EventStream(source, records, output, notifier, settings, EventStart(tables), beside_lake=True)
    resets = mode_actions(config.snapshot).position_lost
    is_lost = resets and source.slot().is_lost
    require_channels(config)
    say_effects(config, source, writes_events=True)
    source.drop_lost_slot(resets)
    added = source.publish(tables, always=context.published_always).added
    if added and source.slot().exists and not source.await_older_transactions():
        raise OlderTransactionsError(
            "Tables were added to the publication, and older transactions are still open.",
            "End them (see pg_stat_activity, oldest xact_start first) and run again.",
        )
    renewal = context.renewal_for(source)
    start = EventStart(tables, is_lost, is_apart, renewal, lambda: context.has_all(tables))
    return EventStream(source, records, output, notifier, settings, start)

"""Operation ``envelopes``: writes Debezium's records to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.events import Events, envelope_context
from cdc_core.engine.envelopes.output import EnvelopeOutput
from cdc_core.engine.reports import Until
from cdc_core.snapshot.modes import mode_actions
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
    records = envelope_context(context, outlet)
    with (
        context.claimed(writes_lake=False) as source,
        EnvelopeOutput(output, context.slot, records.lines) as written_to,
    ):
        notifier = Notifier(context.name, config.signals.notification_enabled_channels, on_notification)
        events = Events(context, source, records, written_to, notifier)
        written = events.snapshot()
        if mode_actions(config.snapshot).stream:
            written += events.stream(until, should_stop, inbox).events
        written_to.finish([] if outlet is None else outlet.last_lines())
        source.drop_on_stop()
        return written

"""Operation ``envelopes``: writes Debezium's records to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.events import envelope_context, event_stream
from cdc_core.assemble.signals.channels import given_channels
from cdc_core.engine import Until
from cdc_core.errors import ConfigError
from cdc_core.events import EnvelopeOutput
from cdc_core.snapshot import Inbox, Notification, Notifier, mode_actions


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
    _require_writable(output)
    if outlet is not None:
        outlet.reach()
    with (
        context.claimed(writes_tables=False) as source,
        EnvelopeOutput(output, context.slot, records.lines) as written_to,
    ):
        notifier = Notifier(context.name, config.signals.notification_enabled_channels, on_notification)
        events = event_stream(context, source, records, written_to, notifier)
        written = events.snapshot()
        if mode_actions(config.snapshot).stream:
            is_enabled = "in-process" in config.signals.signal_enabled_channels
            channels = [*given_channels(config, holds=False), *([inbox] if inbox and is_enabled else [])]
            written += events.stream(until, should_stop, channels).events
        written_to.finish([] if outlet is None else outlet.last_lines())
        source.drop_on_stop()
        return written


def _require_writable(output: Path) -> None:
    """Raise ConfigError if the file cannot be written, before anything is done. Nothing is left of the trial."""
    if output.exists() and not output.is_file():
        return
    is_new = not output.exists()
    try:
        with output.open("ab"):
            pass
        if is_new:
            output.unlink()
    except FileNotFoundError:
        raise ConfigError(f"The folder {output.parent} of the output does not exist.", "Create it.") from None
    except OSError as error:
        message = f"The output {output} cannot be written: {error.strerror}."
        raise ConfigError(message, "Correct its permissions or the path.") from None

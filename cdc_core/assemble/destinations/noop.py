"""No destination: changes are decoded, converted and discarded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import Destination, SnapshotCall, StreamCall
from cdc_core.assemble.metrics import meter
from cdc_core.assemble.operations import stream
from cdc_core.assemble.slot_destination import SinkParts, SlotStart
from cdc_core.engine import Hooks, Meter, NoopSink, OpenedSink, Proved, StreamReport, Until, with_new_senders
from cdc_core.postgres import Source
from cdc_core.schema import TableSchema
from cdc_core.snapshot import Notifier, OnNotification, SnapshotReport, mode_actions


class NoDestination(Destination):
    """Nothing is written, and no row is read."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def initial_snapshot(self, call: SnapshotCall) -> list[SnapshotReport]:
        """Create the slot if it does not exist."""
        context = self._context
        context.config.require_carried()
        meter(context)  # raises an error before anything is made
        with context.claimed() as source:
            tables, slot = context.checked(source, recreates_slot=mode_actions(context.config.snapshot).position_lost)
            source.publish(tables, always=context.published_always)
            if not slot.exists:
                source.make_slot()
        return []

    def stream(self, until: Until, hooks: Hooks, call: StreamCall) -> StreamReport:
        """Decode and convert the slot's changes."""
        return with_new_senders(
            lambda until, hooks: stream.stream(self._context, self, until, hooks, call), until, hooks
        )

    def require_slot_made(self, tables: Sequence[TableSchema]) -> None:
        """Do nothing: a slot that does not exist means nothing here."""

    def begin(self, source: Source, tables: Sequence[TableSchema], proved: Proved | None) -> SlotStart:
        """Begin where the slot is."""
        return SlotStart()

    def notifier(self, listener: OnNotification | None) -> AbstractContextManager[Notifier]:
        """The notifier of a run."""
        channels = self._context.config.signals.notification_enabled_channels
        return nullcontext(Notifier(self._context.name, channels, listener))

    def open_sink(self, parts: SinkParts) -> OpenedSink:
        """Open the sink that discards."""
        return OpenedSink(NoopSink(parts.spark, self._context.plan, parts.folder.owner), {}, None)

    def show_rows(self, meter: Meter, tables: Sequence[TableSchema]) -> None:
        """Do nothing: there are no tables."""

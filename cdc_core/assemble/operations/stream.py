"""Operation ``stream``: streams changes from the slot to the destination that reads it.

claim ─▶ proof that the slot continues it ─▶ reader ─▶ sink ─▶ confirmations
                                               └▶ what other destinations do beside it
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import Beside, StreamCall
from cdc_core.assemble.metrics import meter
from cdc_core.assemble.slot_destination import SinkParts, SlotDestination, SlotStart
from cdc_core.engine import (
    RENEWAL,
    BrokenStreamError,
    Confirmations,
    Hooks,
    Meter,
    SegmentSorter,
    StreamReport,
    StreamRun,
    TableRegistry,
    Until,
    connected,
    needing_sender,
    note_sender,
    open_reader,
)
from cdc_core.errors import SourceError, UnreachableError
from cdc_core.lsn import Lsn
from cdc_core.postgres import Connection, HeartbeatAction, ReplicationStream, Source
from cdc_core.schema import TableSchema, streamed
from cdc_core.snapshot import Notifier
from cdc_core.spark import SessionStart


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream under way: what its steps share."""

    context: RunContext
    destination: SlotDestination
    source: Source
    tables: list[TableSchema]
    start: SlotStart
    spark: SessionStart
    metered: Meter


def stream(
    context: RunContext, destination: SlotDestination, until: Until, hooks: Hooks, call: StreamCall
) -> StreamReport:
    """Stream changes from the slot to the sink until a limit of ``until`` is reached; they are merged by then."""
    context.config.require_carried()
    # Spark takes seconds to start: this happens while the server is queried and the first changes are read. A run that
    # ends when nothing is left often finds nothing, so it starts Spark for the first changes only.
    session = context.session(call.spark, when_asked=until.idle_seconds is not None)
    with ExitStack() as closing_source:
        claim = None if call.handover is None else call.handover.take(closing_source)
        source, proved = claim if claim is not None else (closing_source.enter_context(context.claimed()), None)
        tables, slot = context.checked(source) if proved is None else (proved.tables, source.check_slot())
        if not slot.exists or slot.confirmed_lsn is None:
            destination.require_slot_made(tables)
            raise SourceError(
                f"Replication slot {context.slot} does not exist: nothing has been captured yet.",
                "Take the first snapshot.",
            )
        source.require_publication(tables, context.unpublished)
        start = destination.begin(source, tables, proved)
        note_sender(context.renewal_for(source), source, slot.confirmed_lsn, lambda: context.has_all(tables))
        context.observers.opened(tables)
        metered = meter(context)
        run = _Stream(context, destination, source, tables, start, session, metered)
        with (
            destination.notifier(metered.notification(call.on_notification)) as notifier,
            connected(metered, [str(table.id) for table in tables]),
        ):
            report = _drain(run, slot.confirmed_lsn, until, hooks, call, notifier)
        if report.stopped_by not in ("time", RENEWAL):
            source.drop_on_stop()
        return report


def _drain(run: _Stream, at: Lsn, until: Until, hooks: Hooks, call: StreamCall, notifier: Notifier) -> StreamReport:
    context, source, start, engine = run.context, run.source, run.start, run.context.config.engine
    catalog = source.describing()
    catalog.types.remember(start.types)
    registry = TableRegistry(catalog, source.includes(), [streamed(table) for table in run.tables])
    describe = context.observers.describing(registry.describe)
    others = [destination.beside(source, run.tables) for destination in context.destinations[1:]]
    beside = others[0] if others else Beside()
    with context.run_folder() as folder:
        parts = SinkParts(
            source, registry, run.spark, run.tables, folder, notifier, call.inbox, beside.inbox, hooks.should_stop
        )
        opened = run.destination.open_sink(parts)
        with (
            closing(opened.sink),
            closing(_connected(run)) as replication,
            open_reader(
                replication,
                SegmentSorter(describe, start.recorded.watch(), beside.tap, start.delivered, start.own_rows),
                opened,
                engine,
                context.plan,
                folder,
                source.translator(catalog, run.tables, folder.path),
                source.abandon,
            ) as reader,
            beside.running(),
        ):
            sink, confirm = beside.joined(opened.sink, replication.confirm)
            confirmations = Confirmations(confirm, start.recorded.log)
            heartbeat = HeartbeatAction(context.config.postgres)

            def between_rounds() -> None:
                # A run that waits for changes ends at once, not at the first of them, if Spark does not start.
                run.spark.check()
                heartbeat.run_if_due()

            streaming = StreamRun(
                reader,
                sink,
                confirmations,
                engine.freshness.least / 2,
                at,
                source.sendable_lsn,
                run.metered.hooks(hooks),
                before_durable=start.recorded.follow_promotion,
                heartbeat=between_rounds,
                needs_sender=needing_sender(context.renewal_for(source), source),
            )
            run.destination.show_rows(run.metered, run.tables)
            run.metered.follow(reader.seen, lambda: reader.waiting)
            try:
                report = streaming.run(until)
                beside.drain()
                return report
            except UnreachableError as error:
                raise reader.lost or error from None  # others end because of the stream's connection, not knowing why
            except BrokenStreamError as error:
                start.recorded.note_broken(error.message)
                raise


def _connected(run: _Stream) -> ReplicationStream:
    def check(connection: Connection) -> None:
        run.context.sessions.note(connection)
        run.start.recorded.check_connection(connection)

    return ReplicationStream(run.context.config.postgres, check=check)

"""Operation ``stream``: streams changes from the slot to the sink."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, Any

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.metrics import Meter, connected, meter, show_quarantined
from cdc_core.assemble.notifications import open_notifier
from cdc_core.assemble.own_rows import own_rows
from cdc_core.assemble.renewed import needing_sender, note_sender
from cdc_core.assemble.session_start import SessionStart
from cdc_core.assemble.sinks import open_sink
from cdc_core.assemble.start.continuity import Continuity
from cdc_core.assemble.start.handover import Handover
from cdc_core.assemble.start.held import require_read
from cdc_core.assemble.start.recorded_stream import RecordedStream
from cdc_core.assemble.table_snapshots import leave_unread_to_stream
from cdc_core.engine.reading.batch_builder import BatchBuilder
from cdc_core.engine.reading.continuity import BrokenStreamError
from cdc_core.engine.reading.delivered import DeliveredFilter
from cdc_core.engine.reading.segment_sorter import SegmentSorter
from cdc_core.engine.reading.slot_reader import BatchBounds, SlotReader
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.reports import RENEWAL, StreamReport, Until
from cdc_core.engine.stream.confirmations import Confirmations
from cdc_core.engine.stream.run import Hooks, Sink, StreamRun
from cdc_core.errors import SourceError, UnreachableError
from cdc_core.lake.rows.spool import Spool
from cdc_core.lsn import Lsn
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connect import Connection
from cdc_core.postgres.heartbeat import HeartbeatAction
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.source import Source
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import TableSchema
from cdc_core.schema.unseen import streamed
from cdc_core.snapshot.notifications import Notification, Notifier
from cdc_core.snapshot.signals.channels import Inbox

if TYPE_CHECKING:
    from cdc_core.assemble.beside import EventsBeside


def stream(
    context: RunContext,
    until: Until,
    spark: Any,
    hooks: Hooks,
    inbox: Inbox | None = None,
    on_notification: Callable[[Notification], None] | None = None,
    handover: Handover | None = None,
) -> StreamReport:
    """Stream changes from the slot to the sink until a limit of ``until`` is reached; they are merged by then.

    ``handover`` may have the claim of the start, and what it has proved already.
    """
    context.config.require_carried()
    # Spark takes seconds to start: this happens while the server is queried and the first changes are read. A run that
    # ends when nothing is left often finds nothing, so it starts Spark for the first changes only.
    session = context.session(spark, when_asked=until.idle_seconds is not None)
    with ExitStack() as closing_source:
        held = None if handover is None else handover.take(closing_source)
        source, proved = held if held is not None else (closing_source.enter_context(context.claimed()), None)
        tables, found = context.checked(source) if proved is None else (proved.tables, source.check_slot())
        if not found.exists or found.confirmed_lsn is None:
            if context.has_lake:
                # A server that has taken over lacks the slot of a snapshot that was just taken.
                Continuity.of(context, tables).require()
            raise SourceError(
                f"Replication slot {context.slot} does not exist: nothing has been captured yet.",
                "Take the first snapshot.",
            )
        source.require_publication(tables, context.unpublished)
        recorded = None
        if context.has_lake:
            if proved is None:
                proof = Continuity.of(context, tables)
                recorded = RecordedStream(context, source, proof)
                recorded.join()
            else:
                proof, recorded = proved.proof, proved.recorded
            require_read(context, recorded.record, proof.held, source, tables)
        # The publication is not changed here: a table added to it would lack earlier changes.
        start = found.confirmed_lsn
        if context.renewal_for(source) is not None and context.has_lake and context.lake_mode.first:
            leave_unread_to_stream(context, source, tables)
        note_sender(context, source, tables, start)
        metered = meter(context)
        with (
            open_notifier(context, metered.notification(on_notification)) as notifier,
            connected(metered, [str(table.id) for table in tables]),
        ):
            report = _drain(context, source, tables, start, until, session, hooks, notifier, inbox, recorded, metered)
        if report.stopped_by not in ("time", RENEWAL):
            source.drop_on_stop()
        return report


def _drain(
    context: RunContext,
    source: Source,
    tables: list[TableSchema],
    start: Lsn,
    until: Until,
    spark: SessionStart,
    hooks: Hooks,
    notifier: Notifier,
    inbox: Inbox | None,
    recorded: RecordedStream | None,
    metered: Meter,
) -> StreamReport:
    engine = context.config.engine
    catalog = _describing(context, source)
    registry = TableRegistry(catalog, source.includes(), [streamed(table) for table in tables])
    bounds = BatchBounds(engine.batch_max_rows, engine.batch_max_bytes, engine.spool_max_bytes)
    events = _events_beside(context, source, tables)
    forward = None if events is None else events.inbox
    with context.run_folder() as folder:
        sink, positions, signals = open_sink(
            context, source, registry, spark, tables, folder, notifier, inbox, hooks.should_stop, forward
        )
        with (
            closing(sink),
            closing(_connected(context, recorded)) as replication,
            SlotReader(
                replication,
                SegmentSorter(
                    registry.describe,
                    None if recorded is None else recorded.watch(),
                    None if events is None else events.segments,
                    _delivered(context),
                    own_rows(context, source) if context.has_lake else None,
                ),
                BatchBuilder(Spool(folder.path, folder.owner), context.plan, positions, signals),
                bounds,
                source.translator(catalog, tables, folder.path),
                on_lost=source.abandon,
            ) as reader,
            nullcontext() if events is None else events.running(),
        ):
            gate = None if events is None else events.gate(replication.confirm)
            confirm = replication.confirm if gate is None else gate.confirm
            into = sink if events is None or gate is None else events.sink(sink, gate)
            confirmations = Confirmations(confirm, None if recorded is None else recorded.log)
            run = _run(context, source, reader, into, confirmations, start, metered.hooks(hooks), recorded, spark)
            show_quarantined(context, metered, tables)
            metered.follow(reader.seen, lambda: reader.waiting)
            try:
                report = run.run(until)
                if events is not None and gate is not None:
                    events.drain(gate)
                return report
            except UnreachableError as error:
                raise reader.lost or error from None  # others end because of the stream's connection, not knowing why
            except BrokenStreamError as error:
                if recorded is not None:
                    recorded.note_broken(error.message)
                raise


def _run(
    context: RunContext,
    source: Source,
    reader: SlotReader,
    sink: Sink,
    confirmations: Confirmations,
    start: Lsn,
    hooks: Hooks,
    recorded: RecordedStream | None,
    spark: SessionStart,
) -> StreamRun:
    heartbeat = HeartbeatAction(context.config.postgres)

    def between_rounds() -> None:
        # A run that waits for changes ends at once, not at the first of them, if Spark does not start.
        spark.check()
        heartbeat.run_if_due()

    return StreamRun(
        reader,
        sink,
        confirmations,
        context.config.engine.freshness_seconds / 2,
        start,
        source.sendable_lsn,
        hooks,
        before_durable=_following(recorded),
        heartbeat=between_rounds,
        needs_sender=needing_sender(context, source),
    )


def _events_beside(context: RunContext, source: Source, tables: list[TableSchema]) -> EventsBeside | None:
    if not context.has_kafka:
        return None
    from cdc_core.assemble.beside import EventsBeside, record_topics_of

    record_topics_of(context, [table for table in tables if source.selection.is_table(table.id)])
    return EventsBeside(context)


def _describing(context: RunContext, source: Source) -> Catalog:
    catalog = source.describing()
    catalog.types.remember(_recorded_types(context))
    return catalog


def _following(recorded: RecordedStream | None) -> Callable[[], None]:
    """Return what is done before anything received is durable."""
    return (lambda: None) if recorded is None else recorded.follow_promotion


def _recorded_types(context: RunContext) -> list[PgType]:
    """Return the types of the columns that the lake has, or had: changes with them may wait when a type is dropped."""
    from cdc_core.lake.stores.schema_log import SchemaLog

    if not context.has_lake:
        return []
    histories = SchemaLog(context.paths.schema_versions, {}).read().values()
    schema_versions = [
        schema_version for history in histories for _, schema_version in sorted(history.versions.items())
    ]
    return [column.type for schema_version in schema_versions for column in schema_version.table.columns]


def _delivered(context: RunContext) -> DeliveredFilter | None:
    """What leaves out the changes that another connector has delivered, if the lake begins after them."""
    adoption = context.adoption
    return None if adoption is None or adoption.fills else DeliveredFilter(adoption.delivered)


def _connected(context: RunContext, recorded: RecordedStream | None) -> ReplicationStream:
    def check(connection: Connection) -> None:
        context.sessions.note(connection)
        if recorded is not None:
            recorded.check_connection(connection)

    return ReplicationStream(context.config.postgres, check=check)

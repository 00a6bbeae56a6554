"""Signal processing of streaming runs into the lake, configured from the connector's options."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.range_reads import chunk_reader, range_reads
from cdc_core.assemble.signals.kafka import kafka_channel
from cdc_core.assemble.signals.own_file import OWN_INTERVAL_MS, own_signals
from cdc_core.assemble.signals.source_table import signal_table
from cdc_core.assemble.slot_destination import SinkParts
from cdc_core.assemble.table_snapshots import blocking_snapshot
from cdc_core.engine import (
    BlockingSnapshots,
    LakeSink,
    LakeSnapshots,
    SignalSink,
    SignalTable,
    StoredProgress,
    TableRequests,
)
from cdc_core.errors import CdcError
from cdc_core.lake import ProgressLog, StagedRows, epoch_of, lake_properties
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema, row_key, streamed
from cdc_core.snapshot import (
    Channel,
    Collection,
    FileChannel,
    Forwarding,
    Inbox,
    LakeProgress,
    SignalProcessor,
    SnapshotQueue,
    SnapshotReport,
    UnsentChanges,
    load_actions,
    published_digest,
)

_log = logging.getLogger(__name__)


def lake_with_signals(
    context: RunContext, lake: LakeSink, tables: Sequence[TableSchema], parts: SinkParts
) -> tuple[SignalSink, SignalTable | None]:
    """A sink that writes to the lake and processes signals, resumed from stored progress, and the signal table.

    Raises ConfigError, SourceError, LakeError.
    """
    source, notifier, spark = parts.source, parts.notifier, parts.spark
    config, table = context.config, signal_table(source)
    cutter = chunk_reader(context)
    log = ProgressLog(context.lake.paths.incremental, config.lake.lake_history_minutes)
    state, chunks_unsent = _published(context, source, tables, _stored(log.read(), epoch_of(context.lake.scope)), log)
    unsent = UnsentChanges(context.lake.paths, context.lake.scope, context.renewal_for(source))

    def can_cut(found: TableSchema, wanted: Collection) -> bool:
        return bool(row_key(found) and cutter.key_of(found, wanted))

    def take(numbers: Mapping[TableId, int]) -> Mapping[TableId, SnapshotReport | CdcError]:
        return blocking_snapshot(context, numbers, spark, unsent)

    remedy = "Add a primary key (surrogate-key only decides how chunks are split), or take a blocking snapshot."
    queue = SnapshotQueue(source.catalog.current, can_cut, notifier, state.progress, remedy)
    requests = TableRequests(lake, own_signals(context).parent)
    processor = SignalProcessor(
        queue,
        None if table is None else table.id,
        "source" in config.signals.signal_enabled_channels,
        _channels(context, parts.inbox, parts.forward),
        {**load_actions(config.signals.signal_actions), **requests.actions},
        source.published,
        conditions_block=False,
    )
    properties = lake_properties(config.lake.lake_history_minutes)
    snapshots = LakeSnapshots(
        queue,
        processor,
        range_reads(context, source, spark, chunks_unsent, beside_rounds=True),
        StagedRows(context.lake.paths.staged, properties),
        StoredProgress(log, state),
        BlockingSnapshots(take, notifier, parts.should_stop or (lambda: False)),
        keeps_events=config.lake.changelog_reads,
        moved_keys=cutter.size,
    )
    return SignalSink(lake, snapshots, requests), SignalTable(
        table.id, source.selection.is_table(table.id)
    ) if table else None


def _published(
    context: RunContext, source: Source, tables: Sequence[TableSchema], state: LakeProgress, log: ProgressLog
) -> tuple[LakeProgress, UnsentChanges]:
    """Note since when the tables are published as they are now, in the state and for chunks.

    It is stored where only incremental snapshots read tables, so that one which was published in an earlier run does
    not wait for transactions that began since.
    """
    described = [streamed(table) for table in tables]
    digest = published_digest(described)
    if state.published != digest:
        state = replace(state, published=digest, bound=source.next_transaction())
        if not context.lake.mode.first:
            log.write(state.to_json())
    unsent = UnsentChanges(context.lake.paths, context.lake.scope)
    unsent.note(described, state.bound)
    return state, unsent


def _channels(context: RunContext, inbox: Inbox | None, forward: Inbox | None) -> list[Channel]:
    signals = context.config.signals
    found: list[Channel] = [FileChannel(own_signals(context), OWN_INTERVAL_MS, holds=True)]
    if "file" in signals.signal_enabled_channels:
        found.append(FileChannel(Path(signals.signal_file), signals.signal_poll_interval_ms, holds=True))
    if "kafka" in signals.signal_enabled_channels:
        found.append(kafka_channel(context.config))
    if inbox is not None:
        found.append(inbox)
    return found if forward is None else [Forwarding(channel, forward) for channel in found]


def _stored(text: str, epoch: int) -> LakeProgress:
    """Return the stored state; the initial one if it is of another epoch, whose tables have all been read since."""
    try:
        state = LakeProgress.from_json(text)
    except ValueError:
        _log.warning("The stored progress of incremental snapshots cannot be read: request the snapshots again.")
        return LakeProgress(epoch=epoch)
    if state.epoch == epoch:
        return state
    if state.progress.to_json() != LakeProgress().progress.to_json():
        _log.warning(
            "Incremental snapshots that were requested of another server or history are not continued: every table is "
            "read from the present one."
        )
    return LakeProgress(epoch=epoch)

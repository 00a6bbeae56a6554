"""Signal processing of streaming runs into the lake, configured from the connector's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.range_reads import chunk_reader, range_reads
from cdc_core.assemble.signals.channels import given_channels, own_channel
from cdc_core.assemble.signals.own_file import own_signals
from cdc_core.assemble.slot_destination import SinkParts
from cdc_core.config import ConnectorConfig
from cdc_core.engine import (
    BlockingSnapshots,
    LakeSink,
    LakeSnapshots,
    SignalSink,
    SignalTable,
    TableRequests,
    resumed_progress,
)
from cdc_core.errors import CdcError
from cdc_core.lake import StagedRows, lake_properties
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import (
    Channel,
    Collection,
    Forwarding,
    Inbox,
    SignalProcessor,
    SnapshotQueue,
    SnapshotReport,
    UnsentChanges,
    load_actions,
    signal_table,
)


def lake_with_signals(
    context: RunContext, lake: LakeSink, tables: Sequence[TableSchema], parts: SinkParts
) -> tuple[SignalSink, SignalTable | None]:
    """A sink that writes to the lake and processes signals, resumed from stored progress, and the signal table.

    Raises ConfigError, SourceError, LakeError.
    """
    source, notifier, spark = parts.source, parts.notifier, parts.spark
    config, table = context.config, signal_table(source)
    cutter = chunk_reader(context)
    stored, chunks_unsent = resumed_progress(context.lake, source, tables)
    unsent = UnsentChanges(context.lake.paths, context.lake.scope, context.renewal_for(source))

    def can_cut(schema: TableSchema, collection: Collection) -> bool:
        return bool(schema.row_key and cutter.key_of(schema, collection))

    def take(numbers: Mapping[TableId, int]) -> Mapping[TableId, SnapshotReport | CdcError]:
        return context.snapshots.blocking(numbers, spark, unsent)

    remedy = "Add a primary key (surrogate-key only decides how chunks are split), or take a blocking snapshot."
    queue = SnapshotQueue(source.catalog.current, can_cut, notifier, stored.now.progress, remedy)
    requests = TableRequests(lake, own_signals(context.config).parent)
    processor = SignalProcessor(
        queue,
        None if table is None else table.id,
        "source" in config.signals.signal_enabled_channels,
        _channels(config, parts.inbox, parts.forward),
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
        stored,
        BlockingSnapshots(take, notifier, parts.should_stop or (lambda: False)),
        keeps_events=config.lake.changelog_reads,
        moved_keys=cutter.size,
    )
    return SignalSink(lake, snapshots, requests), SignalTable(
        table.id, source.selection.is_table(table.id)
    ) if table else None


def _channels(config: ConnectorConfig, inbox: Inbox | None, forward: Inbox | None) -> list[Channel]:
    channels = [own_channel(config), *given_channels(config, holds=True), *([] if inbox is None else [inbox])]
    return channels if forward is None else [Forwarding(channel, forward) for channel in channels]

"""The sink that writes the stream's batches to the lake, opened with the connector's options."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.range_reads import chunk_reader, range_reads
from cdc_core.assemble.signals.channels import given_channels, own_channel
from cdc_core.assemble.signals.own_file import own_signals
from cdc_core.assemble.slot_destination import SinkParts
from cdc_core.engine import LakeSink, OpenedSink, RunFolder, SignalParts, TableRegistry, open_lake_sink, with_signals
from cdc_core.postgres import Source
from cdc_core.snapshot import Channel, Forwarding
from cdc_core.spark import StartSession


def opened_with_signals(context: RunContext, parts: SinkParts) -> OpenedSink:
    """Open the sink that writes to the lake and processes the signals of its channels."""
    source, spark = parts.source, parts.spark
    lake = open_lake(context, source, parts.registry, spark, parts.folder)
    signals = SignalParts(
        context.config.signals,
        _channels(context, parts),
        own_signals(context.config).parent,
        partial(range_reads, context, source, spark, beside_rounds=True),
        chunk_reader(context),
        parts.notifier,
        parts.should_stop or (lambda: False),
    )
    return with_signals(lake, context.snapshots, source, parts.tables, spark, signals)


def open_lake(
    context: RunContext,
    source: Source,
    registry: TableRegistry,
    spark: StartSession,
    folder: RunFolder,
    *,
    records_rounds: bool = True,
) -> LakeSink:
    """The sink that writes to the lake; it must be closed. ``records_rounds``: see ``LakeSink``."""
    return open_lake_sink(
        context.snapshots,
        source,
        registry,
        spark,
        folder,
        context.config.state_path.absolute() / "index",
        records_rounds=records_rounds,
        note_read=context.observers.note_read,
        note_gone=context.observers.gone,
    )


def _channels(context: RunContext, parts: SinkParts) -> Sequence[Channel]:
    config, inbox, forward = context.config, parts.inbox, parts.forward
    channels = [own_channel(config), *given_channels(config, holds=True), *([] if inbox is None else [inbox])]
    return channels if forward is None else [Forwarding(channel, forward) for channel in channels]

"""Signal processing of ``envelopes`` runs, configured from the connector's options."""

from __future__ import annotations

import logging
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.signals.kafka import kafka_channel
from cdc_core.assemble.signals.own_file import OWN_INTERVAL_MS, own_signals
from cdc_core.assemble.signals.source_table import signal_table
from cdc_core.events import EnvelopeSignals, TableRows
from cdc_core.postgres import ChunkConnection, Source
from cdc_core.snapshot import (
    Channel,
    ChunkReader,
    FileChannel,
    Inbox,
    IncrementalSnapshots,
    Notifier,
    Progress,
    SignalProcessor,
    Watermarks,
    load_actions,
)

_log = logging.getLogger(__name__)


def envelope_signals(
    context: RunContext,
    source: Source,
    rows: TableRows,
    chunks: ChunkConnection,
    notifier: Notifier,
    progress: str,
    inbox: Inbox | None,
    *,
    beside_lake: bool = False,
) -> EnvelopeSignals:
    """Processes signals of every enabled channel, resuming from ``progress``. Raises ConfigError, SourceError.

    ``beside_lake``: the run into the lake reads the channels, and passes on what it gets in ``inbox``.
    """
    config = context.config
    snapshot, signals = config.snapshot, config.signals
    table = signal_table(source)
    refusal = ""
    if table is None and not snapshot.read_only:
        refusal = "incremental snapshots need a captured table as signal.data.collection, or read.only=true."
    marks = Watermarks(
        None if snapshot.read_only or table is None else table.id,
        table.columns[0].name if table is not None else "",
        snapshot.incremental_snapshot_watermarking_strategy,
    )
    reader = ChunkReader(
        chunks, config.selection, config.schema.message_key_columns, snapshot.incremental_snapshot_chunk_size
    )
    channels: list[Channel] = []
    if "file" in signals.signal_enabled_channels and not beside_lake:
        channels.append(FileChannel(Path(signals.signal_file), signals.signal_poll_interval_ms))
    if config.engine.sinks == ("kafka",):
        # A run that wal2lake signal reaches; a run of wal2lake envelopes is not one.
        channels.append(FileChannel(own_signals(context), OWN_INTERVAL_MS, holds=True))
    if inbox is not None and (beside_lake or "in-process" in signals.signal_enabled_channels):
        channels.append(inbox)
    if "kafka" in signals.signal_enabled_channels and not beside_lake:
        channels.append(kafka_channel(context.config))
    snapshots = IncrementalSnapshots(reader, marks, source.catalog.current, notifier, _stored(progress, refusal))
    processor = SignalProcessor(
        snapshots,
        None if table is None else table.id,
        "source" in signals.signal_enabled_channels,
        channels,
        load_actions(signals.signal_actions),
        source.published,
        refusal,
    )
    return EnvelopeSignals(snapshots, processor, rows.read_events, rows.included)


def _stored(text: str, refusal: str) -> Progress:
    try:
        progress = Progress.from_json(text)
    except ValueError:
        _log.warning("The stored progress of incremental snapshots cannot be read: request the snapshots again.")
        return Progress()
    if progress.queue and refusal:
        _log.warning("The incremental snapshot in progress is aborted: %s", refusal)
        return progress.without(lambda table: True)
    return progress

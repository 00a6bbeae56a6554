"""Snapshots that signals request of a run of events, with the connector's options."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cdc_core.events.stream.event_settings import EventSettings
from cdc_core.events.stream.signals import EnvelopeSignals
from cdc_core.events.stream.table_rows import TableRows
from cdc_core.postgres import ChunkConnection, Source
from cdc_core.snapshot import (
    Channel,
    ChunkReader,
    IncrementalSnapshots,
    Notifier,
    Progress,
    SignalProcessor,
    Watermarks,
    load_actions,
    signal_table,
)

_log = logging.getLogger(__name__)


def requested_snapshots(
    source: Source,
    rows: TableRows,
    chunks: ChunkConnection,
    notifier: Notifier,
    progress: str,
    channels: Sequence[Channel],
    settings: EventSettings,
) -> EnvelopeSignals:
    """Processes signals of the source and of ``channels``, from ``progress`` on. Raises ConfigError, SourceError."""
    snapshot, signals = settings.snapshot, settings.signals
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
        chunks, settings.selection, settings.schema.message_key_columns, snapshot.incremental_snapshot_chunk_size
    )
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

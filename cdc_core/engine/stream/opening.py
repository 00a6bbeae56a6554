"""Opens what a stream into the lake consists of: the reader of the slot, and the sink that also processes signals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_core.decode import Translator
from cdc_core.engine.backfill.blocking import BlockingSnapshots
from cdc_core.engine.backfill.resumed import resumed_progress
from cdc_core.engine.backfill.snapshots import LakeSnapshots
from cdc_core.engine.backfill.table_snapshots import TableSnapshots
from cdc_core.engine.options import EngineOptions
from cdc_core.engine.reading.batch_builder import BatchBuilder, SignalTable
from cdc_core.engine.reading.segment_sorter import SegmentSorter
from cdc_core.engine.reading.slot_reader import BatchBounds, SlotReader, Stream
from cdc_core.engine.round.lake_sink import LakeSink
from cdc_core.engine.run_folder import RunFolder
from cdc_core.engine.stream.requests import TableRequests
from cdc_core.engine.stream.run import OpenedSink
from cdc_core.engine.stream.signal_sink import SignalSink
from cdc_core.errors import CdcError
from cdc_core.lake import Spool, StagedRows, TypingPlan, lake_properties
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import (
    Channel,
    ChunkReader,
    Collection,
    Notifier,
    RangeReads,
    SignalOptions,
    SignalProcessor,
    SnapshotQueue,
    SnapshotReport,
    UnsentChanges,
    load_actions,
    signal_table,
)
from cdc_core.spark import StartSession


def open_reader(
    stream: Stream,
    sorter: SegmentSorter,
    opened: OpenedSink,
    options: EngineOptions,
    plan: TypingPlan,
    folder: RunFolder,
    translator: Translator,
    on_lost: Callable[[], None],
) -> SlotReader:
    """Return the reader of a slot into batches for a sink; a context manager that is not entered yet."""
    bounds = BatchBounds(options.batch_max_rows, options.batch_max_bytes, options.spool_max_bytes)
    builder = BatchBuilder(Spool(folder.path, folder.owner), plan, opened.positions, opened.signals)
    return SlotReader(stream, sorter, builder, bounds, translator, on_lost=on_lost)


@dataclass(frozen=True, slots=True)
class SignalParts:
    """What processes signals of a run: ``channels`` that it receives them from, ``own`` is the folder of its own one.

    ``reads`` reads ranges, once older transactions have ended; ``chunks`` knows the key of each table. ``should_stop``:
    whether the run is to end.
    """

    options: SignalOptions
    channels: Sequence[Channel]
    own: Path
    reads: Callable[[UnsentChanges | None], RangeReads]
    chunks: ChunkReader
    notifier: Notifier
    should_stop: Callable[[], bool]


def with_signals(
    lake: LakeSink,
    snapshots: TableSnapshots,
    source: Source,
    tables: Iterable[TableSchema],
    spark: StartSession,
    parts: SignalParts,
) -> OpenedSink:
    """Open a sink that writes ``tables`` to the lake and processes signals, resumed from stored progress.

    Raises ConfigError, SourceError, LakeError.
    """
    known = snapshots.lake
    # A table of the lake that became UNLOGGED while no run was active is paused by the comparison of fingerprints.
    silent = known.known(source.unlogged())
    captured = [table for table in tables if source.selection.is_table(table.id)]
    positions = lake.positions([*(table.id for table in captured), *silent])
    lake.leave_out(source.selection.is_table)
    sink = _signal_sink(lake, snapshots, source, captured, spark, parts)
    table = signal_table(source)
    signals = None if table is None else SignalTable(table.id, source.selection.is_table(table.id))
    return OpenedSink(sink, positions, signals)


def _signal_sink(
    lake: LakeSink,
    snapshots: TableSnapshots,
    source: Source,
    tables: Sequence[TableSchema],
    spark: StartSession,
    parts: SignalParts,
) -> SignalSink:
    known, table, notifier = snapshots.lake, signal_table(source), parts.notifier
    stored, chunks_unsent = resumed_progress(known, source, tables)
    unsent = UnsentChanges(known.paths, known.scope, snapshots.renewal_for(source))

    def can_cut(schema: TableSchema, collection: Collection) -> bool:
        return bool(schema.row_key and parts.chunks.key_of(schema, collection))

    def take(numbers: Mapping[TableId, int]) -> Mapping[TableId, SnapshotReport | CdcError]:
        return snapshots.blocking(numbers, spark, unsent)

    remedy = "Add a primary key (surrogate-key only decides how chunks are split), or take a blocking snapshot."
    queue = SnapshotQueue(source.catalog.current, can_cut, notifier, stored.now.progress, remedy)
    requests = TableRequests(lake, parts.own)
    processor = SignalProcessor(
        queue,
        None if table is None else table.id,
        "source" in parts.options.signal_enabled_channels,
        list(parts.channels),
        {**load_actions(parts.options.signal_actions), **requests.actions},
        source.published,
        conditions_block=False,
    )
    requested = LakeSnapshots(
        queue,
        processor,
        parts.reads(chunks_unsent),
        StagedRows(known.paths.staged, lake_properties(known.options.lake_history_minutes)),
        stored,
        BlockingSnapshots(take, notifier, parts.should_stop),
        keeps_events=known.options.changelog_reads,
        moved_keys=parts.chunks.size,
    )
    return SignalSink(lake, requested, requests)

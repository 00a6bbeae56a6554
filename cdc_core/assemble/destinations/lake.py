"""The lake as a destination: Delta tables equal to the source's, each with its changelog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import Destination, SnapshotCall, StreamCall
from cdc_core.assemble.notifications import open_notifier
from cdc_core.assemble.operations import stream
from cdc_core.assemble.operations.initial_snapshot import initial_snapshot
from cdc_core.assemble.own_rows import own_rows
from cdc_core.assemble.signals.own_file import own_signals
from cdc_core.assemble.sinks import opened_with_signals
from cdc_core.assemble.slot_destination import SinkParts, SlotStart
from cdc_core.engine import (
    Continuity,
    DeliveredFilter,
    Hooks,
    LakeTakeover,
    Meter,
    OpenedSink,
    Proved,
    RecordedStream,
    Status,
    StreamReport,
    Until,
    end_of_lake,
    java_finding,
    lake_finding,
    misfits,
    require_read,
    table_findings,
    waiting_in_quarantine,
    with_lake_status,
    with_new_senders,
)
from cdc_core.errors import ConfigError, StorageError, TableError
from cdc_core.lsn import Lsn
from cdc_core.offsets import SlotOffer, StreamEnd
from cdc_core.postgres import Finding, Source, bad
from cdc_core.schema import PgType, TableId, TableSchema
from cdc_core.selection import TableSelection
from cdc_core.snapshot import Notifier, OnNotification, SnapshotReport


class LakeDestination(Destination):
    """The lake. ``wal2lake.lake.path`` may be empty for operations that write nothing."""

    always_published = "t"
    has_tables = True
    requires_keys = True

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._lake = context.lake

    @property
    def claim(self) -> str:
        """The folder of the tables."""
        return self._lake.claim

    @property
    def signal_files(self) -> Sequence[Path]:
        """The file of this connector in its state folder, and that of ``signal.file`` if it is enabled."""
        if not self._lake.options.lake_path:
            return ()
        signals = self._context.config.signals
        configured = [Path(signals.signal_file)] if "file" in signals.signal_enabled_channels else []
        return (own_signals(self._context.config), *configured)

    @property
    def folder(self) -> Path | None:
        """The folder of the tables on this machine; None if there is none."""
        base = self._lake.paths.base
        if not self._lake.options.lake_path:
            return None
        if "://" in base and not base.startswith("file://"):
            raise ConfigError(
                f"The lake {base} is in an object store, and is not removed by this command.",
                "Run it without --lake, then remove that folder with the store's own tools.",
            )
        path = Path(base.removeprefix("file://")).absolute()
        return path if path.is_dir() else None

    def known(self, tables: Sequence[TableSchema]) -> set[TableId]:
        """The tables whose snapshot is in the lake."""
        return self._lake.known(tables)

    def has_all(self, tables: Sequence[TableSchema]) -> bool:
        """Whether the snapshots of all these tables are in the lake."""
        return len(self._lake.known(tables)) == len(tables)

    def place(self) -> Finding:
        """Whether a commit can be made at the lake's path. Raises StorageError if its store does not answer."""
        return lake_finding(self._lake.options.lake_path, self._lake.paths)

    def misfits(self, source: Source, tables: Iterable[TableSchema]) -> Iterator[TableError]:
        """Yield why tables cannot be written to the lake."""
        return misfits(self._lake, source, tables)

    def place_findings(self) -> list[Finding]:
        """Whether the lake's folder can be written, and whether Java starts."""
        config = self._context.config
        try:
            place = self.place()
        except StorageError as error:
            place = bad("lake", error.message, error.remedy)
        return [place, java_finding(config.engine.spark, self._context.spark)]

    def table_findings(self, *, is_ready: bool) -> list[Finding]:
        """Whether rules, the slot's continuity, columns and keys let a run start."""
        if not is_ready:
            return []
        with self._context.source() as source:
            return table_findings(self._lake, source, self._context.named_tables(source))

    def add_status(
        self, connector_status: Status, tables: Sequence[TableSchema] | None, rows: Mapping[TableId, int] | None
    ) -> Status:
        """Add what the lake has recorded, and the positions of its tables; what cannot be read is said there."""
        if not self._lake.options.lake_path:
            return connector_status
        includes = TableSelection(self._context.config.selection).includes
        return with_lake_status(connector_status, self._lake, tables, rows, includes)

    def end(self, source: Source, tables: Sequence[TableSchema], confirmed: Lsn) -> StreamEnd:
        """Where the lake's stream ends."""
        return end_of_lake(self._lake, tables, confirmed)

    def takeover(self, source: Source, tables: Sequence[TableSchema], offer: SlotOffer) -> LakeTakeover:
        """Fill the lake, or begin after the last event."""
        return LakeTakeover(self._lake, source, tables, offer)

    def initial_snapshot(self, call: SnapshotCall) -> list[SnapshotReport]:
        """Read the tables that the snapshot mode requires into the lake."""
        return initial_snapshot(self._context, call)

    def stream(self, until: Until, hooks: Hooks, call: StreamCall) -> StreamReport:
        """Merge the slot's changes into the lake."""
        return with_new_senders(
            lambda until, hooks: stream.stream(self._context, self, until, hooks, call), until, hooks
        )

    def require_slot_made(self, tables: Sequence[TableSchema]) -> None:
        """Raise what a slot that does not exist means for the lake.

        A server that has taken over lacks the slot of a snapshot that was just taken.
        """
        Continuity.of(self._lake, tables).require()

    def begin(self, source: Source, tables: Sequence[TableSchema], proved: Proved | None) -> SlotStart:
        """Prove that the slot continues what the lake has, and record it. Raises SourceError, LakeError."""
        lake = self._lake
        if proved is None:
            proof = Continuity.of(lake, tables)
            recorded = RecordedStream(lake, source, proof)
            recorded.join()
        else:
            proof, recorded = proved.proof, proved.recorded
        require_read(lake, recorded.record, proof.held, source, tables)
        # The publication is not changed here: a table added to it would lack earlier changes.
        if self._context.renewal_for(source) is not None and lake.mode.first:
            self._context.snapshots.leave_unread(source, tables)
        adoption = lake.adoption
        delivered = None if adoption is None or adoption.fills else DeliveredFilter(adoption.delivered)
        return SlotStart(recorded, own_rows(self._context, source), delivered, self._recorded_types())

    def notifier(self, listener: OnNotification | None) -> AbstractContextManager[Notifier]:
        """The notifier of a run, with the lake's table of notifications."""
        return open_notifier(self._context, listener)

    def open_sink(self, parts: SinkParts) -> OpenedSink:
        """Open the sink, with the signals of its channels."""
        return opened_with_signals(self._context, parts)

    def show_rows(self, meter: Meter, tables: Sequence[TableSchema]) -> None:
        """Show what is in quarantine at the start of a stream, if metrics are served."""
        if self._context.config.observe.metrics_port:
            waiting = waiting_in_quarantine(self._lake, tables)
            meter.metrics.standing((), {str(table): count for table, count in waiting.items()})

    def _recorded_types(self) -> list[PgType]:
        """Return the types of the columns that the lake has, or had: changes with them may wait when one is dropped."""
        histories = self._lake.schema_log.read().values()
        versions = [version for history in histories for _, version in sorted(history.versions.items())]
        return [column.type for version in versions for column in version.table.columns]

"""One connector: each verb, in a file of its own, opens what it needs, and closes it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cdc_core.assemble import envelopes, initial_snapshot, replay, signal, snapshot, status, stream
from cdc_core.assemble.context import RunContext
from cdc_core.assemble.news import SlotNews
from cdc_core.assemble.taking import OnProgress
from cdc_core.config.connector import ConnectorConfig, load
from cdc_core.config.explain import ExplainRow, explain
from cdc_core.engine.reports import (
    BatchReport,
    ReplayReport,
    RoundReport,
    SnapshotReport,
    Status,
    StreamReport,
    Until,
)
from cdc_core.engine.stream import Hooks
from cdc_core.postgres.preflight.finding import Finding
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.modes import answers
from cdc_core.snapshot.notifications import Notification
from cdc_core.snapshot.signals.channels import Inbox


class Connector:
    """One connector. Every method opens what it needs and closes it again; one of them at a time per slot.

    Methods raise CdcError: one sentence with what was found, one with what to do.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self.config = config
        self._context = RunContext(config)

    @classmethod
    def from_file(cls, path: Path | str, *, needs_lake: bool = True) -> Connector:
        """Read a connector file; ConfigError where it cannot be obeyed."""
        config = load(path)
        if needs_lake:
            config.require_lake()
        return cls(config)

    @property
    def name(self) -> str:
        """``topic.prefix``."""
        return self._context.name

    @property
    def slot(self) -> str:
        """``slot.name``."""
        return self._context.slot

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is to be said about the file."""
        return self.config.warnings

    @property
    def streams(self) -> bool:
        """Whether the snapshot mode goes on to stream."""
        return answers(self.config.snapshot).stream

    def explain(self, everything: bool = False) -> tuple[ExplainRow, ...]:
        """What becomes of each property."""
        return explain(self.config, everything)

    def check(self) -> list[Finding]:
        """Look at the server (and the lake's folder); changes nothing."""
        return status.check(self._context)

    def spark(self) -> Any:
        """The process's Spark session, started with the connector's settings unless one runs."""
        return self._context.spark()

    def tables(self) -> list[TableSchema]:
        """The captured tables, as the server has them now."""
        with self._context.source() as source:
            return source.tables()

    def pending(self) -> SlotNews:
        """Whether the slot has something. Asks the server only."""
        return status.pending(self._context)

    def initial_snapshot(self, spark: Any = None, on_progress: OnProgress | None = None) -> list[SnapshotReport]:
        """Read what ``snapshot.mode`` asks for at start; nothing where all is there. Makes the slot in any case."""
        return initial_snapshot.initial_snapshot(self._context, spark, on_progress)

    def snapshot(
        self, tables: Sequence[TableId] | None = None, spark: Any = None, on_progress: OnProgress | None = None
    ) -> list[SnapshotReport]:
        """Read tables (None: all captured) into the lake at one consistent point, whatever the lake has of them."""
        return snapshot.snapshot(self._context, tables, spark, on_progress)

    def stream(
        self,
        until: Until,
        spark: Any = None,
        on_batch: Callable[[BatchReport], None] | None = None,
        on_round: Callable[[RoundReport], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> StreamReport:
        """Drain the slot into the sink until a bound of ``until`` is met; what was read by then is merged."""
        return stream.stream(self._context, until, spark, Hooks(on_batch, on_round, should_stop))

    def replay(self, table: TableId, spark: Any = None, on_progress: OnProgress | None = None) -> ReplayReport:
        """Let a paused table go on: its changes are merged, in order, after reading it again where that is needed.

        Raises TableError where what it was paused for is still so, or the table is not captured.
        """
        return replay.replay(self._context, table, spark, on_progress)

    def envelopes(
        self,
        output: Path,
        until: Until,
        should_stop: Callable[[], bool] | None = None,
        inbox: Inbox | None = None,
        on_notification: Callable[[Notification], None] | None = None,
    ) -> int:
        """Write Debezium's records to ``output``, snapshot then stream; how many.

        ``inbox`` gives signals of this process, where ``signal.enabled.channels`` has in-process; ``on_notification``
        is called with word of snapshots, in the thread that reads the stream.
        """
        return envelopes.envelopes(self._context, output, until, should_stop, inbox, on_notification)

    def signal(self, kind: str, data: str = "") -> str:
        """Send a signal, its data a JSON object's text, to whoever runs this connector; the channel it went by."""
        return signal.signal(self._context, kind, data)

    def status(self, count_rows: bool = False) -> Status:
        """The slot, and where each table stands by the Delta tables' own commits."""
        return status.status(self._context, count_rows)

"""Runs a connector's events road in this process, from a live server to parsed records: snapshot, or stream.

The stream runs in a thread, as a connector would beside its source: what a Relation message means is asked of the
catalogue at the moment it arrives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cdc_core.config.connector import ConnectorConfig, from_entries
from cdc_core.config.properties_file import parse_properties
from cdc_core.decode.copy_text import decode_copy
from cdc_core.decode.pgoutput import StreamState, sort_segment
from cdc_core.decode.plugins import translator
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.snapshot_events import SnapshotRecords
from cdc_core.events.envelope.stream_events import StreamRecords
from cdc_core.events.envelope.table_events import EventSnapshot, TableEvents
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect, connection_string
from cdc_core.postgres.replication import plugin, publication, slot
from cdc_core.postgres.replication.seen_relations import SeenRelations
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.rows.copy_out import SnapshotHolder, copy_chunks, select_sql
from cdc_core.postgres.server import wal_end
from cdc_core.schema.table import TableSchema
from cdc_core.selection.columns import plan_columns
from cdc_core.selection.messages import MessageSelection
from cdc_core.selection.tables import TableSelection
from cdc_core.types.registry import resolve
from tests.support.cluster import Cluster
from tests.support.waits import patient


def config_for(text: str, cluster: Cluster, **changes: str) -> ConnectorConfig:
    """A connector file's text, pointed at a test server."""
    entries = dict(parse_properties(text, "test"))
    entries |= {
        "database.hostname": cluster.host,
        "database.port": str(cluster.port),
        "database.user": cluster.user,
        "database.password": cluster.password,
        **changes,
    }
    return from_entries(entries.items())


@dataclass
class EnvelopeDriver:
    """One connector. ``lines`` are the records made so far.

    ``others`` make records of the same stream, as their own configurations say. They select the same of the server.
    """

    config: ConnectorConfig
    lines: list[str] = field(default_factory=list)
    others: list[EnvelopeDriver] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        self.selection = TableSelection(config.selection)
        self.context = EnvelopeContext.of(
            config.schema,
            config.postgres.database_dbname,
            config.envelope,
            skipped=config.selection.skipped_operations,
            binary=config.types.binary_handling_mode,
            outlet=config.outlet(),
        )

    def table_events(self, table: TableSchema, *, snapshot: bool = False) -> TableEvents:
        plans = plan_columns(table, self.config.selection, snapshot=snapshot)
        codecs = {column.name: resolve(column, self.config.types) for column in table.columns}
        return TableEvents(table, codecs, self.context, plans)

    def snapshot(self) -> None:
        """Read every captured table at one snapshot."""
        target = connection_string(self.config.postgres)
        with SnapshotHolder(connect(self.config.postgres)) as holder:
            facts = EventSnapshot(int(holder.facts.lsn), holder.facts.txid, holder.facts.timestamp_us)
            tables = Catalog(holder.connection).tables(self.selection.includes_in_snapshot)
            events = SnapshotRecords()
            for table in sorted(tables, key=lambda one: self.selection.position(one.id)):
                made = self.table_events(table, snapshot=True)
                names = tuple(column.name for column in table.columns)
                chunks = copy_chunks(target, holder.name, select_sql(table.id, names))
                blocks = (decode_copy(chunk, names, str(table.id)) for chunk in chunks)
                for records in events.table(made, blocks, facts):
                    self.lines += self.context.lines(records)
            self.lines += self.context.lines(events.finish())

    def prepare(self) -> None:
        """Make publication and slot."""
        options = self.config.postgres
        with connect(options) as connection:
            tables = Catalog(connection).tables(self.selection.includes)
            if options.plugin_name.has_publication:
                publication.ensure(
                    connection, options, [table.id for table in tables], self.config.selection.skipped_operations
                )
        with connect(options, replication=True) as replication:
            slot.create(replication, options.slot_name, options.plugin_name.on_server)

    def stream(self, changes: Callable[[Callable[[], None]], None], *, seconds: float = 180) -> None:
        """Stream while ``changes`` runs, and on until all of it has come.

        ``changes`` gets a function that waits until the stream has read everything so far: a rest around DDL, for
        nullability and defaults are read from the catalogue of the moment.
        """
        stop, ready = threading.Event(), threading.Event()
        failure: list[BaseException] = []
        reached = [0]
        thread = threading.Thread(target=self._follow, args=(stop, ready, reached, failure), daemon=True)
        thread.start()
        end = time.monotonic() + seconds

        def settle() -> None:
            with connect(self.config.postgres) as connection:
                # Outside any transaction, so that it appears in no record; it makes the server tell where it is.
                connection.execute("select pg_logical_emit_message(false, 'the end', '')")
                goal = int(wal_end(connection))
            while reached[0] < goal:
                if failure:
                    raise failure[0]
                if time.monotonic() > end:
                    raise TimeoutError("the stream did not reach the end of the changes")
                time.sleep(0.02)

        try:
            if not ready.wait(patient(20)):
                raise TimeoutError("the stream did not start")
            changes(settle)
            settle()
        finally:
            stop.set()
            thread.join(patient(20))

    def _stream_events(self) -> StreamRecords:
        wants = MessageSelection(self.config.selection)
        return StreamRecords(
            self.context,
            self.table_events,
            wants_message=lambda prefix: prefix != "the end" and wants.includes(prefix),
            heartbeat_ms=self.config.postgres.heartbeat_interval_ms,
        )

    def _follow(
        self, stop: threading.Event, ready: threading.Event, reached: list[int], failure: list[BaseException]
    ) -> None:
        try:
            options = self.config.postgres
            with connect(options) as connection, ReplicationStream(options) as source:
                catalog = Catalog(connection, sent=plugin.sent(options))
                tables = catalog.tables(self.selection.includes)
                registry = TableRegistry(catalog, self.selection.includes, tables)
                relations = SeenRelations(catalog, self.selection.includes, tables)
                translated = translator(options.plugin_name.on_server, relations)
                made = [(each, each._stream_events()) for each in (self, *self.others)]
                state = StreamState()
                ready.set()
                while not stop.is_set():
                    segment = source.read(10_000, 1 << 24, 0.05)
                    if segment is None:
                        for driver, events in made:
                            driver.lines += driver.context.lines(events.idle())
                        reached[0] = max(reached[0], source.wal_end)
                        continue
                    for each in translated.feed(segment):
                        by_table = sort_segment(each, state, registry.describe)
                        for driver, events in made:
                            driver.lines += events.segment(by_table)
        except BaseException as error:
            failure.append(error)

"""The same changes through several output plug-ins: a slot each, read to the same position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from cdc_core.decode.pgoutput import StreamState, decode_rows, sort_segment
from cdc_core.decode.plugins import translator
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.postgres.replication import plugin, slot
from cdc_core.postgres.replication.seen_relations import SeenRelations
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.server import wal_end
from cdc_core.schema.table import Column, TableSchema
from cdc_core.types.options import TypeOptions
from cdc_core.types.registry import resolve
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.waits import wait_until

UNCHANGED = "<unchanged>"
PLUGINS = {
    "pgoutput": (OutputPlugin.PGOUTPUT, ()),
    "decoderbufs": (OutputPlugin.DECODERBUFS, ()),
    "wal2json-2": (OutputPlugin.WAL2JSON, ()),
    "wal2json-1": (OutputPlugin.WAL2JSON_STREAMING, (("format-version", "1"),)),
}

Values = tuple[tuple[str, Any], ...] | None


@dataclass(frozen=True)
class Change:
    """A row change, with what the lake (``natural``) and events have of its tuples."""

    place: tuple[int, int]  # number of the transaction with rows, index of the row
    table: str
    op: str
    new: Values
    old: Values


@dataclass
class PluginStream:
    """One plug-in's slot and stream, from where it was made."""

    options: PostgresOptions
    includes: Callable[[Any], bool] = lambda table: True
    tables: dict[Any, TableSchema] = field(default_factory=dict)
    truncated: list[str] = field(default_factory=list)
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    commits: list[tuple[int, int]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    seconds: float = 60.0

    def open(self) -> PluginStream:
        """Make the slot."""
        with connect(self.options, replication=True) as replication:
            slot.create(replication, self.options.slot_name, self.options.plugin_name.on_server)
        return self

    def drop(self) -> None:
        """Drop the slot."""
        with connect(self.options) as connection:
            slot.drop(connection, self.options.slot_name)

    def read(self, most_rows: int = 1000) -> list[Change]:
        """Read all changes made so far; the slot is confirmed."""
        with ExitStack() as stack:
            connection = stack.enter_context(connect(self.options))
            catalog = Catalog(connection, self.options.publication_name, plugin.sent(self.options))
            tables = catalog.tables(self.includes)
            registry = TableRegistry(catalog, self.includes, tables)
            relations = SeenRelations(catalog, self.includes, tables)
            translated = translator(self.options.plugin_name.on_server, relations)
            stream = stack.enter_context(ReplicationStream(self.options))
            goal, state, self.changes = int(wal_end(connection)), StreamState(), []
            first = len(self.commits)

            def step() -> bool:
                segment = stream.read(most_rows, 1 << 20, 0.05)
                if segment is None:
                    stream.tick()
                    return stream.wal_end >= goal and state.open is None and not translated.is_open
                for each in translated.feed(segment):
                    found = sort_segment(each, state, registry.describe)
                    for run in found.runs:
                        self.tables[run.table.id] = run.table
                        self.changes += changes_of(run.table, decode_rows(run.raw, run.relation), run.raw)
                    self.truncated += [str(table.id) for one in found.truncates for table in one.tables]
                    self.messages += [(one.prefix, one.content) for one in found.messages]
                    marks = found.transactions.to_pylist()
                    self.commits += [(m["commit_lsn"], m["end_lsn"]) for m in marks if m["kind"] == ord("C")]
                    if found.last_commit_end_lsn is not None:
                        stream.confirm(found.last_commit_end_lsn)
                return False

            wait_until(step, self.seconds, "the stream to reach the end")
            numbers = {lsn: number for number, lsn in enumerate(sorted({c.place[0] for c in self.changes}))}
            self.changes = sorted(
                (replace(c, place=(numbers[c.place[0]], c.place[1])) for c in self.changes), key=lambda c: c.place
            )
            for lsn, end in self.commits[first:]:
                assert lsn < end
            return self.changes


def changes_of(table: TableSchema, tuples: Any, raw: pa.RecordBatch) -> list[Change]:
    """The changes of a run, value by value."""
    places = zip(raw.column("commit_lsn").to_pylist(), raw.column("tx_index").to_pylist(), strict=True)
    new, old = _values(table, tuples.new), _values(table, tuples.old)
    return [
        Change(
            place,
            str(table.id),
            chr(tuples.op[row]),
            None if chr(tuples.op[row]) == "D" else new[row],
            old[row] if tuples.old_kind[row] else None,
        )
        for row, place in enumerate(places)
    ]


def _values(table: TableSchema, columns: RawColumns) -> list[tuple[tuple[str, Any], ...]]:
    out: list[list[tuple[str, Any]]] = [[] for _ in range(len(columns))]
    described = {column.name: column for column in table.columns}
    for name, text, unchanged in zip(columns.names, columns.text, columns.unchanged, strict=True):
        for row, value in enumerate(_both(described[name], text)):
            is_unchanged = unchanged is not None and unchanged[row]
            out[row].append((name, UNCHANGED if is_unchanged else value))
    return [tuple(values) for values in out]


def _both(column: Column, text: pa.Array) -> list[Any]:
    """Each value as in the lake and as in an event. NaN as text, for it equals itself then."""
    codec = resolve(column, TypeOptions())
    natural = codec.natural.convert(text).values.to_pylist()
    event = [None] * len(text) if codec.event is None else codec.event.convert(text).values.to_pylist()
    return [None if one is None and other is None else (repr(one), repr(other))
            for one, other in zip(natural, event, strict=True)]  # fmt: skip


@contextmanager
def streams(cluster: Cluster, database: str, *names: str, published: bool = True) -> Iterator[dict[str, PluginStream]]:
    """A slot of each plug-in (``PLUGINS``) in a database, dropped at the end; pgoutput's publication has all tables."""
    if published:
        cluster.execute(database, f'create publication "{database}" for all tables')
    opened: dict[str, PluginStream] = {}
    try:
        for name in names or PLUGINS:
            kind, parameters = PLUGINS[name]
            options = options_for(
                cluster,
                database,
                plugin_name=kind,
                slot_stream_params=parameters,
                slot_name=f"{database}_{name.replace('-', '_')}",
            )
            opened[name] = PluginStream(options).open()
        yield opened
    finally:
        for stream in opened.values():
            stream.drop()

"""A table's records as typed batches for the outlet of a connector with transforms or other formats."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.decode import RawColumns
from cdc_core.events.envelope.batch import (
    STRING,
    TEXT,
    Data,
    EventBatch,
    Header,
    arrow_type,
    constant,
    no_data,
    struct,
    topics,
)
from cdc_core.events.envelope.context import CONNECTOR, EnvelopeContext
from cdc_core.events.envelope.json import join, texts
from cdc_core.events.envelope.outlet import Outlet
from cdc_core.events.envelope.row import RowWriter
from cdc_core.events.envelope.source_block import STREAMING, SourceFacts, sequence_texts, source_schema
from cdc_core.events.envelope.transaction import EventNumbers, block_schema
from cdc_core.schema import ConnectSchema


class TypedForm:
    """Keys, rows and values are columns of structs; headers are a tuple of columns."""

    def __init__(
        self, context: EnvelopeContext, outlet: Outlet, topic: str, key: ConnectSchema | None, value: ConnectSchema
    ) -> None:
        self._context = context
        self._outlet = outlet
        self._topic = topic
        self._key_schema = key
        self._value_schema = value
        self._row_type = arrow_type(dict(value.fields)["after"])

    def rows(
        self, writer: RowWriter, columns: RawColumns, rows: int, *, read: bool = False, lsn: np.ndarray | None = None
    ) -> pa.Array:
        """Return a row struct or key of every row."""
        return writer.structs(columns, rows=rows, read=read, lsn=lsn)

    def compared(self, rows: pa.Array, schema: ConnectSchema) -> pa.Array:
        """Return texts that are equal if the rows are."""
        return texts(rows, schema)

    def source(self, facts: SourceFacts) -> pa.Array:
        """Return the ``source`` struct of every record."""
        return source_data(self._context, facts).values

    def transaction(self, xid: pa.Array, lsn: pa.Array, orders: EventNumbers | None) -> pa.Array:
        """Return the ``transaction`` struct of every record."""
        return block_data(self._context, xid, lsn, orders).values

    def value(
        self,
        *,
        before: pa.Array | None,
        after: pa.Array | None,
        source: pa.Array,
        transaction: pa.Array,
        op: np.ndarray,
        now_ns: int,
    ) -> Data:
        """Return the envelopes. None: null in every record."""
        rows = len(op)
        kind = next((image.type for image in (before, after) if image is not None), self._row_type)
        times = [pa.repeat(pa.scalar(now_ns // unit, pa.int64()), rows) for unit in (1_000_000, 1_000, 1)]
        return struct(
            self._value_schema,
            [
                pa.nulls(rows, kind) if before is None else before,
                pa.nulls(rows, kind) if after is None else after,
                source,
                transaction,
                pa.repeat(pa.scalar(chr(op[0]), TEXT), rows)
                if (op == op[0]).all()
                else pa.array(op.view("S1").astype("U1"), type=TEXT),
                *times,
            ],
            np.ones(rows, dtype=bool),
        )

    def key(self, payload: pa.Array | None) -> Data | None:
        """Return keys from their structs."""
        return None if payload is None else Data(self._key_schema, payload)

    def headers(self, rows: int) -> tuple[Header, ...]:
        """Return the headers of records that do not belong to a key change."""
        return context_headers(self._context, rows)

    def moved_headers(self, other: pa.Array, deleted: np.ndarray, moved: np.ndarray) -> tuple[Header, ...]:
        """Return headers where the records ``moved`` have, first, the key of the key change's other record."""
        keys = Data(self._key_schema, other)
        return (
            Header("__debezium.newkey", keys, moved & deleted),
            Header("__debezium.oldkey", keys, moved & ~deleted),
            *self.headers(len(moved)),
        )

    def records(
        self,
        seq: np.ndarray,
        sub: np.ndarray,
        *,
        key: Data | None,
        value: Data,
        headers: tuple[Header, ...],
        dead: np.ndarray | None = None,
    ) -> pa.Table:
        """Return RECORDS: the outlet's records of the values, and tombstones of the records ``dead``."""
        rows = len(seq)
        batch = EventBatch(seq, sub, topics(self._topic, rows), key or no_data(rows), value, headers)
        made = self._outlet.records(batch)
        if dead is None or not len(dead):
            return made
        buried = batch.take(dead)
        tombstones = EventBatch(
            buried.seq, buried.sub + 1, buried.topic, buried.key, no_data(len(dead)), headers=buried.headers
        )
        return pa.concat_tables([made, self._outlet.records(tombstones)])


def context_headers(context: EnvelopeContext, rows: int) -> tuple[Header, ...]:
    """Return the headers of every data record; none if they are disabled."""
    return tuple(Header(name, constant(value, STRING, rows)) for name, value in context.header_values().items())


def source_data(context: EnvelopeContext, facts: SourceFacts) -> Data:
    """As ``source_texts``, as structs. Streaming leaves ``snapshot`` null, as Debezium."""
    rows = len(facts.ts_us)
    micros = facts.ts_us.to_numpy()

    def text(value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, TEXT), rows)

    columns = [
        text(context.version),
        text(CONNECTOR),
        text(context.names.prefix),
        pa.array(micros // 1000, type=pa.int64()),
        _marker(facts.marker, rows),
        text(context.database),
        sequence_texts(facts.prior_end_lsn, facts.lsn, '"'),
        facts.ts_us.cast(pa.int64()),
        pa.array(micros * 1000, type=pa.int64()),
        text(facts.schema),
        text(facts.table),
        facts.xid.cast(pa.int64()),
        facts.lsn.cast(pa.int64()) if facts.shows_lsn else pa.nulls(rows, pa.int64()),
        pa.array([facts.xmin] * rows, type=pa.int64()),
        facts.origin.cast(TEXT),
        facts.origin_lsn.cast(pa.int64()),
    ]
    return struct(source_schema(context.names), columns, np.ones(rows, dtype=bool))


def _marker(marker: str | pa.Array, rows: int) -> pa.Array:
    if not isinstance(marker, str):
        return marker.cast(TEXT)
    return pa.repeat(pa.scalar(None if marker == STREAMING else marker, TEXT), rows)


def block_data(context: EnvelopeContext, xid: pa.Array, lsn: pa.Array, orders: EventNumbers | None) -> Data:
    """As ``block_texts``, as structs; null without transaction metadata."""
    rows = len(xid)
    none = np.zeros(rows, dtype=np.int64)
    numbers = [none, none] if orders is None else [orders.total, orders.collection]
    identity = join([xid, ":", lsn], rows)
    columns = [identity, *(pa.array(one, type=pa.int64()) for one in numbers)]
    return struct(block_schema(context.names), columns, np.full(rows, orders is not None))

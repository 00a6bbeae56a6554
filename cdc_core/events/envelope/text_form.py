"""A table's records as JSON texts with schemas, written directly from the columns: the form without an outlet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode import RawColumns
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.json import TEXT, join
from cdc_core.events.envelope.record import records, schema_text
from cdc_core.events.envelope.row import RowWriter
from cdc_core.events.envelope.source_block import SourceFacts, source_texts
from cdc_core.events.envelope.transaction import EventNumbers, block_texts
from cdc_core.schema import ConnectSchema


class TextForm:
    """Keys, rows and values are ``text[N]``; headers are the texts of JSON lists."""

    def __init__(self, context: EnvelopeContext, topic: str, key: ConnectSchema | None, value: ConnectSchema) -> None:
        self._context = context
        self._topic = topic
        self._key_schema = "null" if key is None else schema_text(key)
        self._value_schema = schema_text(value)
        self._context_headers = context.context_headers()

    def rows(
        self, writer: RowWriter, columns: RawColumns, rows: int, *, read: bool = False, lsn: np.ndarray | None = None
    ) -> pa.Array:
        """Return a row struct or key of every row."""
        return writer.write(columns, rows=rows, read=read, lsn=lsn)

    def compared(self, rows: pa.Array, _: ConnectSchema) -> pa.Array:
        """Return texts that are equal if the rows are."""
        return rows

    def source(self, facts: SourceFacts) -> pa.Array:
        """Return the ``source`` struct of every record."""
        return source_texts(self._context, facts)

    def transaction(self, xid: pa.Array, lsn: pa.Array, orders: EventNumbers | None) -> pa.Array | str:
        """Return the ``transaction`` struct of every record."""
        return block_texts(xid, lsn, orders)

    def value(
        self,
        *,
        before: pa.Array | None,
        after: pa.Array | None,
        source: pa.Array,
        transaction: pa.Array | str,
        op: np.ndarray,
        now_ns: int,
    ) -> pa.Array:
        """Return the envelopes. None: null in every record."""
        letter: pa.Array | str = chr(op[0]) if (op == op[0]).all() else pa.array(op.view("S1").astype("U1"), type=TEXT)
        times = f'"ts_ms":{now_ns // 1_000_000},"ts_us":{now_ns // 1_000},"ts_ns":{now_ns}'
        return join(
            [
                *(f'{{"schema":{self._value_schema},"payload":{{"before":', "null" if before is None else before),
                *(',"after":', "null" if after is None else after),
                *(',"source":', source, ',"transaction":', transaction, ',"op":"', letter, f'",{times}}}}}'),
            ],
            len(op),
        )

    def key(self, payload: pa.Array | None) -> pa.Array | None:
        """Return keys from their structs."""
        if payload is None:
            return None
        return join([f'{{"schema":{self._key_schema},"payload":', payload, "}"], len(payload))

    def headers(self, rows: int) -> pa.Array:
        """Return the headers of records that do not belong to a key change."""
        return pa.repeat(pa.scalar(f"[{self._context_headers}]", TEXT), rows)

    def moved_headers(self, other: pa.Array, deleted: np.ndarray, moved: np.ndarray) -> pa.Array:
        """Return headers where the records ``moved`` have, first, the key of the key change's other record."""
        name = pc.if_else(pa.array(deleted), pa.scalar("new", TEXT), pa.scalar("old", TEXT))
        rest = "," + self._context_headers if self._context_headers else ""
        with_key = join(
            [
                '[{"key":"__debezium.',
                name,
                f'key","value":{{"schema":{self._key_schema},"payload":',
                other,
                f"}}}}{rest}]",
            ],
            len(moved),
        )
        return pc.if_else(pa.array(moved), with_key, self.headers(len(moved)))

    def records(
        self,
        seq: np.ndarray,
        sub: np.ndarray,
        *,
        key: pa.Array | None,
        value: pa.Array,
        headers: pa.Array,
        dead: np.ndarray | None = None,
    ) -> pa.Table:
        """Return RECORDS: the values, and the tombstones of the records ``dead``."""
        made = records(seq, sub, self._topic, key=key, value=value, headers=headers)
        if dead is None or not len(dead):
            return made
        at = pa.array(dead)
        buried = records(
            seq[dead],
            sub[dead] + 1,
            self._topic,
            key=None if key is None else key.take(at),
            value=None,
            headers=headers.take(at),
        )
        return pa.concat_tables([made, buried])

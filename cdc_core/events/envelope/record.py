"""Records as columns, and their conversion to lines."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.events.envelope.json import TEXT, dumps, join
from cdc_core.schema import ConnectSchema

OCTETS = pa.large_binary()

# One row per record. (seq, sub) orders all records of a run: seq is the message's ordinal in the stream, sub
# distinguishes the records of one message (a truncate may contain hundreds of tables). key and value are as they are
# written: the JSON texts of a line in UTF-8, or the bytes of a message to Kafka; key is null without a key, value is
# null for a tombstone. headers is a JSON list of {"key", "value"}. partition, and timestamp in milliseconds since 1970,
# are null if Kafka chooses them; lines do not show them.
RECORDS = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("sub", pa.int32(), nullable=False),
        pa.field("topic", TEXT, nullable=False),
        pa.field("key", OCTETS),
        pa.field("value", OCTETS),
        pa.field("headers", TEXT, nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("timestamp", pa.int64()),
    ]
)


def records(
    seq: np.ndarray,
    sub: np.ndarray,
    topic: str,
    *,
    key: pa.Array | None,
    value: pa.Array | None,
    headers: pa.Array | None = None,
    partition: int | None = None,
) -> pa.Table:
    """Return a table of RECORDS for one topic. None is a column of nulls, or of empty header lists."""
    rows = len(seq)
    columns = [
        pa.array(seq, type=pa.int64()),
        pa.array(sub, type=pa.int32()),
        pa.repeat(pa.scalar(topic, TEXT), rows),
        pa.nulls(rows, OCTETS) if key is None else key.cast(OCTETS),
        pa.nulls(rows, OCTETS) if value is None else value.cast(OCTETS),
        pa.repeat(pa.scalar("[]", TEXT), rows) if headers is None else headers,
        pa.nulls(rows, pa.int32()) if partition is None else pa.array([partition] * rows, pa.int32()),
        pa.nulls(rows, pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=RECORDS)


def one_record(seq: int, sub: int, topic: str, key: str, value: str, partition: int | None = None) -> pa.Table:
    """Return a record without headers, as a table of one row."""
    texts = [pa.array([text], type=TEXT) for text in (key, value)]
    return records(np.array([seq]), np.array([sub]), topic, key=texts[0], value=texts[1], partition=partition)


def in_order(tables: list[pa.Table]) -> pa.Table:
    """Return all records of the tables, sorted by (seq, sub)."""
    if not tables:
        return RECORDS.empty_table()
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    seq, sub = table.column("seq").to_numpy(), table.column("sub").to_numpy()
    if (seq[1:] > seq[:-1]).all():
        return table
    order = np.lexsort((sub, seq))
    return table if (order == np.arange(len(order))).all() else table.take(pa.array(order))


def lines(table: pa.Table, *, key: str = "key", value: str = "value", shows_headers: bool = True) -> list[str]:
    """Return one JSON line per record: ``{"topic", "key", "value", "headers"}``, without a line end.

    ``key`` and ``value`` are the names of these two in the line.
    """
    out: list[str] = []
    for batch in table.select(["topic", "key", "value", "headers"]).to_batches(max_chunksize=4096):
        topics = batch.column("topic").dictionary_encode()
        # row-wise: once per topic, of which a batch has few
        names = pa.array([dumps(name) for name in topics.dictionary.to_pylist()], type=TEXT)
        parts = [
            *('{"topic":', names.take(topics.indices)),
            *(f',"{key}":', batch.column("key").view(TEXT), f',"{value}":', batch.column("value").view(TEXT)),
            *((',"headers":', batch.column("headers")) if shows_headers else ()),
            "}",
        ]
        # row-wise: the output is one Python string per line
        out.extend(join(parts, batch.num_rows).to_pylist())
    return out


def schema_text(schema: ConnectSchema) -> str:
    """Return a schema's JSON."""
    return dumps(schema.to_dict())


def with_schema(schema: str, payload: str) -> str:
    """Return a value with its schema, in the converter's format."""
    return f'{{"schema":{schema},"payload":{payload}}}'

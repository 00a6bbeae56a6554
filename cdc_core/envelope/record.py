"""Records as columns: what every maker of records returns, and how they become lines."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.envelope.json import TEXT, dumps, join
from cdc_core.schema.connect import ConnectSchema

# One row a record. (seq, sub) orders all records of a run: seq is the message's ordinal in the stream, sub tells apart
# the records that one message becomes (a truncate may name hundreds of tables). key, value and headers are JSON texts;
# key is null without a key, value is null for a tombstone.
RECORDS = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("sub", pa.int32(), nullable=False),
        pa.field("topic", TEXT, nullable=False),
        pa.field("key", TEXT),
        pa.field("value", TEXT),
        pa.field("headers", TEXT, nullable=False),
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
) -> pa.Table:
    """A table of RECORDS for one topic. None stands for a column of nulls, or of empty header lists."""
    rows = len(seq)
    columns = [
        pa.array(seq, type=pa.int64()),
        pa.array(sub, type=pa.int32()),
        pa.repeat(pa.scalar(topic, TEXT), rows),
        pa.nulls(rows, TEXT) if key is None else key,
        pa.nulls(rows, TEXT) if value is None else value,
        pa.repeat(pa.scalar("[]", TEXT), rows) if headers is None else headers,
    ]
    return pa.Table.from_arrays(columns, schema=RECORDS)


def one_record(seq: int, sub: int, topic: str, key: str, value: str) -> pa.Table:
    """A record without headers, as a table of one row."""
    texts = [pa.array([text], type=TEXT) for text in (key, value)]
    return records(np.array([seq]), np.array([sub]), topic, key=texts[0], value=texts[1])


def in_order(tables: list[pa.Table]) -> pa.Table:
    """All records of the tables, sorted by (seq, sub)."""
    if not tables:
        return RECORDS.empty_table()
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    seq, sub = table.column("seq").to_numpy(), table.column("sub").to_numpy()
    order = np.lexsort((sub, seq))
    return table if (order == np.arange(len(order))).all() else table.take(pa.array(order))


def lines(table: pa.Table) -> list[str]:
    """One JSON line a record: ``{"topic", "key", "value", "headers"}``, without the line's end."""
    out: list[str] = []
    for batch in table.select(["topic", "key", "value", "headers"]).to_batches(max_chunksize=4096):
        topics = batch.column("topic").dictionary_encode()
        # row-wise: once a topic, of which a batch holds a handful
        names = pa.array([dumps(name) for name in topics.dictionary.to_pylist()], type=TEXT)
        parts = [
            *('{"topic":', names.take(topics.indices)),
            *(',"key":', batch.column("key"), ',"value":', batch.column("value")),
            *(',"headers":', batch.column("headers"), "}"),
        ]
        # row-wise: a line is a Python string from here on, for whoever writes or sends it
        out.extend(join(parts, batch.num_rows).to_pylist())
    return out


def schema_text(schema: ConnectSchema) -> str:
    """A schema's JSON."""
    return dumps(schema.to_dict())


def with_schema(schema: str, payload: str) -> str:
    """A value with its schema, as the converter wraps it."""
    return f'{{"schema":{schema},"payload":{payload}}}'

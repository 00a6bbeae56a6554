"""Small hand-made codecs, tables and batches: enough to test records without the type room."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode.raw_batch import RAW_SCHEMA
from cdc_core.decode.raw_columns import RawColumns, TupleBatch
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.options import EnvelopeOptions
from cdc_core.events.envelope.record import in_order, lines
from cdc_core.events.envelope.table_events import TableEvents
from cdc_core.schema.connect import ConnectSchema
from cdc_core.schema.options import SchemaOptions
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter, NaturalConverter

NOW = 1_600_000_000_123_456_789
PLACEHOLDER = "__debezium_unavailable_value"


def _int(text: pa.Array) -> Converted:
    good = pc.fill_null(pc.match_substring_regex(text, r"^-?\d+$"), True)
    return Converted(pc.if_else(good, text, None).cast(pa.int32()), pc.invert(good))


INT = ColumnCodec(
    NaturalConverter(pa.int32(), _int),
    EventConverter(
        ConnectSchema("int32", optional=True),
        pa.int32(),
        _int,
        fallback=0,
        default_value=lambda text: 0 if "(" in text else int(text),
    ),
)
TEXT = ColumnCodec(
    NaturalConverter(pa.string(), Converted),
    EventConverter(
        ConnectSchema("string", optional=True),
        pa.string(),
        Converted,
        fallback="",
        unavailable=PLACEHOLDER,
        default_value=lambda text: text.split("'")[1],
    ),
)
LEFT_OUT = ColumnCodec(NaturalConverter(pa.string(), Converted), None)


@dataclass(frozen=True)
class TinyPlan:
    name: str
    included: bool = True
    mapper: Any = None
    parameters: tuple[tuple[str, str], ...] = ()
    cut: int | None = None


def column(name: str, kind: str = "text", **more: Any) -> Column:
    return Column(name, PgType(23 if kind == "int4" else 25, kind), **more)


CUSTOMERS = TableSchema(
    TableId("inventory", "customers"),
    1000,
    (
        column("id", "int4", optional=False, default_expression="nextval('customers_id_seq'::regclass)"),
        column("name", optional=False),
        column("note", optional=True),
    ),
    primary_key=("id",),
)


def codecs_of(table: TableSchema) -> dict[str, ColumnCodec]:
    return {c.name: INT if c.type.name == "int4" else LEFT_OUT if c.type.name == "odd" else TEXT for c in table.columns}


def context(schema: dict[str, Any] | None = None, skipped: Iterable[str] = (), **options: Any) -> EnvelopeContext:
    names = SchemaOptions(**{"topic_prefix": "fulfillment", **(schema or {})})
    return EnvelopeContext.of(names, "shop", EnvelopeOptions(**options), skipped=tuple(skipped))


def events(
    table: TableSchema = CUSTOMERS, ctx: EnvelopeContext | None = None, plans: Iterable[Any] = ()
) -> TableEvents:
    return TableEvents(table, codecs_of(table), ctx or context(), plans)


Row = dict[str, str | None]
UNSENT = object()


def columns(table: TableSchema, rows: list[dict[str, Any] | None]) -> RawColumns:
    """Rows as raw columns; None is a tuple that was not sent, UNSENT an unchanged TOAST value."""
    text, unchanged = [], []
    for one in table.columns:
        values = [None if row is None else row.get(one.name) for row in rows]
        text.append(pa.array([None if value is UNSENT else value for value in values], type=pa.string()))
        mask = np.array([value is UNSENT for value in values], dtype=bool)
        unchanged.append(mask if mask.any() else None)
    return RawColumns(tuple(c.name for c in table.columns), tuple(text), tuple(unchanged))


def batch(table: TableSchema, changes: list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]) -> Any:
    """(kind, old, new) → raw and tuples. Kind: I, U, D, with K or O behind it where an old tuple was sent."""
    count = len(changes)
    numbers = {
        "seq": np.arange(count) * 10 + 100,
        "lsn": np.arange(count) * 8 + 5000,
        "commit_lsn": np.full(count, 9000),
        "tx_index": np.arange(count),
        "prior_end_lsn": np.full(count, 4000),
        "xid": np.full(count, 77),
        "commit_ts_us": np.full(count, 1_500_000_000_999_999),
    }
    arrays = [pa.array(values, type=pa.int64()) for values in numbers.values()]
    arrays += [pa.nulls(count, pa.string()), pa.nulls(count, pa.int64()), pa.array([b""] * count, type=pa.binary())]
    raw = pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)
    op = np.array([ord(kind[0]) for kind, _, _ in changes], dtype=np.uint8)
    old_kind = np.array([ord(kind[1]) if len(kind) > 1 else 0 for kind, _, _ in changes], dtype=np.uint8)
    old = columns(table, [old for _, old, _ in changes])
    new = columns(table, [new for _, _, new in changes])
    return raw, TupleBatch(op, old_kind, new, old)


def made(table_events: TableEvents, changes: list[Any], table: TableSchema = CUSTOMERS) -> list[dict[str, Any]]:
    """The records of some changes, parsed, in order."""
    raw, tuples = batch(table, changes)
    return [json.loads(line) for line in lines(in_order([table_events.changes(raw, tuples, NOW)]))]


def shape(record: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """(op, key, before, after); op None for a tombstone."""
    key = record["key"] and record["key"]["payload"]
    if record["value"] is None:
        return None, key, None, None
    payload = record["value"]["payload"]
    return payload["op"], key, payload["before"], payload["after"]

"""Small batches of records for tests of transforms, and their results as Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.events.envelope.batch import Data, EventBatch, arrow_type, no_data, topics
from cdc_core.events.transform.chain import Chain, make_chain
from cdc_core.events.transform.options import TransformOptions
from cdc_core.schema.connect import ConnectSchema

INT = ConnectSchema("int32")
TEXT = ConnectSchema("string", optional=True)
ROW = ConnectSchema(
    "struct",
    optional=True,
    name="p.s.t.Value",
    fields=(
        ("id", INT),
        ("name", TEXT),
        ("kind", TEXT.replace(default="plain", has_default=True)),
    ),
)
KEY = ConnectSchema("struct", name="p.s.t.Key", fields=(("id", INT),))
SOURCE = ConnectSchema("struct", name="Source", fields=(("db", ConnectSchema("string")), ("table", TEXT)))
EVENT = ConnectSchema(
    "struct",
    name="p.s.t.Envelope",
    version=2,
    fields=(
        ("before", ROW),
        ("after", ROW),
        ("source", SOURCE),
        ("op", ConnectSchema("string")),
        ("ts_ms", ConnectSchema("int64", optional=True)),
    ),
)
ONE, TWO = {"id": 1, "name": "a", "kind": None}, {"id": 1, "name": "b", "kind": None}


def data(schema: ConnectSchema, values: list[Any]) -> Data:
    return Data(schema, pa.array(values, type=arrow_type(schema)))


def event(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"db": "d", "table": "t"}, "op": op, "ts_ms": 5}


def batch(values: list[Any], schema: ConnectSchema = EVENT, *, topic: str = "p.s.t", key: Any = None) -> EventBatch:
    rows = len(values)
    keys = data(KEY, [{"id": 1}] * rows) if key is None else key
    seq = np.arange(rows)
    return EventBatch(seq, np.zeros(rows, dtype=np.int64), topics(topic, rows), keys, data(schema, values))


def tombstones(rows: int = 1) -> EventBatch:
    seq = np.arange(rows)
    keys = data(KEY, [{"id": 1}] * rows)
    return EventBatch(seq, np.ones(rows, dtype=np.int64), topics("p.s.t", rows), keys, no_data(rows))


def chain(transforms: str, predicates: str = "", **settings: str) -> Chain:
    """``chain("x", **{"x.type": …})``; predicates' properties start with ``predicates.``."""
    given = {name.replace("__", "."): text for name, text in settings.items()}
    return make_chain(
        TransformOptions(
            transforms=tuple(transforms.split(",")),
            transform_settings=tuple((n, t) for n, t in given.items() if not n.startswith("predicates.")),
            predicates=tuple(predicates.split(",")) if predicates else (),
            predicate_settings=tuple(
                (n.removeprefix("predicates."), t) for n, t in given.items() if n.startswith("predicates.")
            ),
        )
    )


def one(type_: str, **settings: str) -> Chain:
    """A chain of one transform."""
    prefix = "org.apache.kafka.connect.transforms." if not type_.startswith("io.") else ""
    named = {f"x.{name.replace('__', '.')}": text for name, text in settings.items()}
    return chain("x", **{"x.type": prefix + type_, **named})


def values(batches: list[EventBatch]) -> list[Any]:
    """Every record's value, in the order of the records."""
    return _ordered(batches, lambda found: found.value.values.to_pylist())


def keys(batches: list[EventBatch]) -> list[Any]:
    return _ordered(batches, lambda found: found.key.values.to_pylist())


def names(batches: list[EventBatch]) -> list[str]:
    return _ordered(batches, lambda found: found.topic.to_pylist())


def headers(batches: list[EventBatch]) -> list[dict[str, Any]]:
    def of(found: EventBatch) -> list[Any]:
        out: list[dict[str, Any]] = [{} for _ in range(len(found))]
        for header in found.headers:
            for row, (has, value) in enumerate(zip(header.has(), header.data.values.to_pylist(), strict=True)):
                if has:
                    out[row][header.key] = value
        return out

    return _ordered(batches, of)


def _ordered(batches: list[EventBatch], read: Any) -> list[Any]:
    rows = [
        (seq, sub, value)
        for found in batches
        for seq, sub, value in zip(found.seq, found.sub, read(found), strict=True)
    ]
    return [value for _, _, value in sorted(rows, key=lambda row: row[:2])]

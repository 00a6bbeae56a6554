"""PartitionRouting: the partition by a hash of fields of the event."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.envelope.batch import Batch, Data
from cdc_core.errors import ConfigError, RecordError
from cdc_core.transform.fields import is_envelope
from cdc_core.transform.java_text import DECIMAL
from cdc_core.transform.kafka_fields import each
from cdc_core.transform.settings import Settings

_MASK = 0xFFFFFFFF
_NESTED = ("array", "map", "struct")


class PartitionRouting:
    """Sets the partition to (sum of the fields' Java hashes) modulo ``partition.topic.num``."""

    def __init__(self, settings: Settings) -> None:
        self._fields = settings.items("partition.payload.fields", required=True)
        if not all(self._fields):
            raise ConfigError(f"{settings.name('partition.payload.fields')} lists an empty name.")
        self._partitions = settings.number("partition.topic.num")
        if settings.text("partition.hash.function", "java").strip().lower() == "murmur":
            raise ConfigError(f"{settings.name('partition.hash.function')} is murmur: wal2lake has only java.")

    def apply(self, batch: Batch) -> list[Batch]:
        """Set the partition of rows' events; truncates and records without any of the fields remain."""
        events, others = batch.split(batch.value.valid)
        out = [others] if len(others) else []
        if not len(events):
            return out
        if not is_envelope(events.value):
            return [batch]
        op = events.value.field("op")
        if op is not None:
            no_row = pc.is_in(op.values, pa.array(["t", "m"], op.values.type)).to_numpy(zero_copy_only=False)
            rowless, events = events.split(no_row)
            out += [rowless] if len(rowless) else []
            if not len(events):
                return out
        total = np.zeros(len(events), dtype=np.int64)
        found = np.zeros(len(events), dtype=bool)
        for name in self._fields:
            for data, rows in self._values(events.value, [step.strip() for step in name.split(".")]):
                hashes = _hashes(data.filled().take(rows))
                present = hashes.is_valid().to_numpy(zero_copy_only=False)
                total[rows] += pc.fill_null(hashes, 0).to_numpy()
                found[rows] |= present
        # The sum overflows as Java's int does; its sign is removed.
        positive = (total & _MASK) & 0x7FFFFFFF
        positive[positive == 0x7FFFFFFF] = 0
        partition = pa.array((positive % self._partitions).astype(np.int32), mask=~found)
        if events.partition is not None:
            partition = pc.if_else(partition.is_valid(), partition, events.partition.cast(pa.int32()))
        return [*out, replace(events, partition=partition)]

    @staticmethod
    def _values(event: Data, steps: list[str]) -> list[tuple[Data, np.ndarray]]:
        """Return (values of the field, the rows that they are for): ``change`` is before for deletes, else after."""
        rows = np.arange(len(event))
        starts = [(steps, rows)]
        op = event.field("op")
        if len(steps) > 1 and "change" in steps[:-1] and op is not None:
            deleted = pc.equal(op.values, "d").to_numpy(zero_copy_only=False)
            at = steps.index("change")
            starts = [
                ([*steps[:at], name, *steps[at + 1 :]], rows[mask])
                for name, mask in (("before", deleted), ("after", ~deleted))
            ]
        out = []
        for path, which in starts:
            found: Data | None = event
            for step in path:
                if found is not None and not found.take(which).valid.all():
                    raise RecordError(f"PartitionRouting: an event has no {'.'.join(path[:-1])}, of which it reads.")
                found = found.field(step) if found is not None and found.is_struct else None
            if found is not None and len(which):
                out.append((found, which))
        return out


def _hashes(data: Data) -> pa.Array:
    """Return the hash of each value, null for null."""
    schema = data.schema
    if schema is None:
        return pa.nulls(len(data), pa.int64())
    if schema.name == DECIMAL:
        scale = int(dict(schema.parameters).get("scale", "0"))
        return each(data.values, lambda value: _signed(31 * _hash_of_integer(value) + scale), pa.int64())
    if schema.type == "array" and schema.items is not None and schema.items.type not in _NESTED:
        inner = schema.items.type
        # row-wise: lists have no distinct values that Arrow finds
        made = [None if one is None else _hash_of_list(one, inner) for one in data.values.to_pylist()]
        return pa.array(made, type=pa.int64())
    if schema.type in _NESTED:
        raise RecordError(f"PartitionRouting does not hash {schema.type}.")
    return each(data.values, partial(_hash, schema.type), pa.int64())


def _hash_of_list(values: list[Any], kind: str) -> int:
    out = 1
    for one in values:
        out = (31 * out + (0 if one is None else _hash(kind, one))) & _MASK
    return _signed(out)


def _hash_of_integer(value: bytes) -> int:
    """Return ``BigInteger.hashCode``: of its magnitude in words of 32 bits."""
    number = int.from_bytes(value, "big", signed=True)
    magnitude, out = abs(number), 0
    words = magnitude.to_bytes((magnitude.bit_length() + 31) // 32 * 4, "big")
    for at in range(0, len(words), 4):
        out = (31 * out + int.from_bytes(words[at : at + 4], "big")) & _MASK
    return _signed(out if number >= 0 else -out)


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 32) if value >> 31 else value


def _hash(kind: str, value: Any) -> int:
    """Return Java's ``hashCode`` of a value of a Connect type, as a signed 32-bit number."""
    if kind == "string":
        out = 0
        raw = str(value).encode("utf-16-be", "surrogatepass")
        for at in range(0, len(raw), 2):
            out = (31 * out + int.from_bytes(raw[at : at + 2], "big")) & _MASK
    elif kind == "boolean":
        out = 1231 if value else 1237
    elif kind in ("int64", "double"):
        bits = int(value) if kind == "int64" else _bits(value, ">d", 0x7FF8000000000000)
        out = ((bits >> 32) ^ bits) & _MASK
    elif kind == "float":
        out = _bits(value, ">f", 0x7FC00000)
    elif kind == "bytes":
        out = 1
        for one in reversed(bytes(value)):
            out = (31 * out + (one - 256 if one > 127 else one)) & _MASK
    else:
        out = int(value) & _MASK
    return _signed(out)


def _bits(value: float, form: str, nan: int) -> int:
    return nan if math.isnan(value) else int.from_bytes(struct.pack(form, value), "big")

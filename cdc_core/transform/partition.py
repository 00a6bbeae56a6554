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
from cdc_core.errors import ConfigError
from cdc_core.transform.fields import is_envelope
from cdc_core.transform.kafka_fields import each
from cdc_core.transform.settings import Settings

_MASK = 0xFFFFFFFF


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
        total = np.zeros(len(events), dtype=np.int64)
        found = np.zeros(len(events), dtype=bool)
        for name in self._fields:
            for data, rows in self._values(events.value, [step.strip() for step in name.split(".")]):
                kind = data.schema.type if data.schema is not None else "string"
                hashes = each(data.filled().values.take(pa.array(rows)), partial(_hash, kind), pa.int64())
                present = hashes.is_valid().to_numpy(zero_copy_only=False)
                total[rows] += pc.fill_null(hashes, 0).to_numpy()
                found[rows] |= present
        op = events.value.field("op")
        if op is not None:
            found &= ~pc.is_in(op.values, pa.array(["t", "m"], op.values.type)).to_numpy(zero_copy_only=False)
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
                found = found.field(step) if found is not None and found.is_struct else None
            if found is not None and len(which):
                out.append((found, which))
        return out


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
    return out - (1 << 32) if out >> 31 else out


def _bits(value: float, form: str, nan: int) -> int:
    return nan if math.isnan(value) else int.from_bytes(struct.pack(form, value), "big")

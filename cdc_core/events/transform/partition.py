"""PartitionRouting: the partition by a hash of fields of the event."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import Data, EventBatch
from cdc_core.events.transform.fields import is_envelope
from cdc_core.events.transform.hashes import HASHES, hashes
from cdc_core.events.transform.settings import Settings

_MASK = 0xFFFFFFFF


class PartitionRouting:
    """Sets the partition to (sum of the fields' hashes) modulo ``partition.topic.num``."""

    def __init__(self, settings: Settings) -> None:
        self._fields = settings.items("partition.payload.fields", required=True)
        if not all(self._fields):
            raise ConfigError(f"{settings.name('partition.payload.fields')} lists an empty name.")
        self._partitions = settings.number("partition.topic.num")
        # Another name means the default, as in Debezium.
        name = settings.text("partition.hash.function", "java").strip().lower()
        self._function = HASHES.get(name, HASHES["java"])

    def apply(self, batch: EventBatch) -> list[EventBatch]:
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
        has_field = np.zeros(len(events), dtype=bool)
        for name in self._fields:
            for data, rows in self._values(events.value, [step.strip() for step in name.split(".")]):
                hashed = hashes(data.filled().take(rows), self._function)
                present = hashed.is_valid().to_numpy(zero_copy_only=False)
                total[rows] += pc.fill_null(hashed, 0).to_numpy()
                has_field[rows] |= present
        # The sum overflows as Java's int does; its sign is removed.
        positive = (total & _MASK) & 0x7FFFFFFF
        positive[positive == 0x7FFFFFFF] = 0
        partition = pa.array((positive % self._partitions).astype(np.int32), mask=~has_field)
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
            field: Data | None = event
            for step in path:
                if field is not None and not field.take(which).valid.all():
                    raise RecordError(f"PartitionRouting: an event has no {'.'.join(path[:-1])}, of which it reads.")
                field = field.field(step) if field is not None and field.is_struct else None
            if field is not None and len(which):
                out.append((field, which))
        return out

"""ExtractChangedRecordState: headers that list the fields that an update changed, or did not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import RecordError
from cdc_core.events.envelope.batch import TEXT, Data, EventBatch
from cdc_core.events.envelope.json import texts
from cdc_core.events.transform.fields import OPTIONAL_STRING, is_envelope
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema


class ExtractChangedRecordState:
    """Adds lists of names as headers; they are empty for records without ``before`` or ``after``."""

    def __init__(self, settings: Settings) -> None:
        self._changed = settings.get("header.changed.name")
        self._unchanged = settings.get("header.unchanged.name")

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Add the headers to every event; other records remain."""
        events, others = batch.split(batch.value.valid)
        out = [others] if len(others) else []
        if not len(events):
            return out
        if not is_envelope(events.value):
            return [batch]
        before, after = events.value.field("before"), events.value.field("after")
        if before is None or after is None or after.schema is None:
            raise RecordError("The event has no field before or after, which ExtractChangedRecordState compares.")
        names = [name for name, _ in after.schema.fields]
        both = before.valid & after.valid
        differs = _differences(before, after) & both[:, None]
        if self._changed is not None:
            events = events.with_header(self._changed, _lists(names, differs, self._changed))
        if self._unchanged is not None:
            same = ~differs & both[:, None]
            events = events.with_header(self._unchanged, _lists(names, same, self._unchanged))
        return [*out, events]


def _differences(before: Data, after: Data) -> np.ndarray:
    """bool[N, fields]: whether a field differs."""
    columns = []
    for (_, field), old, new in zip(after.connect_schema.fields, before.columns(), after.columns(), strict=True):
        left, right = (texts(one, field) for one in (old, new))
        unequal = pc.fill_null(pc.not_equal(left, right), False)
        either = pc.xor(left.is_null(), right.is_null())
        columns.append(pc.or_(unequal, either).to_numpy(zero_copy_only=False))
    return np.array(columns, dtype=bool).T.reshape(len(after), len(columns))


def _lists(names: list[str], chosen: np.ndarray, header: str) -> Data:
    offsets = np.zeros(len(chosen) + 1, dtype=np.int32)
    np.cumsum(chosen.sum(axis=1), out=offsets[1:])
    items = pa.array(names, type=TEXT).take(pa.array(np.nonzero(chosen)[1]))
    schema = ConnectSchema("array", optional=True, name=header, items=OPTIONAL_STRING)
    return Data(schema, pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), items))

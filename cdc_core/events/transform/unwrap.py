"""ExtractNewRecordState: an event's row alone, with metadata as fields or headers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import STRING, TEXT, Data, EventBatch, constant, no_data
from cdc_core.events.transform.fields import (
    OPTIONAL_STRING,
    Side,
    basics,
    columns_of,
    is_envelope,
    plain,
    schema_of,
    text_field,
    with_fields,
)
from cdc_core.events.transform.replace_field import without_fields
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema

DELETED = "__deleted"
_MODES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_TRANSACTION = ("id", "total_order", "data_collection_order")
_OWN = ("op", "ts_ms", "ts_us", "ts_ns")


@dataclass(frozen=True, slots=True)
class Reference:
    """A field of the envelope or, if ``parent`` is not empty, of that struct in it, and the name it gets."""

    parent: str
    field: str
    name: str

    @classmethod
    def parse(cls, text: str, prefix: str) -> Reference:
        """Parse ``op``, ``source.ts_ms`` or ``source.ts_ms:time``. Raises ValueError."""
        parts = text.split(":")
        steps = parts[0].split(".")
        if len(parts) > 2 or not parts[0]:
            raise ValueError(text)
        field = steps[0] if len(steps) == 1 else steps[1]
        parent = _parent(field) if len(steps) == 1 else steps[0]
        own = field if len(steps) == 1 else f"{parent}_{field}"
        return cls(parent, field, prefix + (parts[1] if len(parts) == 2 else own))

    def of(self, event: Data) -> Data | None:
        """Return the field of events, None if they have none; including a field that another transform added."""
        parent = event.field(self.parent) if self.parent else event
        if parent is None:
            raise RecordError(f"The event has no field {self.parent}.")
        field = parent.field(self.field)
        if field is None:
            field = event.field(self.field)
            if field is not None and self.parent:
                # Null where the struct is null: Connect reads the field only of structs that are set.
                field = Data(field.schema, _only(parent.valid, field.values))
        if field is None or field.schema is None:
            return None
        return Data(plain(field.schema), field.values)


def _only(mask: np.ndarray, values: pa.Array) -> pa.Array:
    return values.take(pa.array(np.arange(len(values)), mask=~mask))


def _parent(field: str) -> str:
    if field in _TRANSACTION:
        return "transaction"
    if field in _OWN:
        return ""
    return "updateDescription" if field == "updateDescription" else "source"


class ExtractNewRecordState:
    """Replaces an event by its ``after``; deletes and tombstones by ``delete.tombstone.handling.mode``."""

    def __init__(self, settings: Settings) -> None:
        self._mode = settings.choice("delete.tombstone.handling.mode", _MODES, "tombstone")
        self._route = settings.get("route.by.field")
        self._fields = _references(settings, "add.fields")
        self._headers = _references(settings, "add.headers")
        self._drop_header = settings.get("drop.fields.header.name")
        self._drop_from_key = settings.flag("drop.fields.from.key", False)
        self._drop_compatible = settings.flag("drop.fields.keep.schema.compatible", True)
        self._defaults = settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Split the records into tombstones, events by operation, and others, which remain."""
        events, tombstones = batch.split(batch.value.valid)
        out = self._tombstones(tombstones) if len(tombstones) else []
        if not len(events):
            return out
        if not is_envelope(events.value):
            return [*out, events]
        for reference in self._headers:
            field = reference.of(events.value)
            if field is not None:
                events = events.with_header(reference.name, field)
        after = _field(events.value, "after").valid
        before = np.zeros(len(events), dtype=bool) if after.all() else _field(events.value, "before").valid
        kept, _ = events.split(after)
        deleted, _ = events.split(before & ~after)  # a truncate has neither, and is dropped
        return [
            *out,
            *(self._kept(kept) if len(kept) else []),
            *(self._deleted(deleted) if len(deleted) else []),
        ]

    @property
    def _rewrites(self) -> bool:
        return self._mode.startswith("rewrite")

    def _tombstones(self, batch: EventBatch) -> list[EventBatch]:
        if self._mode != "rewrite-with-tombstone":
            return []
        for reference in self._headers:
            if reference.field == "op":
                batch = batch.with_header(reference.name, constant("d", STRING, len(batch)))
        return [batch]

    def _kept(self, events: EventBatch) -> list[EventBatch]:
        row = _field(events.value, "after")
        if self._rewrites:
            row = self._marked(row, "false")
        out = self._routed(replace(events, value=row), row)
        out = replace(out, value=self._added(out.value, events.value))
        return self._dropped(out)

    def _deleted(self, events: EventBatch) -> list[EventBatch]:
        if self._mode == "drop":
            return []
        old = _field(events.value, "before")
        out = self._routed(events, old)
        if self._mode == "tombstone":
            after = _field(events.value, "after")
            return self._dropped(replace(out, value=after))
        if self._mode == "delete-to-tombstone":
            return [replace(out, value=no_data(len(out)))]
        return self._dropped(replace(out, value=self._marked(old, "true")), events.value)

    def _marked(self, row: Data, deleted: str) -> Data:
        """Add ``__deleted``, as InsertField does."""
        schema = basics(schema_of(row, "field insertion"), [*_fields(row), (DELETED, OPTIONAL_STRING)])
        mark = constant(deleted, OPTIONAL_STRING, len(row)).values
        return with_fields(schema, [*columns_of(row, defaults=self._defaults), mark], len(row))

    def _added(self, row: Data, event: Data) -> Data:
        """Add the configured fields; the struct is required in any case."""
        found = [(reference.name, reference.of(event)) for reference in self._fields]
        more = [(name, _addable(data)) for name, data in found if data is not None and data.schema is not None]
        schema = basics(
            schema_of(row, "source field insertion"),
            [*_fields(row), *((name, data.schema) for name, data in more if data.schema is not None)],
        )
        return with_fields(schema, [*row.columns(), *(data.values for _, data in more)], len(row))

    def _routed(self, batch: EventBatch, row: Data) -> EventBatch:
        """Replace topics by a column's value, unless it is null or blank."""
        if self._route is None:
            return batch
        names = text_field(row, self._route).cast(TEXT)
        blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(pc.fill_null(names, ""))), 0)
        return replace(batch, topic=pc.if_else(blank, batch.topic, names))

    def _dropped(self, batch: EventBatch, event: Data | None = None) -> list[EventBatch]:
        """Remove the fields that a header names; then add fields, for a rewritten delete (``event``)."""
        if self._drop_header is None:
            return [batch if event is None else replace(batch, value=self._added(batch.value, event))]
        made = []
        for names, rows in _names_by_row(batch, self._drop_header):
            part = batch.take(rows)
            if names:
                part = self._without(part, names)
            if event is not None:
                part = replace(part, value=self._added(part.value, event.take(rows)))
            made.append(part)
        return made

    def _without(self, batch: EventBatch, names: tuple[str, ...]) -> EventBatch:
        sides = [Side.KEY, Side.VALUE] if self._drop_from_key else [Side.VALUE]
        for side in sides:
            data = side.get(batch)
            if data.schema is None or not data.valid.any():
                continue
            optional = {name for name, field in data.schema.fields if field.optional}
            drop = [name for name in names if name in optional] if self._drop_compatible else list(names)
            if drop:
                batch = side.put(batch, without_fields(data, drop))
        return batch


def _addable(data: Data) -> Data:
    """Return a field to be added. A struct becomes one without fields, which only null is a value of."""
    if not data.is_struct or data.schema is None:
        return data
    if data.valid.any():
        raise RecordError("A struct cannot be added as a field: struct schemas do not match.")
    return Data(data.schema.replace(fields=()), pa.nulls(len(data), pa.struct([])))


def _references(settings: Settings, name: str) -> tuple[Reference, ...]:
    prefix = settings.exact(f"{name}.prefix", "__")
    try:
        return tuple(Reference.parse(one, prefix) for one in settings.items(name))
    except ValueError as error:
        raise ConfigError(f"{settings.name(name)}: {str(error)!r} is not a field, or FIELD:NAME.") from None


def _fields(row: Data) -> tuple[tuple[str, ConnectSchema], ...]:
    return () if row.schema is None else row.schema.fields


def _field(event: Data, name: str) -> Data:
    found = event.field(name)
    if found is None:
        raise RecordError(f"The event has no field {name}.")
    return found


def _names_by_row(batch: EventBatch, header: str) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """Return (names, the rows for which the header lists them). The first header of that name is used."""
    lists: list[tuple[str, ...]] = [()] * len(batch)
    done = np.zeros(len(batch), dtype=bool)
    for candidate in batch.headers:
        if candidate.key != header or candidate.data.schema is None or candidate.data.schema.type != "array":
            continue
        has = candidate.has() & ~done
        # row-wise: the header's list differs by record
        for row in np.flatnonzero(has).tolist():
            lists[row] = tuple(candidate.data.values[row].as_py() or ())
        done |= has
    rows: dict[tuple[str, ...], list[int]] = {}
    for at, names in enumerate(lists):
        rows.setdefault(names, []).append(at)
    return [(names, np.array(which)) for names, which in rows.items()]

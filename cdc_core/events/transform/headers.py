"""Transforms of headers, and Filter: InsertHeader, DropHeaders, HeaderFrom, Filter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import EventBatch, constant, no_data
from cdc_core.events.transform.fields import Side, basics, columns_of, schema_of, with_fields
from cdc_core.events.transform.literal import parse_literal
from cdc_core.events.transform.settings import Settings


class InsertHeader:
    """Adds a header with a constant value, whose type follows from its text."""

    def __init__(self, settings: Settings) -> None:
        self._header = settings.text("header")
        # An empty literal is an empty text; a missing one is an error.
        is_empty = settings.exact("value.literal", "missing") == ""
        literal = "" if is_empty else settings.text("value.literal")
        self._schema, self._value = parse_literal(literal, settings.name("value.literal"))

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Add the header to every record."""
        rows = len(batch)
        data = no_data(rows) if self._schema is None else constant(self._value, self._schema, rows)
        return [batch.with_header(self._header, data)]


class DropHeaders:
    """Removes headers by name."""

    def __init__(self, settings: Settings) -> None:
        self._names = set(settings.items("headers", required=True))

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Remove the headers from every record."""
        return [replace(batch, headers=tuple(one for one in batch.headers if one.key not in self._names))]


class HeaderFrom:
    """Copies or moves fields of the key or value to headers."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._fields = settings.items("fields", required=True)
        self._headers = settings.items("headers", required=True)
        if len(self._fields) != len(self._headers):
            raise ConfigError(f"{settings.name('headers')} must list as many names as {settings.name('fields')}.")
        self._moves = settings.choice("operation", ("move", "copy")) == "move"
        self._defaults = settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Add the headers; every key or value must be a struct."""
        data = self._side.get(batch)
        schema = schema_of(data, "moving fields to headers")
        if not data.valid.all():
            raise RecordError("Only structs are supported for moving fields to headers, found null.")
        columns = columns_of(data, defaults=self._defaults)
        for name, header in zip(self._fields, self._headers, strict=True):
            field = data.field(name)
            if field is None:
                raise RecordError(f"{name} is not a field of the {self._side.lower()}.")
            batch = batch.with_header(header, field.filled() if self._defaults else field)
        if not self._moves:
            return [batch]
        kept = [at for at, (name, _) in enumerate(schema.fields) if name not in self._fields]
        left = with_fields(basics(schema, [schema.fields[at] for at in kept]), [columns[at] for at in kept], len(data))
        return [self._side.put(batch, left)]


class Filter:
    """Drops every record; its predicate selects the records."""

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Return no record."""
        return [] if len(batch) else [batch.take(np.zeros(0, dtype=np.int64))]

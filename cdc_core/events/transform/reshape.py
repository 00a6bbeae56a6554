"""Flatten and SetSchemaMetadata: a struct's nested fields as its own, and another name or version of a schema."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.errors import RecordError
from cdc_core.events.envelope.batch import SCHEMALESS, Data, EventBatch
from cdc_core.events.transform.fields import Side, basics, schema_of, where_set, with_fields
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema


class Flatten:
    """Names nested fields by their path, joined by ``delimiter``; arrays remain, maps are refused."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._delimiter = settings.text("delimiter", ".")

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change every key or value that is not null."""
        return where_set(batch, self._side, self._change)

    def _change(self, batch: EventBatch) -> list[EventBatch]:
        data = self._side.get(batch)
        schema = schema_of(data, "flattening")
        found = self._flat(data, "", schema.optional)
        made = basics(schema, [(name, field) for name, field, _ in found])
        return [self._side.put(batch, with_fields(made, [values for _, _, values in found], len(batch)))]

    def _flat(self, data: Data, prefix: str, optional: bool) -> list[tuple[str, ConnectSchema, pa.Array]]:
        """Return (name, schema, values). A field is optional if it or a struct around it is."""
        fields = []
        for (name, field), values in zip(data.connect_schema.fields, data.columns(), strict=True):
            full = f"{prefix}{self._delimiter}{name}" if prefix else name
            missing = optional or field.optional
            if field.type == "map":
                raise RecordError(f"Flatten does not support the map {full}.")
            if field.type == "struct":
                fields += self._flat(Data(field, values), full, missing)
                continue
            # A field of a struct that is null stays null: only where the struct is set does its default count.
            filled = Data(field, values).filled().values.take(pa.array(np.arange(len(values)), mask=~data.valid))
            fields.append((full, field.replace(optional=missing), filled))
        return fields


class SetSchemaMetadata:
    """Sets the name and version of the key's or value's schema; nulls without a schema remain."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._name = settings.get("schema.name")
        self._version = settings.number("schema.version", least=0) if settings.get("schema.version") else None
        settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change the schema of every key or value."""
        data = self._side.get(batch)
        if data.schema is None:
            return [batch]
        # As in Connect, which reads the fields: a schema of another type has none.
        schema = schema_of(data, "updating schema metadata")
        if schema.name == SCHEMALESS:
            raise RecordError("A value without a schema has no schema's name or version.")
        name = schema.name if self._name is None else self._name
        version = schema.version if self._version is None else self._version
        return [self._side.put(batch, Data(schema.replace(name=name, version=version), data.values))]

"""Kafka Connect's schema, in the form of the JSON converter."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ConnectSchema:
    """A schema of Connect's type system.

    ``type`` is one of int8, int16, int32, int64, float (32 bit), double, boolean, string, bytes, array, map, struct.
    ``fields`` are a struct's (name, schema) pairs, ``items`` an array's or map's value schema, ``keys`` a map's key
    schema. ``parameters`` are ordered pairs. ``default`` is the default in the JSON converter's form (bytes as base64
    text); ``has_default`` distinguishes a null default from none.
    """

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default: Any = None
    has_default: bool = False
    fields: tuple[tuple[str, ConnectSchema], ...] = ()
    items: ConnectSchema | None = None
    keys: ConnectSchema | None = None

    @property
    def element(self) -> ConnectSchema:
        """The schema of an array's or a map's values; only for these types."""
        assert self.items is not None
        return self.items

    @property
    def map_key(self) -> ConnectSchema:
        """The schema of a map's keys; only for this type."""
        assert self.keys is not None
        return self.keys

    def to_dict(self, field: str | None = None) -> dict[str, Any]:
        """Return the form of Connect's JsonConverter; ``field`` is the schema's field name in a struct."""
        out: dict[str, Any] = {"type": self.type}
        if self.type == "struct":
            out["fields"] = [schema.to_dict(name) for name, schema in self.fields]
        if self.type == "map":
            out["keys"] = self.map_key.to_dict()
            out["values"] = self.element.to_dict()
        if self.type == "array":
            out["items"] = self.element.to_dict()
        out["optional"] = self.optional
        if self.name is not None:
            out["name"] = self.name
        if self.version is not None:
            out["version"] = self.version
        if self.doc is not None:
            out["doc"] = self.doc
        if self.parameters:
            out["parameters"] = dict(self.parameters)
        if self.has_default:
            out["default"] = self.default
        if field is not None:
            out["field"] = field
        return out

    def replace(self, **changes: Any) -> ConnectSchema:
        """Return a copy with some attributes changed."""
        return dataclasses.replace(self, **changes)

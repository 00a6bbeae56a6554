"""EventRouter's expansion of a JSON text to a struct: its schema by the text's own types."""

from __future__ import annotations

import json
from typing import Any

from cdc_core.events.envelope.batch import MISFIT, MISFIT_LIST, SCHEMALESS
from cdc_core.schema import ConnectSchema, NameAdjustmentMode, adjust_field_name


class NotExpandedError(Exception):
    """The text is not expanded: the record keeps it."""


class UnusableError(Exception):
    """The text has no schema, or is no value of it: it remains text, with a schema of the name ``name``."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class JsonPayload:
    """``keeps_null``: a null field becomes optional bytes; otherwise it is left out."""

    def __init__(self, *, keeps_null: bool, names: NameAdjustmentMode) -> None:
        self._keeps_null = keeps_null
        self._names = names

    def expand(self, field: str, text: str) -> tuple[ConnectSchema, Any]:
        """Return the schema of a JSON object, named after the column, and its value. Raises the errors above."""
        if not text.startswith(("{", "[")):
            raise NotExpandedError(text[:1])
        try:
            node = json.JSONDecoder(parse_constant=_refuse).raw_decode(text)[0]
            schema = self._schema(field, node)
        except (ValueError, RecursionError):
            raise NotExpandedError(field) from None
        if schema is None or schema.type != "struct":
            raise UnusableError(SCHEMALESS if schema is None else MISFIT_LIST)
        return schema, self._value(node, schema)

    def _schema(self, key: str | None, node: Any) -> ConnectSchema | None:
        if node is None:
            return ConnectSchema("bytes", optional=True) if self._keeps_null else None
        if isinstance(node, dict):
            return self._struct(key, node)
        if isinstance(node, list):
            return ConnectSchema("array", optional=True, items=self._items(key, node)) if node else None
        return ConnectSchema(_kind(node), optional=True)

    def _struct(self, key: str | None, node: dict[str, Any]) -> ConnectSchema:
        fields: dict[str, ConnectSchema] = {}
        for name, child in node.items():
            named = adjust_field_name(name, self._names)
            schema = self._schema(f"{key}.{named}" if key and key.strip() else named, child)
            if schema is not None:
                fields.setdefault(named, schema)
        return ConnectSchema("struct", optional=True, name=key, fields=tuple(fields.items()))

    def _items(self, key: str | None, nodes: list[Any]) -> ConnectSchema:
        """Return the schema of the elements, which must be of one kind."""
        present = [node for node in nodes if node is not None]
        sample = present[0] if present else None
        if len({_node_type(node) for node in present}) > 1:
            raise ValueError("elements of several kinds")
        if isinstance(sample, dict):
            return _merged([self._struct(key, node) for node in present])
        if _node_type(sample) == "number" and len({_kind(node) for node in present}) > 1:
            raise ValueError("numbers of several types")
        schema = self._schema(None, sample)
        if schema is None:
            raise ValueError("elements without a type")
        return schema

    def _value(self, node: Any, schema: ConnectSchema) -> Any:
        if node is None:
            return None
        if isinstance(node, dict):
            # Connect looks a field up by its adjusted name.
            return {name: self._value(node.get(name), field) for name, field in schema.fields}
        if isinstance(node, list):
            return [self._value(item, schema.element) for item in node]
        if isinstance(node, int) and _kind(node) == "double":
            raise UnusableError(MISFIT)
        if schema.type != _kind(node):
            raise UnusableError(MISFIT)
        return float(node) if schema.type == "double" else node


def _merged(schemas: list[ConnectSchema]) -> ConnectSchema:
    """Return one schema with the fields of all; a field that was always null takes another's type."""
    distinct = list(dict.fromkeys(schemas))
    if len(distinct) == 1:
        return distinct[0]
    fields: dict[str, ConnectSchema] = {}
    for schema in distinct:
        for name, field in schema.fields:
            if name not in fields or (fields[name].type == "bytes" != field.type):
                fields[name] = field
    return distinct[0].replace(optional=False, fields=tuple(fields.items()))


def _node_type(node: Any) -> str:
    if isinstance(node, bool):
        return "boolean"
    return "number" if isinstance(node, (int, float)) else type(node).__name__


def _kind(node: Any) -> str:
    if isinstance(node, bool):
        return "boolean"
    if isinstance(node, str):
        return "string"
    if isinstance(node, int) and -(1 << 63) <= node < 1 << 63:
        return "int32" if -(1 << 31) <= node < 1 << 31 else "int64"
    return "double"


def _refuse(_: str) -> Any:
    raise ValueError("NaN and Infinity are not JSON")

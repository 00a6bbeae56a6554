"""Avro schemas of Connect's schemas, by the rules of Confluent's AvroData."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from cdc_core.errors import RecordError
from cdc_core.events.envelope.batch import default_of
from cdc_core.schema import ConnectSchema

_CONNECT = "org.apache.kafka.connect.data."
DECIMAL = f"{_CONNECT}Decimal"
_LOGICAL = {f"{_CONNECT}Date": "date", f"{_CONNECT}Time": "time-millis", f"{_CONNECT}Timestamp": "timestamp-millis"}
_PRIMITIVES = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_PRIMITIVES |= {name: name for name in ("float", "double", "boolean", "string", "bytes")}
_SPACE = "io.confluent.connect.avro"
_DEFAULT_NAME = "ConnectDefault"
_PRECISION = "connect.decimal.precision"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _anything() -> dict[str, Any]:
    """Return the schema of values that have none in Connect: one optional field for each type, of which one is set."""
    kinds: dict[str, Any] = {kind: kind for kind in ("boolean", "bytes", "double", "float", "int", "long", "string")}
    entry = [{"name": name, "type": "Anything"} for name in ("key", "value")]
    kinds["array"] = {"type": "array", "items": "Anything"}
    kinds["map"] = {"type": "array", "items": {"type": "record", "name": "MapEntry", "fields": entry}}
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in kinds.items()]
    return {"type": "record", "name": "Anything", "namespace": _SPACE, "fields": fields}


ANYTHING = _anything()


@dataclass(frozen=True, slots=True)
class AvroRules:
    """``metadata``: with the connect.* properties. ``scrub``: names that Avro does not permit are changed.

    ``field_docs``: the documentation of a field's type is the field's, too.
    """

    metadata: bool = True
    scrub: bool = False
    optional_map_keys: bool = False
    field_docs: bool = False

    def is_map(self, schema: ConnectSchema) -> bool:
        """Whether a map is an Avro map; otherwise it is an array of records with key and value."""
        keys = schema.map_key
        return keys is not None and keys.type == "string" and (not keys.optional or self.optional_map_keys)

    def name(self, name: str) -> str:
        """Return a name without dots as Avro permits it. Raises RecordError."""
        name = self.scrubbed(name)
        if not _NAME.fullmatch(name):
            raise RecordError(
                f"Avro does not permit the name {name}.",
                "Set schema.name.adjustment.mode=avro and field.name.adjustment.mode=avro, or scrub.invalid.names.",
            )
        return name

    def scrubbed(self, name: str) -> str:
        """Return a name without dots, adjusted if the option requires it. Avro may not permit the result."""
        if not self.scrub or _NAME.fullmatch(name) or not name:
            return name
        encoded = quote_plus(name, safe="*-._")
        return re.sub(r"[^A-Za-z0-9_]", "_", "x" + encoded if encoded[0].isdigit() else encoded)


def avro_schema(schema: ConnectSchema, rules: AvroRules) -> Any:
    """Return a schema as JSON value: a text for a primitive type, else an object, or a list for a union."""
    return _Maker(rules).make(schema, "")


def avro_name(schema: Any) -> str | None:
    """Return the full name of a record; other types, optional records among them, have none."""
    if not isinstance(schema, dict) or schema["type"] != "record":
        return None
    space = schema.get("namespace")
    return f"{space}.{schema['name']}" if space else str(schema["name"])


def canonical(schema: Any) -> str:
    """Return a text that is equal for schemas that read and write the same bytes by the same names."""
    return json.dumps(_bare(schema, ""), sort_keys=True)


def _bare(schema: Any, space: str) -> Any:
    if isinstance(schema, list):
        return [_bare(branch, space) for branch in schema]
    if isinstance(schema, str):
        is_full = schema in {*_PRIMITIVES.values(), "null"} or "." in schema or not space
        return schema if is_full else f"{space}.{schema}"
    kind = schema["type"]
    if kind == "record":
        space = schema.get("namespace", space)
        fields = [{"name": field["name"], "type": _bare(field["type"], space)} for field in schema["fields"]]
        return {"type": kind, "name": f"{space}.{schema['name']}", "fields": fields}
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return {"type": kind, inner: _bare(schema[inner], space)}
    return kind if isinstance(kind, str) else _bare(kind, space)


class _Maker:
    """Makes one schema. A record that was written is referred to by its name from then on."""

    def __init__(self, rules: AvroRules) -> None:
        self._rules = rules
        self._written: set[str] = set()
        self._unnamed = 0

    def make(self, schema: ConnectSchema, space: str) -> Any:
        """Return the schema within a namespace, as a union if it is optional."""
        base = self._record(schema, space) if schema.type == "struct" else self._other(schema, space)
        if not schema.optional:
            return base
        # The default of a union is of its first type. Structs are optional without regard to a default.
        return [base, "null"] if _defaulted(schema) and schema.type != "struct" else ["null", base]

    def _record(self, schema: ConnectSchema, space: str) -> Any:
        own_space, name = self._names(schema.name)
        full = f"{own_space}.{name}" if own_space else name
        if full in self._written:
            return name if own_space == space else full
        self._written.add(full)
        out: dict[str, Any] = {"type": "record", "name": name}
        if own_space != space:
            out["namespace"] = own_space
        out["fields"] = [self._field(self._rules.name(name), field, own_space) for name, field in schema.fields]
        return self._described(out, schema)

    def _field(self, name: str, schema: ConnectSchema, space: str) -> dict[str, Any]:
        field: dict[str, Any] = {"name": name, "type": self.make(schema, space)}
        if self._rules.field_docs and schema.doc is not None:
            field["doc"] = schema.doc
        if _defaulted(schema):
            default = self._default(schema, default_of(schema))
            if not (schema.type == "struct" and schema.optional) and _is_json(default):
                field["default"] = default
        elif schema.optional:
            field["default"] = None
        return field

    def _other(self, schema: ConnectSchema, space: str) -> Any:
        if schema.type == "array":
            return self._described({"type": "array", "items": self.make(schema.element, space)}, schema)
        if schema.type == "map":
            return self._described(self._map(schema, space), schema)
        out = {"type": _PRIMITIVES[schema.type]}
        self._described(out, schema)
        return out["type"] if len(out) == 1 else out

    def _map(self, schema: ConnectSchema, space: str) -> dict[str, Any]:
        if self._rules.is_map(schema):
            return {"type": "map", "values": self.make(schema.element, space)}
        own_space, name = (_SPACE, "MapEntry") if schema.name is None else self._names(schema.name)
        entry: dict[str, Any] = {"type": "record", "name": name}
        if own_space != space:
            entry["namespace"] = own_space
        pairs = (("key", schema.map_key), ("value", schema.element))
        entry["fields"] = [self._field(side, field, own_space) for side, field in pairs]
        if schema.name is not None:
            entry["connect.internal.type"] = "MapEntry"
        return {"type": "array", "items": entry}

    def _described(self, out: dict[str, Any], schema: ConnectSchema) -> dict[str, Any]:
        parameters = dict(schema.parameters)
        if schema.name == DECIMAL:
            out["scale"] = int(parameters.get("scale", "0"))
            out["precision"] = int(parameters.get(_PRECISION, "64"))
        if self._rules.metadata:
            self._add_metadata(out, schema, parameters)
        if schema.name == DECIMAL:
            out["logicalType"] = "decimal"
        elif schema.name in _LOGICAL:
            out["logicalType"] = _LOGICAL[schema.name]
        out.update({name: value for name, value in parameters.items() if name.startswith("avro.")})
        return out

    def _add_metadata(self, out: dict[str, Any], schema: ConnectSchema, parameters: dict[str, str]) -> None:
        if schema.doc is not None:
            out["connect.doc"] = schema.doc
        if schema.version is not None:
            out["connect.version"] = schema.version
        if parameters:
            out["connect.parameters"] = parameters
        if _defaulted(schema):
            out["connect.default"] = self._default(schema, default_of(schema))
        if schema.name is not None:
            out["connect.name"] = schema.name
        if schema.type in ("int8", "int16"):
            out["connect.type"] = schema.type

    def _default(self, schema: ConnectSchema, value: Any) -> Any:
        """Return a default as JSON value; bytes are texts of the characters with their codes."""
        if value is None:
            return None
        if schema.type == "bytes":
            return bytes(value).decode("latin-1")
        if schema.type == "array":
            return [self._default(schema.element, item) for item in value]
        if schema.type == "struct":
            return {self._rules.name(name): self._default(field, value.get(name)) for name, field in schema.fields}
        if schema.type == "map":
            pairs = [
                (self._default(schema.map_key, item), self._default(schema.element, mapped)) for item, mapped in value
            ]
            return dict(pairs) if self._rules.is_map(schema) else [list(pair) for pair in pairs]
        return value

    def _names(self, name: str | None) -> tuple[str, str]:
        """Return a record's namespace, which Avro does not verify, and its name."""
        if name is None:
            self._unnamed += 1
            return _SPACE, _DEFAULT_NAME + (str(self._unnamed) if self._unnamed > 1 else "")
        space, _, last = name.rpartition(".")
        return ".".join(map(self._rules.scrubbed, space.split("."))), self._rules.name(last)


def _defaulted(schema: ConnectSchema) -> bool:
    return schema.has_default and schema.default is not None


def _is_json(value: Any) -> bool:
    """Whether Avro accepts it as default: NaN and the infinities are no JSON."""
    return not isinstance(value, float) or value - value == 0

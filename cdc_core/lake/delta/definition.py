"""What a Delta table is: its protocol, properties and columns as the log has them, and how a commit changes them.

A value. ``DeltaTable`` derives it from the log; a changed one becomes the ``protocol`` and ``metaData`` actions of a
commit. Specification: Delta's protocol document, "Table Features", "Column Mapping", "Type Widening".

Column mapping (mode ``name``): a column has an id and a physical name, by which data files and statistics name it. A
column that stays keeps both, whatever it is called; one that comes with a commit of metadata gets a physical name that
nobody has used. Files of a commit that also changes the columns are written before it, by several tasks: their physical
names follow from the definition alone (``replaced``).
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from cdc_core.lake.delta.conform import has_local_timestamps, plain_schema

Field = dict[str, Any]

VECTORS, MAPPING, WIDENING, NTZ = "deletionVectors", "columnMapping", "typeWidening", "timestampNtz"
COMMIT_TIMESTAMPS, CLUSTERING, DOMAINS = "inCommitTimestamp", "clustering", "domainMetadata"
ROW_TRACKING, CHANGE_FEED = "rowTracking", "changeDataFeed"
MAPPING_MODE, _LAST_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
VECTORS_ENABLED, _WIDENING_ENABLED = "delta.enableDeletionVectors", "delta.enableTypeWidening"
_TIMES_ENABLED = "delta.enableInCommitTimestamps"
_ROW_TRACKING_ENABLED, _ROW_TRACKING_SUSPENDED = "delta.enableRowTracking", "delta.rowTrackingSuspended"
_FEED_ENABLED = "delta.enableChangeDataFeed"
_ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_ROW_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
_SINCE_TIME = "delta.inCommitTimestampEnablementTimestamp"
ID, PHYSICAL_NAME, TYPE_CHANGES = "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.typeChanges"
LOG_KEPT = "delta.logRetentionDuration"
_INTERVAL, _MINUTES = (
    re.compile(r"interval (\d+) (minute|hour|day|week)s?"),
    {"minute": 1, "hour": 60, "day": 1440, "week": 10080},
)
_FEATURE_VERSIONS = (3, 7)
_FOR_READERS = frozenset({VECTORS, MAPPING, WIDENING, NTZ, "v2Checkpoint"})
# The features that a table of this version or a later one has without naming them.
_WRITER_FEATURES = {
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {CHANGE_FEED, "generatedColumns"},
    5: {MAPPING},
    6: {"identityColumns"},
}


@dataclass(frozen=True)
class Definition:
    """One table's definition. ``fields`` are those of the log's ``schemaString``, ``versions`` (reader, writer)."""

    identity: str
    name: str | None
    description: str | None
    partitions: tuple[str, ...]
    created: int | None
    fields: tuple[Field, ...]
    properties: Mapping[str, str]
    versions: tuple[int, int]
    readers: frozenset[str]
    writers: frozenset[str]

    @classmethod
    def of(cls, raw: Any) -> Definition:
        """Return the definition of delta-rs' object."""
        protocol, known = raw.protocol(), raw.metadata()
        return cls(
            str(known.id),
            known.name,
            known.description,
            tuple(known.partition_columns),
            known.created_time,
            tuple(json.loads(raw.schema().to_json())["fields"]),
            {str(key): str(value) for key, value in known.configuration.items()},
            (protocol.min_reader_version, protocol.min_writer_version),
            frozenset(protocol.reader_features or ()),
            frozenset(protocol.writer_features or ()),
        )

    @classmethod
    def new(cls, schema: pa.Schema, properties: Mapping[str, str]) -> Definition:
        """Return the definition of a new table."""
        now, fields = int(time.time() * 1000), tuple(fields_of(schema))
        nothing = frozenset[str]()
        made = cls(str(uuid.uuid4()), None, None, (), now, fields, dict(properties), (1, 2), nothing, nothing)
        return made._with_local_timestamps()

    @property
    def is_mapped(self) -> bool:
        """Whether data files name columns by their physical names."""
        return self.properties.get(MAPPING_MODE, "none") != "none"

    @property
    def assigns_row_ids(self) -> bool:
        """Whether a commit gives row ids to the files that it adds."""
        return ROW_TRACKING in self.writers and self.properties.get(_ROW_TRACKING_SUSPENDED) != "true"

    @property
    def row_tracking(self) -> tuple[str, ...]:
        """The columns of files with the ids and commit versions that rows keep; empty if they keep none."""
        if not self.assigns_row_ids or self.properties.get(_ROW_TRACKING_ENABLED) != "true":
            return ()
        return self.properties[_ROW_ID_COLUMN], self.properties[_ROW_VERSION_COLUMN]

    @property
    def feeds_changes(self) -> bool:
        """Whether a commit has its changes in files of their own (``apply/change_feed``)."""
        is_known = CHANGE_FEED in self.writers or self.versions[1] < _FEATURE_VERSIONS[1]
        return is_known and self.properties.get(_FEED_ENABLED) == "true"

    @property
    def log_minutes(self) -> int | None:
        """How long entries of the log are kept; None if that is not known, which is Delta's default."""
        told = _INTERVAL.fullmatch(self.properties.get(LOG_KEPT, "").lower())
        return None if told is None else int(told[1]) * _MINUTES[told[2]]

    def with_log_kept(self, minutes: int) -> Definition:
        """Return the definition of a table that keeps the entries of its log for so long."""
        return self.with_properties({LOG_KEPT: f"interval {minutes} minutes"})

    @property
    def shows_changes(self) -> bool:
        """Whether readers see which rows a commit changes: in a change data feed, or by their ids and versions."""
        return self.feeds_changes or bool(self.row_tracking)

    def having(self, *features: str) -> Definition:
        """Return the definition with table features, which may be there already."""
        if set(features) <= self.writers:
            return self
        readers, writers = set(self.readers), {*self.writers, *features}
        for version, implied in _WRITER_FEATURES.items():
            if version <= self.versions[1] < _FEATURE_VERSIONS[1]:
                writers |= implied
        reader = self.versions[0]
        if reader == _FEATURE_VERSIONS[0] or _FOR_READERS & set(features):
            readers |= {MAPPING} if reader == 2 else set()
            readers |= _FOR_READERS & set(features)
            reader = _FEATURE_VERSIONS[0]
        versions = (reader, _FEATURE_VERSIONS[1])
        return replace(self, versions=versions, readers=frozenset(readers), writers=frozenset(writers))

    def with_properties(self, properties: Mapping[str, str]) -> Definition:
        """Return the definition with properties."""
        return replace(self, properties={**self.properties, **properties})

    def with_vectors(self) -> Definition:
        """Return the definition of a table whose rows may be marked as deleted."""
        return self.having(VECTORS).with_properties({VECTORS_ENABLED: "true"})

    def with_type_widening(self) -> Definition:
        """Return the definition of a table whose files may have narrower types than its columns."""
        return self.having(WIDENING).with_properties({_WIDENING_ENABLED: "true"})

    def with_row_tracking(self) -> Definition:
        """Return the definition of a table whose rows keep their ids."""
        names = {
            _ROW_ID_COLUMN: f"_row-id-col-{uuid.uuid4()}",
            _ROW_VERSION_COLUMN: f"_row-commit-version-col-{uuid.uuid4()}",
        }
        return self.having(DOMAINS, ROW_TRACKING).with_properties(
            {**names, **self.properties, _ROW_TRACKING_ENABLED: "true"}
        )

    def with_change_feed(self) -> Definition:
        """Return the definition of a table whose changes can be read."""
        return self.having(CHANGE_FEED).with_properties({_FEED_ENABLED: "true"})

    def with_clustering(self) -> Definition:
        """Return the definition of a table whose clustering columns are in its domain metadata."""
        return self.having(DOMAINS, CLUSTERING)

    def with_commit_timestamps(self, version: int, milliseconds: int) -> Definition:
        """Return the definition of a table whose commits have their own times from ``version`` on.

        ``milliseconds`` is the time of that commit, which puts the definition in force.
        """
        told = {_TIMES_ENABLED: "true", _SINCE_VERSION: str(version), _SINCE_TIME: str(milliseconds)}
        return self.having(COMMIT_TIMESTAMPS).with_properties(told)

    @property
    def has_commit_times(self) -> bool:
        """Whether each commit has its own time."""
        return self.properties.get(_TIMES_ENABLED) == "true"

    @property
    def first_commit_time(self) -> int:
        """The time of the commit that gave commits their own times, in milliseconds."""
        return int(self.properties[_SINCE_TIME])

    def with_mapping(self) -> Definition:
        """Return the definition with column mapping: existing columns get ids, and keep their names in files."""
        if self.is_mapped:
            return self
        ids = _Ids(0)
        fields = tuple(_mapped(field, None, ids, lambda name: name) for field in self.fields)
        made = self.having(MAPPING).with_properties({MAPPING_MODE: "name"})
        return made._with_fields(fields, ids)

    def with_columns(self, schema: pa.Schema) -> Definition:
        """Return the definition with the columns of ``schema``, whose new ones no existing file has."""
        return self._columns(schema, lambda name: f"col-{uuid.uuid4()}")

    def replaced(self, schema: pa.Schema) -> Definition:
        """As ``with_columns``, of a table whose files are all replaced, or none of whose columns are new.

        It depends on nothing but the definition and the schema.
        """
        taken = {str(field["metadata"].get(PHYSICAL_NAME)).lower() for field in self.fields}

        def physical(name: str) -> str:
            stem, number = f"col-{uuid.uuid5(uuid.NAMESPACE_OID, f'{self.identity}/{name}')}", 0
            while (made := f"{stem}-{number}" if number else stem).lower() in taken:
                number += 1
            taken.add(made.lower())
            return made

        return self._columns(schema, physical)

    def evolved(self, columns: Sequence[tuple[str, str | None, pa.DataType]]) -> Definition:
        """Return the definition after a change of metadata.

        ``columns`` are all columns after it: the name, the column's present name (None: it is new), and the type.
        """
        known = {field["name"]: field for field in self.fields}
        types = {field.name: field.type for field in plain_schema(self._arrow)}
        ids, out = self._ids(), list[Field]()
        for name, source, kind in columns:
            field = field_of(name, kind)
            if source is None:
                made = _mapped(field, None, ids, lambda _: f"col-{uuid.uuid4()}") if self.is_mapped else field
            elif kind.equals(types[source]):
                made = {**known[source], "name": name}
            else:
                changes = _type_changes(types[source], kind)
                metadata = dict(known[source]["metadata"])
                metadata[TYPE_CHANGES] = [*metadata.get(TYPE_CHANGES, ()), *changes]
                made = {**known[source], "name": name, "type": field["type"], "metadata": metadata}
            out.append(made)
        return self._with_fields(out, ids)._with_local_timestamps()

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of ``schema``, which the table has, as data files name them, with their ids."""
        if not self.is_mapped:
            return schema
        return pa.schema([_stored(self._arrow.field(name)) for name in schema.names])

    def physical_names(self) -> dict[str, str]:
        """Return the name in files and statistics of each column; empty without column mapping."""
        if not self.is_mapped:
            return {}
        return {field["name"]: str(field["metadata"].get(PHYSICAL_NAME, field["name"])) for field in self.fields}

    def physical(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the names of columns in files."""
        names = self.physical_names()
        return tuple(names.get(column, column) for column in columns)

    def actions(self, before: Definition | None = None) -> tuple[dict[str, Any], ...]:
        """Return the actions by which a commit changes ``before`` to this; all of them without it."""
        if before is self:
            return ()
        made: list[dict[str, Any]] = []
        if before is None or self._protocol() != before._protocol():
            made.append({"protocol": self._protocol()})
        if before is None or self._metadata() != before._metadata():
            made.append({"metaData": self._metadata()})
        return tuple(made)

    def _protocol(self) -> dict[str, Any]:
        told: dict[str, Any] = {"minReaderVersion": self.versions[0], "minWriterVersion": self.versions[1]}
        if self.versions[0] >= _FEATURE_VERSIONS[0]:
            told["readerFeatures"] = sorted(self.readers)
        if self.versions[1] >= _FEATURE_VERSIONS[1]:
            told["writerFeatures"] = sorted(self.writers)
        return told

    def _metadata(self) -> dict[str, Any]:
        return {
            "id": self.identity,
            "name": self.name,
            "description": self.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(self.fields)}, separators=(",", ":")),
            "partitionColumns": list(self.partitions),
            "createdTime": self.created,
            "configuration": dict(self.properties),
        }

    def _columns(self, schema: pa.Schema, physical: Callable[[str], str]) -> Definition:
        ids, known = self._ids(), {field["name"]: field for field in self.fields}
        fields = [
            _mapped(field, known.get(field["name"]), ids, physical)
            if self.is_mapped
            else _kept(field, known.get(field["name"]))
            for field in fields_of(schema)
        ]
        return self._with_fields(fields, ids)._with_local_timestamps()

    def _with_fields(self, fields: Iterable[Field], ids: _Ids) -> Definition:
        made = replace(self, fields=tuple(fields))
        return made.with_properties({_LAST_ID: str(ids.last)}) if made.is_mapped else made

    def _with_local_timestamps(self) -> Definition:
        return self.having(NTZ) if has_local_timestamps(plain_schema(self._arrow)) else self

    @cached_property
    def _arrow(self) -> pa.Schema:
        """The columns as Arrow has them, with their metadata in the log. Kept: delta-rs converts them for each file."""
        return arrow_schema(self.fields)

    def _ids(self) -> _Ids:
        return _Ids(int(self.properties.get(_LAST_ID, "0")))


@dataclass(slots=True)
class _Ids:
    """Gives ids to columns, each once. ``last`` is the last one given."""

    last: int

    def take(self) -> int:
        """Return the next id."""
        self.last += 1
        return self.last


def fields_of(schema: pa.Schema) -> list[Field]:
    """Return the columns as in the log of a table without column mapping."""
    import deltalake

    fields: list[Field] = json.loads(deltalake.Schema.from_arrow(plain_schema(schema)).to_json())["fields"]
    return fields


def field_of(name: str, kind: pa.DataType) -> Field:
    """Return one column as in the log of a table without column mapping."""
    return fields_of(pa.schema([pa.field(name, kind)]))[0]


def arrow_schema(fields: Iterable[Field]) -> pa.Schema:
    """Return the columns as Arrow has them, each with its metadata in the log, in nested structs too."""
    import deltalake

    text = json.dumps({"type": "struct", "fields": list(fields)})
    return pa.schema(deltalake.Schema.from_json(text).to_arrow())


def _kept(field: Field, known: Field | None) -> Field:
    """Return the known field if it has the same type, whose history may be in its metadata."""
    return field if known is None or known["type"] != field["type"] else known


def _mapped(field: Field, known: Field | None, ids: _Ids, physical: Callable[[str], str]) -> Field:
    """Return a field with the id and physical name that it has, or with new ones, in nested structs too."""
    if known is None or not _is_like(field["type"], known["type"]):
        told = {ID: ids.take(), PHYSICAL_NAME: physical(field["name"])}
        # Within a struct that no file has, names need not be new.
        return {**field, "type": _mapped_type(field["type"], None, ids, lambda name: name), "metadata": told}
    return {**known, "type": _mapped_type(field["type"], known["type"], ids, physical)}


def _mapped_type(kind: Any, known: Any, ids: _Ids, physical: Callable[[str], str]) -> Any:
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        there = {} if known is None else {field["name"]: field for field in known["fields"]}
        return {**kind, "fields": [_mapped(f, there.get(f["name"]), ids, physical) for f in kind["fields"]]}
    parts = ("elementType",) if kind["type"] == "array" else ("keyType", "valueType")
    inside = {part: _mapped_type(kind[part], None if known is None else known[part], ids, physical) for part in parts}
    return {**kind, **inside}


def _is_like(kind: Any, known: Any) -> bool:
    """Whether files of the known type can be read as the other: the same, but for fields of structs."""
    if not isinstance(kind, dict) or not isinstance(known, dict):
        return bool(kind == known)
    if kind["type"] != known["type"]:
        return False
    if kind["type"] == "struct":
        there = {field["name"]: field["type"] for field in known["fields"]}
        return all(_is_like(f["type"], there.get(f["name"], f["type"])) for f in kind["fields"])
    parts = ("elementType",) if kind["type"] == "array" else ("keyType", "valueType")
    return all(_is_like(kind[part], known[part]) for part in parts)


def _stored(field: pa.Field) -> pa.Field:
    told = field.metadata or {}
    name, number = told.get(PHYSICAL_NAME.encode()), told.get(ID.encode())
    metadata = None if number is None else {b"PARQUET:field_id": number}
    return pa.field(field.name if name is None else name.decode(), _stored_type(field.type), metadata=metadata)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_stored(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_stored_type(kind.key_type), _stored_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_stored_type(kind.value_type))
    return plain_schema(pa.schema([pa.field("x", kind)])).field(0).type


def _type_changes(before: pa.DataType, after: pa.DataType, path: str = "") -> list[dict[str, str]]:
    """Return what the metadata of a column says of a wider type: of the column, or of the elements of its arrays."""
    if pa.types.is_list(before) and pa.types.is_list(after):
        return _type_changes(before.value_type, after.value_type, f"{path}.element" if path else "element")
    told = {"fromType": field_of("x", before)["type"], "toType": field_of("x", after)["type"]}
    return [{**told, "fieldPath": path} if path else told]

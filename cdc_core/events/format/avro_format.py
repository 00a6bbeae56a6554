"""Confluent's AvroConverter: Avro in the wire format of a schema registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import MISFITS, SCHEMALESS, Data, EventBatch
from cdc_core.events.envelope.json import dumps
from cdc_core.events.format.avro_binary import BYTES, anything_parts, encoded_parts, joined
from cdc_core.events.format.avro_schema import ANYTHING, AvroRules, avro_name, avro_schema, canonical
from cdc_core.events.format.format import Placed, in_line
from cdc_core.events.format.registry import Registered, Registry
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema

_STRATEGIES = {
    f"io.confluent.kafka.serializers.subject.{name}Strategy": name
    for name in ("TopicName", "RecordName", "TopicRecordName")
}
_WITHOUT_EFFECT = (
    "enhanced.avro.schema.support",
    "schemas.cache.config",
    "schemas.cache.size",
    "max.schemas.per.subject",
    "latest.compatibility.strict",
    "latest.cache.ttl.sec",
    "latest.cache.size",
)


@dataclass(slots=True)
class _Used:
    """A schema of a subject with the place of the first record that has it."""

    subject: str
    schema: Any
    id: int
    first: tuple[int, int, int]


class AvroFormat:
    """``is_key``: keys are before values in the list of schemas."""

    suffix = "_avro"
    shows_headers = False
    registers = True

    def __init__(self, settings: Settings, *, is_key: bool) -> None:
        self._side = "key" if is_key else "value"
        self._rank = 0 if is_key else 1
        self.registry = Registry(settings)
        self._rules = AvroRules(
            settings.flag("connect.meta.data", True),
            settings.flag("scrub.invalid.names", False),
            settings.flag("allow.optional.map.keys", False),
            settings.flag("discard.type.doc.default", False),
        )
        for name in _WITHOUT_EFFECT:
            settings.get(name)
        chosen = settings.text(f"{self._side}.subject.name.strategy", next(iter(_STRATEGIES)))
        settings.get(f"{'value' if is_key else 'key'}.subject.name.strategy")
        if chosen not in _STRATEGIES:
            raise ConfigError(
                f"{settings.name(f'{self._side}.subject.name.strategy')} is {chosen}, which wal2lake does not have."
            )
        self._strategy = _STRATEGIES[chosen]
        self._registers = settings.flag("auto.register.schemas", True)
        self._latest = settings.flag("use.latest.version", False)
        self._fixed_id = settings.number("use.schema.id", -1, least=-1)
        if self._registers and self._latest:
            # As Confluent's serializer, which warns.
            self._latest = False
        self._schemas: dict[str, Any] = {}
        self._used: dict[tuple[str, str], _Used] = {}

    def encode(self, data: Data, batch: EventBatch) -> pa.Array:
        """Return messages: a zero byte, the schema's id in four, and the value. Null remains null."""
        valid = data.valid
        if data.schema is None or not valid.any():
            return pa.nulls(len(data), BYTES)
        if valid.all():
            return self._messages(data, batch, np.arange(len(data)))
        rows = np.flatnonzero(valid)
        messages = self._messages(data.take(rows), batch, rows)
        place = np.zeros(len(data), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        return messages.take(pa.array(place, mask=~valid))

    def shown(self, messages: pa.Array) -> pa.Array:
        """Return base64 in JSON strings."""
        return in_line(messages)

    def last_lines(self) -> list[Placed]:
        """Return every schema that records have, with subject, version and id: by subject, then by version."""
        firsts: dict[str, tuple[int, int, int]] = {}
        for one in self._used.values():
            firsts[one.subject] = min(one.first, firsts.get(one.subject, one.first))
        found = [(firsts[one.subject], self._line(one)) for one in self._used.values()]
        return [((*place, int(line["version"])), dumps(line)) for place, line in found]

    def _line(self, used: _Used) -> dict[str, Any]:
        version = self.registry.find(used.subject, used.schema).version
        return {"subject": used.subject, "version": version, "id": used.id, "schema": used.schema}

    def _messages(self, data: Data, batch: EventBatch, rows: np.ndarray) -> pa.Array:
        own = data.connect_schema
        if own.name in MISFITS:
            raise RecordError("A value has no schema that fits it, which Avro needs.")
        is_anything = own.name == SCHEMALESS
        schema = ANYTHING if is_anything else self._schema(own)
        topics = batch.topic.take(pa.array(rows)).dictionary_encode()
        heads = []
        codes = topics.indices.to_numpy()
        # row-wise: once per topic, of which a batch has few
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            mine = rows[codes == code]
            first = mine[np.lexsort((batch.sub[mine], batch.seq[mine]))[0]]
            place = (int(batch.seq[first]), int(batch.sub[first]), self._rank)
            heads.append(b"\x00" + self._id(self._subject(topic, schema), schema, place).to_bytes(4, "big"))
        head: bytes | pa.Array = heads[0] if len(heads) == 1 else pa.array(heads, type=BYTES).take(topics.indices)
        parts = anything_parts(data) if is_anything else encoded_parts(data, self._rules)
        return joined([head, *parts], len(data))

    def _schema(self, schema: ConnectSchema) -> Any:
        key = repr(schema)
        if key not in self._schemas:
            self._schemas[key] = avro_schema(schema, self._rules)
        return self._schemas[key]

    def _subject(self, topic: str, schema: Any) -> str:
        if self._strategy == "TopicName":
            return f"{topic}-{self._side}"
        name = avro_name(schema)
        if name is None:
            raise RecordError(f"{self._strategy}Strategy needs the schema of a struct that is not optional.")
        return name if self._strategy == "RecordName" else f"{topic}-{name}"

    def _id(self, subject: str, schema: Any, place: tuple[int, int, int]) -> int:
        key = (subject, json.dumps(schema))
        used = self._used.get(key)
        if used is None:
            used = self._used[key] = _Used(subject, schema, self._known(subject, schema), place)
        used.first = min(used.first, place)
        return used.id

    def _known(self, subject: str, schema: Any) -> int:
        if self._registers:
            return self.registry.register(subject, schema)
        if self._fixed_id >= 0:
            self._must_equal(self.registry.by_id(self._fixed_id), schema, f"The schema with id {self._fixed_id}")
            return self._fixed_id
        if self._latest:
            latest: Registered = self.registry.latest(subject)
            self._must_equal(latest.schema, schema, f"The latest schema of {subject}")
            return latest.id
        return self.registry.find(subject, schema).id

    @staticmethod
    def _must_equal(found: Any, schema: Any, what: str) -> None:
        if canonical(found) != canonical(schema):
            raise RecordError(f"{what} does not have the fields and types of the events.")

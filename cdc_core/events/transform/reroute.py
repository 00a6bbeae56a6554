"""ByLogicalTableRouter: events of several tables to one topic, with the origin in the key. Also topic.regex."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import STRING, Data, EventBatch, constant
from cdc_core.events.transform.fields import is_envelope, schema_of, with_fields
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema, NameAdjustmentMode, adjust_schema_name
from cdc_core.selection import Pattern

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Identity:
    """How a topic becomes the field that distinguishes tables in the key; ``regex`` None: the topic itself."""

    field: str
    regex: Pattern | None
    replace: Callable[[str], str] | None

    def of(self, topic: str) -> str:
        if self.regex is None or self.replace is None or not self.regex.fullmatch(topic):
            return topic
        return self.replace(topic)


class ByLogicalTableRouter:
    """Renames topics that an expression matches, and the schemas of their keys and values."""

    def __init__(self, settings: Settings, *, field: str = "__dbz__physicalTableIdentifier") -> None:
        self._regex = settings.regex("topic.regex")
        self._replace = settings.replacement("topic.replacement", self._regex)
        name = settings.exact("key.field.name", field)
        regex = settings.regex("key.field.regex") if (settings.get("key.field.regex") or "").strip() else None
        if regex is not None and settings.get("key.field.replacement") is None:
            raise ConfigError(
                f"{settings.name('key.field.replacement')} is missing: {settings.name('key.field.regex')} is set."
            )
        settings.get("key.field.replacement")
        for cache in ("logical.table.cache.size", "logical.destination.cache.size"):
            settings.get(cache)
        replaced = None if regex is None else settings.replacement("key.field.replacement", regex)
        self._identity = _Identity(name, regex, replaced) if settings.flag("key.enforce.uniqueness", True) else None
        modes = [mode.value for mode in NameAdjustmentMode]
        self._mode = NameAdjustmentMode(settings.choice("schema.name.adjustment.mode", modes, "none"))
        # As in Debezium the first topic decides the name of all keys, or values, that have the same schema.
        self._schemas: dict[ConnectSchema, ConnectSchema] = {}

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Rename per topic; records of other topics remain."""
        return [self._renamed(topic, one) for topic, one in batch.by_topic()]

    def _renamed(self, old: str, batch: EventBatch) -> EventBatch:
        if not self._regex.fullmatch(old):
            return batch
        new = self._replace(old)
        if not new:
            _log.warning("The expression of ByLogicalTableRouter makes an empty topic of %s; it is not renamed.", old)
            return batch
        batch = batch.with_topics(lambda _: new)
        if batch.key.valid.any():
            batch = replace(batch, key=self._key(batch.key, old, new))
        if batch.value.valid.all() and is_envelope(batch.value):
            batch = replace(batch, value=self._value(batch.value, new))
        return batch

    def _key(self, key: Data, old: str, new: str) -> Data:
        schema = schema_of(key, "updating the key's schema")
        fields, columns = list(schema.fields), key.columns()
        if self._identity is not None:
            if not self._identity.field:
                raise RecordError("key.field.name of ByLogicalTableRouter is empty, which names no field of the key.")
            if any(name == self._identity.field for name, _ in fields):
                raise RecordError(f"The key has a field {self._identity.field} already.")
            fields.append((self._identity.field, STRING))
            columns.append(constant(self._identity.of(old), STRING, len(key)).values)
        renamed = schema.replace(name=self._name(f"{new}.Key"), fields=tuple(fields), default=None, has_default=False)
        return with_fields(self._schemas.setdefault(schema, renamed), columns, len(key))

    def _value(self, value: Data, new: str) -> Data:
        schema = schema_of(value, "updating the value's schema")
        row = dict(schema.fields)["before"].replace(name=self._name(f"{new}.Value"))
        fields = tuple((name, row if name in ("before", "after") else field) for name, field in schema.fields)
        renamed = schema.replace(name=self._name(f"{new}.Envelope"), fields=fields)
        return Data(self._schemas.setdefault(schema, renamed), value.values)

    def _name(self, name: str) -> str:
        return adjust_schema_name(name, self._mode)

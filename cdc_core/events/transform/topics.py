"""Transforms that only change topics: RegexRouter and TimestampRouter."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from cdc_core.errors import RecordError
from cdc_core.events.envelope.batch import TEXT, EventBatch
from cdc_core.events.transform.date_format import DateFormat
from cdc_core.events.transform.settings import Settings


class RegexRouter:
    """Replaces the first match of an expression in topics that it matches as a whole."""

    def __init__(self, settings: Settings) -> None:
        self._regex = settings.regex("regex")
        self._replace = settings.replacement("replacement", self._regex)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Rename topics; called once for each topic."""
        return [batch.with_topics(self.renamed)]

    def renamed(self, topic: str) -> str:
        """Return a topic's new name, or itself."""
        return self._replace(topic) if self._regex.fullmatch(topic) else topic


class TimestampRouter:
    """Adds the record's time to the topic. Debezium's records have one only after EventRouter."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.text("topic.format", "${topic}-${timestamp}")
        self._format = DateFormat(settings.text("timestamp.format", "yyyyMMdd"), settings.name("timestamp.format"))

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Rename topics; for each distinct topic and time once."""
        if batch.timestamp is None or batch.timestamp.null_count:
            raise RecordError("A record has no timestamp, which TimestampRouter needs.")
        known: dict[tuple[str, int], str] = {}
        names = []
        # row-wise: topic and time differ by record
        for topic, millis in zip(batch.topic.to_pylist(), batch.timestamp.to_pylist(), strict=True):
            if (topic, millis) not in known:
                text = self._topic.replace("${topic}", topic)
                known[topic, millis] = text.replace("${timestamp}", self._format.text(millis))
            names.append(known[topic, millis])
        return [replace(batch, topic=pa.array(names, type=TEXT))]

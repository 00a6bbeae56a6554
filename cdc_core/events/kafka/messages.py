"""Converts RECORDS to librdkafka's form: bytes of keys and values, lists of headers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from cdc_core.events.envelope.uniform import is_uniform

T = TypeVar("T")
Headers = list[tuple[str, bytes | None]]

_ROWS = 4096
# At most: the head of a batch and the numbers of its only record; the two lengths of a header.
_BATCH, _HEADER = 61 + 24, 8
NO_PARTITION = -1
NOW = 0
_decoder = json.JSONDecoder()
_KEY, _VALUE = '{"key":', ',"value":'
_NULL = '{"schema":null,"payload":null}'


# Topic, key, value, headers, partition (-1: by the key), timestamp in milliseconds since 1970 (0: now).
Sent = tuple[str, bytes | None, bytes | None, Headers, int, int]


class TopicRecords(NamedTuple):
    """Records of one topic whose headers, partitions and times are common: librdkafka takes them in one call.

    ``messages``: ``key`` and ``value`` of each; ``_error`` is added to one that librdkafka refuses.
    """

    topic: str
    messages: list[dict[str, Any]]


class RefusedRecord(NamedTuple):
    """A record that was not written, without its value.

    ``size``: of key and value in bytes; ``whole``: of a batch that contains it alone, at most some bytes more.
    """

    topic: str
    key: bytes | None
    size: int
    whole: int

    @classmethod
    def of(cls, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> RefusedRecord:
        """Return the retained fields of a record."""
        size = len(key or b"") + len(value or b"")
        return cls(
            topic, key, size, _BATCH + size + sum(len(name) + len(text or b"") + _HEADER for name, text in headers)
        )


class Messages:
    """Converts RECORDS. ``are_texts``: headers are texts as they are, not JSON.

    Headers are the same for most records, so each distinct list is read once.
    """

    def __init__(self, *, are_texts: bool = False) -> None:
        self._are_texts = are_texts

    def of(self, records: pa.Table) -> Iterator[TopicRecords | Iterator[Sent]]:
        """Yield the records in their order, some thousand at a time."""
        for batch in records.to_batches(max_chunksize=_ROWS):
            yield self._together(batch) or self._apart(batch)

    def _together(self, batch: pa.RecordBatch) -> TopicRecords | None:
        """Return the records for one call; None if they need a call each, whose cost is half as much again."""
        topics, headers = batch.column("topic"), batch.column("headers")
        if not (is_uniform(topics) and is_uniform(headers)) or self.headers(headers[0].as_py()):
            return None
        if any(batch.column(name).null_count < len(batch) for name in ("partition", "timestamp")):
            return None
        # row-wise: librdkafka takes a list
        pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        return TopicRecords(topics[0].as_py(), [{"key": key, "value": value} for key, value in pairs])

    def _apart(self, batch: pa.RecordBatch) -> Iterator[Sent]:
        # row-wise: librdkafka takes one record per call
        return zip(
            self._each(batch.column("topic"), str),
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            self._each(batch.column("headers"), self.headers),
            batch.column("partition").fill_null(NO_PARTITION).to_pylist(),
            batch.column("timestamp").fill_null(NOW).to_pylist(),
            strict=True,
        )

    @staticmethod
    def _each(texts: pa.Array, made: Callable[[str], T]) -> Iterable[T]:
        """Return the result for each text, computed once for each distinct one, of which there are few."""
        if is_uniform(texts):
            return itertools.repeat(made(texts[0].as_py()), len(texts))
        found = texts.dictionary_encode()
        # row-wise: once per topic and per distinct list of headers
        values = [made(text) for text in found.dictionary.to_pylist()]
        return map(values.__getitem__, found.indices.to_pylist())

    def headers(self, text: str) -> Headers:
        """Return the headers of a JSON list; each value is the part of the text that it is written in."""
        pairs: Headers = []
        at = 1
        while at < len(text) - 1:
            key, end = _decoder.raw_decode(text, at + len(_KEY))
            start = end + len(_VALUE)
            value, end = _decoder.raw_decode(text, start)
            pairs.append((key, self._value(text[start:end], value)))
            at = end + 2
        return pairs

    def _value(self, text: str, value: object) -> bytes | None:
        if self._are_texts:
            return None if value is None else (value if isinstance(value, str) else text).encode()
        return None if text == _NULL else text.encode()


def key_columns(key: bytes | None) -> tuple[str, ...]:
    """Return the names of a JSON key's columns, for an error text; empty if the key is not such JSON."""
    try:
        found = json.loads(key or b"")
    except ValueError:
        return ()
    if isinstance(found, dict) and isinstance(found.get("schema"), dict):
        found = found.get("payload")
    return tuple(found) if isinstance(found, dict) else ()

"""RECORDS as what librdkafka takes: bytes of keys and values, lists of headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

Headers = list[tuple[str, bytes | None]]

_ROWS = 4096
_NO_PARTITION = -1
_NOW = 0
_decoder = json.JSONDecoder()
_KEY, _VALUE = '{"key":', ',"value":'
_NULL = '{"schema":null,"payload":null}'


class Message(NamedTuple):
    """One record. ``partition`` -1: by the key; ``timestamp`` in milliseconds since 1970, 0: now."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int
    timestamp: int


class Messages:
    """Converts RECORDS. ``are_texts``: headers are texts as they are, not JSON.

    Headers are the same for most records, so each distinct list is read once.
    """

    def __init__(self, *, are_texts: bool = False) -> None:
        self._are_texts = are_texts

    def of(self, records: pa.Table) -> Iterator[Message]:
        """Yield the records in their order."""
        for batch in records.to_batches(max_chunksize=_ROWS):
            topics = batch.column("topic").dictionary_encode()
            headers = batch.column("headers").dictionary_encode()
            # row-wise: once per topic and per distinct list of headers
            names = topics.dictionary.to_pylist()
            lists = [self.headers(text) for text in headers.dictionary.to_pylist()]
            # row-wise: librdkafka takes one record per call
            yield from map(
                Message,
                map(names.__getitem__, topics.indices.to_pylist()),
                batch.column("key").to_pylist(),
                batch.column("value").to_pylist(),
                map(lists.__getitem__, headers.indices.to_pylist()),
                batch.column("partition").fill_null(_NO_PARTITION).to_pylist(),
                batch.column("timestamp").fill_null(_NOW).to_pylist(),
            )

    def headers(self, text: str) -> Headers:
        """Return the headers of a JSON list; each value is the part of the text that it is written in."""
        found: Headers = []
        at = 1
        while at < len(text) - 1:
            key, end = _decoder.raw_decode(text, at + len(_KEY))
            start = end + len(_VALUE)
            value, end = _decoder.raw_decode(text, start)
            found.append((key, self._value(text[start:end], value)))
            at = end + 2
        return found

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

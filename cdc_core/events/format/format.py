"""What all formats have in common."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from cdc_core.events.envelope.batch import Data, EventBatch
from cdc_core.events.envelope.json import base64_texts, quoted

# (seq, sub, 0 for a key or 1 for a value, version), and a line
Placed = tuple[tuple[int, int, int, int], str]


class Format(Protocol):
    """A converter. ``suffix`` is added to ``key`` or ``value`` in lines; ``shows_headers``: lines have headers.

    ``registers``: a registry numbers the schemas of records in the order of the requests.
    """

    suffix: str
    shows_headers: bool
    registers: bool

    def encode(self, data: Data, batch: EventBatch) -> pa.Array:
        """Return every record's message key or value.

        Shape:  ``data`` of N rows, the key or value of ``batch`` → large_string[N] (UTF-8) or large_binary[N].

        Nulls:  null where Kafka's key or value is null.

        Raises RecordError if a value cannot be written.
        """

    def shown(self, encoded: pa.Array) -> pa.Array:
        """Return the JSON text that represents encoded values in a line."""

    def last_lines(self) -> list[Placed]:
        """Return lines to write at the end of a run, each with the place of the record that it is needed for."""


def in_line(encoded: pa.Array) -> pa.Array:
    """Return texts as JSON strings, and bytes as base64 in JSON strings."""
    return base64_texts(encoded) if pa.types.is_large_binary(encoded.type) else quoted(encoded)

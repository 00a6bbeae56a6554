"""Rows of two sides that are compared: those with one hash are in one part, which is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.delta.conform import conform
from cdc_core.lake.names import helper
from cdc_core.lake.rows.buckets import Buckets
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.key_hash import row_hashes

PART_BYTES = 64 << 20
_IS_NEW = helper("__is_new")


class PairedParts:
    """Old and new rows, in columns of ``schema``. Those of more than ``most_bytes`` are in files of a ``folder``."""

    def __init__(self, folder: Callable[[], Path], schema: pa.Schema, most_bytes: int) -> None:
        self._folder, self.schema, self.most_bytes = folder, schema, most_bytes
        self._held: list[tuple[pa.Table, Sequence[pa.Array]]] = []
        self._octets = 0
        self._buckets: Buckets | None = None

    def add(self, rows: pa.Table, by: Sequence[pa.Array], *, is_new: bool) -> None:
        """Add rows, with the values by which they are compared. Shape: table[N], array[N] each"""
        if not rows.num_rows:
            return
        rows = conform(rows, self.schema).append_column(_IS_NEW, pa.repeat(is_new, rows.num_rows))
        self._octets += rows.nbytes
        self._held.append((rows, by))
        if self._buckets is None and self._octets <= self.most_bytes:
            return
        self._buckets = self._buckets or Buckets(self._folder() / "parts", self.most_bytes)
        for held_rows, values in self._held:
            self._buckets.add(held_rows, row_hashes(values))
        self._held = []

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the parts: old rows, new rows."""
        for part in self._parts():
            is_new = column(part, _IS_NEW)
            rows = part.drop_columns([_IS_NEW])
            yield rows.filter(pc.invert(is_new)), rows.filter(is_new)

    def _parts(self) -> Iterator[pa.Table]:
        if self._buckets is not None:
            yield from (part.rows for part in self._buckets.parts())
            self._buckets.close()
        elif self._held:
            yield pa.concat_tables([rows for rows, _ in self._held]).combine_chunks()

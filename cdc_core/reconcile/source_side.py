"""The source's side of a comparison: its rows under one snapshot, in ranges, at a bounded rate."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.decode import LineCutter, decode_copy
from cdc_core.lake import Compared, RowHash, RowTyper, key_texts
from cdc_core.lake.compare.row_hash import parsed
from cdc_core.lake.compare.rows import is_among
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.postgres import SnapshotReader
from cdc_core.reconcile.amounts import ComparedAmounts
from cdc_core.reconcile.read_plan import Reading, has_texts

_MOST_SLEEP = 1.0
_MOST_KEYS = 10_000


class ReadPace:
    """Bounds the rows that are read in a second. ``rows_per_second`` is 0 for no limit. For one thread."""

    def __init__(self, rows_per_second: int) -> None:
        self.rows_per_second = rows_per_second
        self._free_at = time.monotonic()

    def spend(self, rows: int) -> None:
        """Wait until so many rows may have been read."""
        if not self.rows_per_second:
            return
        self._free_at = max(self._free_at, time.monotonic() - _MOST_SLEEP) + rows / self.rows_per_second
        while (left := self._free_at - time.monotonic()) > 0:
            time.sleep(min(left, _MOST_SLEEP))


@dataclass(slots=True)
class Cost:
    """The amount read from the source: rows, and bytes of COPY text."""

    rows: int = 0
    octets: int = 0


class SourceSide:
    """Reads a table's rows as ``reading`` says, under the reader's snapshot.

    ``lsn`` and ``taken_us`` are the snapshot's position and time. ``hashing``: the server computes the digests of rows,
    None if the rows are read for them. Raises SourceError or TransientError.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        typer: RowTyper,
        compared: Compared,
        reading: Reading,
        lsn: int,
        taken_us: int,
        pace: ReadPace,
        hashing: RowHash | None = None,
    ) -> None:
        self._reader = reader
        self._typer = typer
        self._amounts = ComparedAmounts.of(typer)
        self._compared = compared
        self._reading = reading
        self._selects = reading.ranges
        self._at = (lsn, taken_us)
        self._pace = pace
        self._hashing = hashing
        self._digests: list[np.ndarray] = []
        self.cost = Cost()

    def digests(self) -> np.ndarray:
        """Return the digest of each row. Shape: uint64[N]"""
        none = np.zeros(0, dtype=np.uint64)
        self._digests = []
        for select in self._selects:
            self._digests.append(np.concatenate([none, *self._digests_of(select)]))
        return np.concatenate([none, *self._digests])

    def rows(self, unlike: np.ndarray) -> pa.Table:
        """Return the rows whose digest is among ``unlike`` (sorted), by reading their ranges again."""
        parts = [self._compared.schema.empty_table()]
        for select, digests in zip(self._selects, self._digests, strict=True):
            mine = np.unique(digests[is_among(digests, unlike)])
            if len(mine) and self._hashing is not None:
                parts += self._rows(self._hashing.select_rows(select, self._reading.columns, mine))
            elif len(mine):
                for rows in self._rows(select):
                    hits = is_among(self._compared.digests(rows), unlike)
                    parts += [rows.filter(pa.array(hits))] if hits.any() else []
        return pa.concat_tables(parts).combine_chunks()

    def ranges(self, selects: Sequence[str]) -> pa.Table:
        """Return all rows that some statements read."""
        parts = [rows for select in selects for rows in self._rows(select)]
        return pa.concat_tables([self._compared.schema.empty_table(), *parts]).combine_chunks()

    def of_keys(self, keys: pa.Table) -> pa.Table:
        """Return the rows with the keys, whose columns are ``KeyColumns.read``: few by their values, many by a scan."""
        key = self._compared.key
        assert key is not None
        if not keys.num_rows:
            return self._compared.schema.empty_table()
        index, _ = KeyIndex.of(key, keys)
        selects = self._reading.of_keys(key_texts(keys, key)) if self._can_seek(keys) else self._selects
        parts = [self._compared.schema.empty_table()]
        for select in selects:
            for rows in self._rows(select):
                mine = index.match(rows.select(key.read).combine_chunks()) >= 0
                parts += [rows.filter(pa.array(mine))] if mine.any() else []
        return pa.concat_tables(parts).combine_chunks()

    def _digests_of(self, select: str) -> Iterator[np.ndarray]:
        if self._hashing is None:
            yield from (self._compared.digests(rows) for rows in self._rows(select))
            return
        lines = b"".join(self._reader.copy(self._hashing.select(select), table=self._typer.table.id))
        found = parsed(lines)
        self.cost.rows += len(found)
        self.cost.octets += len(lines)
        self._pace.spend(len(found))
        yield found

    def _can_seek(self, keys: pa.Table) -> bool:
        key = self._compared.key
        assert key is not None
        return keys.num_rows <= _MOST_KEYS and has_texts(self._typer, self._compared)

    def _rows(self, select: str) -> Iterator[pa.Table]:
        table, cutter = self._typer.table.id, LineCutter()
        for lines in map(cutter.feed, self._reader.copy(self._amounts.select(select), table=table)):
            if lines:
                rows = typed(self._amounts.typer, lines, *self._at)
                self.cost.rows += rows.num_rows
                self.cost.octets += len(lines)
                yield self._compared.conformed(rows)
                self._pace.spend(rows.num_rows)
        cutter.finish(str(table))


def typed(typer: RowTyper, lines: bytes, lsn: int, taken_us: int) -> pa.Table:
    """Return rows, read as lines of COPY text in the columns that the typer reads, as lake rows."""
    if not lines:
        return typer.read_schema.empty_table()
    columns = decode_copy(lines, typer.read_columns, str(typer.table.id))
    return pa.Table.from_batches([typer.reads(columns, lsn, taken_us)])

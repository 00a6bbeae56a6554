"""The source's side of a comparison: its rows under one snapshot, in ranges, typed as the lake's are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.decode import LineCutter, decode_copy
from cdc_core.lake.compare.amounts import ComparedAmounts
from cdc_core.lake.compare.between import ShownBySource
from cdc_core.lake.compare.key_texts import key_texts
from cdc_core.lake.compare.row_hash import RowHash, parsed
from cdc_core.lake.compare.rows import KeyedColumns, is_among
from cdc_core.lake.compare.target import Target
from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.schema import Key

_MOST_KEYS = 10_000


class Statements(Protocol):
    """The SELECTs of ``columns`` of a table: all rows in ``ranges``, or those with given keys.

    ``can_hash``: the rows of a range are so few that the server can return their hashes as one value.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, as ``Target.columns``."""

    @property
    def ranges(self) -> tuple[str, ...]:
        """The statements that read all rows."""

    @property
    def can_hash(self) -> bool:
        """Whether the server may hash the rows of each range."""

    def of_keys(self, keys: Sequence[Key]) -> list[str]:
        """Return the statements for the rows with the keys."""


@dataclass(frozen=True, slots=True)
class SourceRead:
    """How a table's rows are read under a snapshot that was taken at ``taken_us``, and shows what ``shown`` says.

    ``copy`` returns the rows of a SELECT as chunks of whole lines of COPY text, or raises SourceError or
    TransientError. ``spend`` is called with the number of rows that were read, and may wait.
    """

    statements: Statements
    copy: Callable[[str], Iterable[bytes]]
    shown: ShownBySource
    taken_us: int
    spend: Callable[[int], None]


class SourceSide:
    """Reads the source's rows of a table. ``hashing``: the server computes the digests of rows, None: they are read.

    ``octets``: the bytes of COPY text that were read. Raises SourceError or TransientError.
    """

    def __init__(self, target: Target, read: SourceRead, hashing: RowHash | None = None) -> None:
        self._target = target
        self._compared = target.compared
        self._amounts = ComparedAmounts.of(target.typer)
        self._read = read
        self._selects = read.statements.ranges
        self._hashing = hashing
        self._digests: list[np.ndarray] = []
        self.octets = 0

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
                parts += self._rows(self._hashing.select_rows(select, self._read.statements.columns, mine))
            elif len(mine):
                for rows in self._rows(select):
                    hits = is_among(self._compared.digests(rows), unlike)
                    parts += [rows.filter(pa.array(hits))] if hits.any() else []
        return pa.concat_tables(parts).combine_chunks()

    def ranges(self, selects: Sequence[str]) -> pa.Table:
        """Return all rows that some statements read."""
        parts = [rows for select in selects for rows in self._rows(select)]
        return pa.concat_tables([self._compared.schema.empty_table(), *parts]).combine_chunks()

    def of_keys(self, keys: pa.Table, compared: KeyedColumns) -> pa.Table:
        """Return the rows with the keys: few by their values, many by a scan."""
        key = compared.key
        if not keys.num_rows:
            return self._compared.schema.empty_table()
        index, _ = KeyIndex.of(key, keys)
        can_seek = keys.num_rows <= _MOST_KEYS and self._target.has_key_texts
        selects = self._read.statements.of_keys(key_texts(keys, key)) if can_seek else self._selects
        parts = [self._compared.schema.empty_table()]
        for select in selects:
            for rows in self._rows(select):
                mine = index.match(compared.keys_of(rows)) >= 0
                parts += [rows.filter(pa.array(mine))] if mine.any() else []
        return pa.concat_tables(parts).combine_chunks()

    def _digests_of(self, select: str) -> Iterator[np.ndarray]:
        if self._hashing is None:
            yield from (self._compared.digests(rows) for rows in self._rows(select))
            return
        lines = b"".join(self._read.copy(self._hashing.select(select)))
        hashes = parsed(lines)
        self.octets += len(lines)
        self._read.spend(len(hashes))
        yield hashes

    def _rows(self, select: str) -> Iterator[pa.Table]:
        cutter, at = LineCutter(), (int(self._read.shown.lsn), self._read.taken_us)
        for lines in map(cutter.feed, self._read.copy(self._amounts.select(select))):
            if lines:
                rows = typed(self._amounts.typer, lines, *at)
                self.octets += len(lines)
                yield self._compared.conformed(rows)
                self._read.spend(rows.num_rows)
        cutter.finish(str(self._target.table.id))


def typed(typer: RowTyper, lines: bytes, lsn: int, taken_us: int) -> pa.Table:
    """Return rows, read as lines of COPY text in the columns that the typer reads, as lake rows."""
    if not lines:
        return typer.read_schema.empty_table()
    columns = decode_copy(lines, typer.read_columns, str(typer.table.id))
    return pa.Table.from_batches([typer.reads(columns, lsn, taken_us)])

"""How changed rows leave their data files: the files are rewritten, or the rows are marked in deletion vectors.

    copy-on-write   a file with a changed row is read whole and written again without it; costs what the files cost
    merge on read   the row's position is marked, and only the row's new state is written; costs what the changes cost

Which of them a slice takes follows from the size of the files that have a changed row. The smallest tables are
rewritten: that costs little, readers need no support for deletion vectors, and the files stay few. Of other tables a
small file is rewritten when it has many marks: its other rows are written with the new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Ints
from cdc_core.lake.delta.candidates import Content
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.index.key_positions import Hits
from cdc_core.lake.rows.row_keys import KeyIndex

MARK_BYTES = 8 << 10
"""Touched files above which rows are marked. A rewritten file is on disk for the history at least: 450 rounds with 7
updates leave 16 MB of data of a table of 34 KiB if it is rewritten, and 2 MB if rows are marked, for 7 and 8 CPU ms a
round (``benchmarks/micro/bench_bytes.py``). Rows of files larger than this are found by the index of keys; of smaller
ones the files are read, since they are rewritten."""


class Positions(Protocol):
    """Finds rows by their keys (``lake/index``)."""

    def locate(self, lake: Content, files: Sequence[DataFile], keys: KeyIndex, seconds: float = math.inf) -> list[Hits]:
        """Return the rows with wanted keys, one item for each file that has any, in the order of files.

        Raises IndexesMissingError if indexes are missing that take longer than ``seconds`` to make.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ways:
    """What may be done. ``mark_above``: bytes of touched files above which rows are marked; None if they may not be.

    ``positions``: used where the files that may have a changed row are larger than MARK_BYTES; None to read keys.
    ``moved``: returns the paths of files whose other rows are written with the new ones, instead of marking some.
    ``index_seconds``: how long a slice may take to make indexes; then ``locate`` raises IndexesMissingError.
    ``most_rows``: of those that keep values of rows at other keys, how many are made at a time, where rows are marked
    in any case; None for all.
    """

    mark_above: int | None = None
    positions: Positions | None = None
    index_seconds: float = math.inf
    moved: Callable[[Sequence[MarkedRows]], Collection[str]] | None = None
    most_rows: int | None = None

    def marks(self, touched: Sequence[DataFile]) -> bool:
        """Whether rows of these files are marked."""
        return self.mark_above is not None and sum(file.size for file in touched) > self.mark_above

    def locate(self, content: Content, files: Sequence[DataFile], keys: KeyIndex) -> list[Hits]:
        """Return the rows of files that have wanted keys; see ``Positions``."""
        if self.positions is not None and uses_index(files):
            return self.positions.locate(content, files, keys, self.index_seconds)
        return _scanned(content, files, keys)


REWRITE = Ways()


def uses_index(files: Sequence[DataFile]) -> bool:
    """Whether rows of these files are found by an index of their keys."""
    return sum(file.size for file in files) > MARK_BYTES


def live_places(content: Content, file: DataFile, at: np.ndarray) -> Ints:
    """Return positions in a file of rows given by their number among its live rows. Shape: int64[P] -> int64[P]"""
    live = content.live(file)
    return at if live is None else np.flatnonzero(live)[at]


def among_live(content: Content, file: DataFile, places: np.ndarray) -> np.ndarray:
    """Return the numbers among its live rows of rows given by their positions in a file, the reverse of the former."""
    live = content.live(file)
    return places if live is None else np.cumsum(live)[places] - 1


def _scanned(content: Content, files: Sequence[DataFile], keys: KeyIndex) -> list[Hits]:
    """Find keys by reading the key columns."""
    waiting: list[tuple[DataFile, pa.Table]] = []
    rows, hits = 0, list[Hits]()
    for number, file in enumerate(files):
        waiting.append((file, content.read(file, keys.columns.read)))
        rows += waiting[-1][1].num_rows
        # A lookup builds a hash table of the slice's keys each time, so small files are looked up together.
        if rows >= len(keys.values[0]) or number == len(files) - 1:
            codes = keys.match(pa.concat_tables([key_rows for _, key_rows in waiting]))
            ends = np.cumsum([key_rows.num_rows for _, key_rows in waiting])
            for (waiting_file, _), mine in zip(waiting, np.split(codes, ends[:-1]), strict=True):
                at = np.flatnonzero(mine >= 0)
                if len(at):
                    hits.append(Hits(waiting_file, live_places(content, waiting_file, at), mine[at]))
            waiting, rows = [], 0
    return hits

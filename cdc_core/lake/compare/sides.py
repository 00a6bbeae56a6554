"""Both sides of a table with the digests of all of their rows, and the rows of a sample of both."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.lake.compare.lake_side import LakeSide
from cdc_core.lake.compare.rows import KeyedColumns, is_among
from cdc_core.lake.compare.source_side import SourceSide
from cdc_core.lake.rows.row_keys import KeyIndex


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a table with the digests of their rows: ``held`` of the lake, ``expected`` of the source."""

    lake: LakeSide
    source: SourceSide
    held: np.ndarray
    expected: np.ndarray

    @classmethod
    def read(cls, lake: LakeSide, source: SourceSide) -> Sides:
        """Read both at the same time."""
        with ConnectorThreadPool(1, thread_name_prefix="lake-side") as pool:
            held = pool.submit(lake.digests)
            expected = source.digests()
            return cls(lake, source, held.result(), expected)

    def after_truncates(self, is_cut: bool, is_emptied: bool) -> Sides:
        """Return the sides without the rows of a source that is ``is_cut``, and of a lake that is ``is_emptied``."""
        none = self.held[:0]
        return replace(self, held=none if is_emptied else self.held, expected=none if is_cut else self.expected)

    def source_rows(self, digests: np.ndarray) -> pa.Table:
        """Return the source's rows that have one of some sorted digests."""
        is_any = is_among(self.expected, digests).any()
        return self.source.rows(digests) if is_any else self.lake.compared.schema.empty_table()

    def lake_rows(self, digests: np.ndarray) -> pa.Table:
        """Return the lake's rows that have one of some sorted digests."""
        is_any = is_among(self.held, digests).any()
        return self.lake.rows(digests) if is_any else self.lake.compared.schema.empty_table()


def sampled_rows(
    compared: KeyedColumns,
    source: SourceSide,
    lake: LakeSide,
    selects: tuple[str, ...],
    count: int,
    rows: int,
    seed: int,
) -> tuple[pa.Table, pa.Table]:
    """Return the rows of both sides with the keys of a sample of each: ``count`` ranges of the source and of the lake.

    ``selects`` read ranges of about ``rows`` rows.
    """
    chance = random.Random(seed)
    mine = source.ranges(chance.sample(selects, min(count, len(selects))))
    theirs = lake.sample(count, rows, chance)
    keys, others = compared.keys_of(mine), compared.keys_of(theirs)
    if keys.num_rows:
        others = others.filter(pa.array(KeyIndex.of(compared.key, keys)[0].match(others) < 0))
    others = compared.distinct(others)
    if others.num_rows:
        mine = pa.concat_tables([mine, source.of_keys(others, compared)]).combine_chunks()
    return mine, lake.of_keys(pa.concat_tables([keys, others]).combine_chunks(), compared)

"""Compares a part of a table: the keys that changed since a moment, or a random sample of both sides."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cdc_core.lake import LakeSide, Since, Target
from cdc_core.lake.compare.changed_keys import distinct
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.reconcile.read_plan import SAMPLE_ROWS
from cdc_core.reconcile.source_side import SourceSide
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """Which rows are compared: all, those that changed after ``since`` (by table), or a ``sample`` of so many ranges.

    ``seed`` decides which ranges. ``is_since``: a table that ``since`` does not contain is compared as a whole.
    """

    since: Mapping[TableId, Since] = field(default_factory=dict)
    sample: int | None = None
    seed: int = 0
    is_since: bool = False

    @property
    def kind(self) -> str:
        """How the results call it."""
        return "sample" if self.sample is not None else "since" if self.since or self.is_since else "all"


def sampled_rows(
    target: Target, source: SourceSide, lake: LakeSide, selects: Sequence[str], count: int, seed: int
) -> tuple[pa.Table, pa.Table]:
    """Return the rows of both sides with the keys of a sample of each: ``count`` ranges of the source and of the lake.

    ``selects`` read ranges of about SAMPLE_ROWS rows.
    """
    chance, compared = random.Random(seed), target.compared
    assert compared.key is not None
    mine = source.ranges(chance.sample(selects, min(count, len(selects))))
    theirs = lake.sample(count, SAMPLE_ROWS, chance)
    keys = mine.select(compared.key.read).combine_chunks()
    others = theirs.select(compared.key.read).combine_chunks()
    if keys.num_rows:
        others = others.filter(pa.array(KeyIndex.of(compared.key, keys)[0].match(others) < 0))
    others = distinct(others, compared)
    if others.num_rows:
        mine = pa.concat_tables([mine, source.of_keys(others)]).combine_chunks()
    return mine, lake.of_keys(pa.concat_tables([keys, others]).combine_chunks())

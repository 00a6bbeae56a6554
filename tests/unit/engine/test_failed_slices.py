"""A slice that fails as a whole, or cannot be judged: nothing of it is merged, in one part or in many."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.engine.round.outcomes import refused
from cdc_core.errors import NotJudgedError, SliceFailedError
from cdc_core.lake.slice.order import Replay
from cdc_core.quality.options import QualityOptions
from cdc_core.quality.rule_files import read_rule_files
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.one_table import OneTable
from tests.support.spark import change, row_type

KEYED = TableSchema(
    TableId("shop", "item"),
    7,
    (Column("id", PgType(23, "int4"), optional=False), Column("n", PgType(23, "int4"))),
    primary_key=("id",),
)
ROW = row_type(id=pa.int32(), n=pa.int32())
MEAN = {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "n", "min_value": 10_000}}
RAISES = {"type": "expect_column_values_to_be_dateutil_parseable", "kwargs": {"column": "n"}}
# Refused as a row, if the slice as a whole may be merged.
LIMIT = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 90}}


def table(folder, *expectations):
    made = OneTable(folder, KEYED, ROW)
    made.quality = QualityOptions()
    suite = folder / "rules/gx/expectations/shop/item.json"
    suite.parent.mkdir(parents=True)
    suite.write_text(json.dumps({"expectations": expectations}))
    made.files = read_rule_files(str(folder / "rules"))
    made.snapshot(1, [])
    rows = [change("c", 8 + n, 0, after={"id": n, "n": n}) for n in range(100)]
    made.append([*rows, change("u", 108, 0, None, {"id": 5, "n": 6})], 108)
    return made


def stopped(one):
    """The outcome of a merge that is refused; ``OneTable.merge`` raises its error."""
    return one.task(one.order(108, 1))


@pytest.mark.slow
@pytest.mark.parametrize("part_bytes", [1 << 30, 2_000], ids=["whole", "parts"])
def test_a_slice_that_fails_as_a_whole_is_not_merged_until_it_is_accepted(tmp_path, part_bytes):
    one = table(tmp_path, MEAN, LIMIT)
    one.writer = replace(one.writer, part_max_bytes=part_bytes)
    outcome = stopped(one)
    assert isinstance(outcome.error, SliceFailedError) and outcome.applied is None
    assert "--accept mean_to_be_between:n" in outcome.error.remedy
    assert one.rows == [] and not Path(one.paths.quarantine(KEYED.id)).exists()
    (judged,) = refused([outcome], [])
    failed = {rule.name: rule for rule in judged.rules if not rule.success}
    assert {"user:mean_to_be_between:n"} <= failed.keys() and not judged.success
    assert failed["user:mean_to_be_between:n"].observed
    done = one.merge(108, 1, replay=Replay(accept=("mean_to_be_between:n",)))
    assert done.done.quarantined is not None and done.done.quarantined.waiting == 9
    assert len(one.rows) == 91


@pytest.mark.slow
@pytest.mark.parametrize("part_bytes", [1 << 30, 2_000], ids=["whole", "parts"])
def test_a_slice_that_cannot_be_judged_is_not_merged(tmp_path, part_bytes):
    one = table(tmp_path, RAISES)
    one.writer = replace(one.writer, part_max_bytes=part_bytes)
    outcome = stopped(one)
    assert isinstance(outcome.error, NotJudgedError) and outcome.applied is None
    assert one.rows == []
    (judged,) = refused([outcome], [])
    assert not judged.success and "could not be evaluated" in judged.rules[0].description

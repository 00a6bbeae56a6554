"""Spark's MERGE of changes whose row is not in the lake table is not made, in each delete mode and without a key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest

from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.options import MergeEngine
from tests.support.damaged import KEYED, KEYLESS, append, every_change, filled, refused, row
from tests.support.spark import change

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("mode", DeleteMode)
def test_changes_of_rows_that_others_removed(spark: Any, tmp_path: Path, mode: DeleteMode) -> None:
    one = filled(tmp_path, mode, KEYED, range(1, 30))
    one.engine = MergeEngine.SPARK
    append(one, every_change(10, 1), 10)
    assert one.merge(10, token=1, spark=spark).applied is not None
    lake = deltalake.DeltaTable(one.lake)
    lake.delete("id between 11 and 15")
    lake.update({"id": "id + 1000"}, predicate="id between 21 and 25")
    append(one, [*every_change(20, 6), *every_change(30, 11), *every_change(40, 21)], 40)
    for most in (1 << 30, 100):  # whole, and in parts
        one.writer = replace(one.writer, part_max_bytes=most)
        error = refused(one, 40, spark=spark)
        assert (error.count, error.lsn, error.table) == (10, 30, "public.t")


def test_changes_of_a_table_without_a_key(spark: Any, tmp_path: Path) -> None:
    one = filled(tmp_path, DeleteMode.HARD, KEYLESS, [1, 1, 1, 2, 3, 4])
    one.engine = MergeEngine.SPARK
    append(one, [change("d", 10, 0, row(1)), change("u", 10, 1, row(2), row(2, "new"))], 10)
    assert one.merge(10, token=1, spark=spark).applied is not None
    deltalake.DeltaTable(one.lake).delete("id in (1, 3)")
    changes = [change("d", 20, 0, row(1)), change("d", 20, 1, row(1)), change("u", 30, 0, row(3), row(3, "new"))]
    append(one, [*changes, change("d", 30, 1, row(4))], 30)
    error = refused(one, 30, spark=spark)
    assert (error.count, error.lsn) == (3, 20)

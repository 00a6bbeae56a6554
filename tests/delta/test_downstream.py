"""The job of docs/downstream.md that follows a lake table by its change data feed, and what the page says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.schema.features import FeaturePolicy
from tests.delta.source_model import ROW, TABLE, SourceTable, plain
from tests.support.one_table import OneTable
from tests.support.spark import lake_rows
from tests.support.waits import patient

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "downstream.md"


def test_a_table_that_merges_the_feed_equals_the_source(spark: Any, tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert "readStream" in code and '["id"]' in code
    code = code.replace('["id"]', '["h", "k"]')
    side, source = OneTable(tmp_path, TABLE, ROW), SourceTable(3, histories=20)
    side.tables = type(side.tables)(1, FeaturePolicy(fed=(".*",)))
    source.next_transaction(80)
    side.snapshot(1, source.snapshot())
    target = str(tmp_path / "target")
    lake = DeltaTable.open(side.lake)
    assert lake is not None
    DeltaTable.create(target, lake.schema, {})
    FeaturePolicy(fed=(".*",)).enable_missing(lake, TABLE)
    for turn in range(3):
        if turn:
            for _ in range(2):
                side.append(source.next_transaction(30), source.lsn)
                side.merge(source.lsn, token=1)
            lake.refresh()
            compact(lake, 2)
        names = {"spark": spark, "source": side.lake, "target": target, "checkpoint": str(tmp_path / "checkpoint")}
        exec(compile(code, PAGE.name, "exec"), names)
        assert names["query"].awaitTermination(patient(120))  # type: ignore[attr-defined]
        assert plain(lake_rows(target)) == plain(source.rows) != []
    assert pa.table(spark.read.format("delta").load(target).toArrow()).num_rows == len(source.rows)

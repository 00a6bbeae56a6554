"""A slice that was staged for Spark, and another writer that changes the lake table first: a task of a killed run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_core.engine.slice.by_spark import SparkMerge
from cdc_core.errors import TransientError
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.options import MergeEngine
from tests.delta.source_model import KEYLESS, ROW, TABLE, SourceTable
from tests.support.one_table import SLOT, OneTable


@pytest.mark.parametrize("kind", ["keyless", *DeleteMode])
@pytest.mark.parametrize("how", ["merged in part", "read anew"])
def test_it_is_left_to_the_next_round(tmp_path: Path, kind: str, how: str) -> None:
    """Spark's MERGE would merge again what the table has: with two rows for one, or a version for each."""
    source = SourceTable(20261126, histories=6, keyless=kind == "keyless")
    table, mode = (KEYLESS, DeleteMode.HARD) if kind == "keyless" else (TABLE, DeleteMode(kind))
    folders = (("a", MergeEngine.SPARK), ("a", MergeEngine.ARROW), ("b", MergeEngine.ARROW))
    staging, other, whole = (OneTable(tmp_path / folder, table, ROW, engine) for folder, engine in folders)
    for one in (staging, other, whole):
        one.tables = replace(one.tables, modes=DeleteModes(mode, ()))

    def transaction(statements: int, only_inserts: bool = False) -> int:
        rows = [{**row, "__lsn": row["__commit_lsn"]} for row in source.next_transaction(statements, only_inserts)]
        for one in (staging, whole):
            one.append(rows, source.lsn)
        return source.lsn

    first = transaction(60, only_inserts=True)
    for one in (other, whole):
        one.merge(first)
    part, end = transaction(40), transaction(40)
    staged = staging.task(staging.order(end)).staged
    assert staged is not None and (staged.merged, staged.to_lsn) == (first, end)
    if how == "merged in part":
        other.merge(part)
    else:
        other.snapshot(7, source.snapshot(), lsn=end)
    before = other.contents()
    target = SparkMerge(staging.lake, SLOT, table.id, 0, staging.writer.owner, staging.writer.features)
    no_spark: Any = None
    with pytest.raises(TransientError, match=f"Another writer changed the lake table of {table.id}"):
        target.merge(no_spark, staged)
    with pytest.raises(TransientError, match=f"Another writer changed the lake table of {table.id}"):
        target.write_chunks(no_spark, replace(staged, to_lsn=first))  # as if these were rows of a snapshot
    assert other.contents() == before
    if how == "merged in part":
        other.merge(end)
        whole.merge(end)
        # Which of several equal rows is left, a multiset does not say.
        positions = ("__commit_lsn", "__tx_index", "__commit_ts") if kind == "keyless" else ()
        assert other.contents(*positions) == whole.contents(*positions)

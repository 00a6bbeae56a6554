"""Merge on read, its indexes and its compaction, killed at each durable step: real processes, no Spark, no server.

The engine's own task merges in a process of its own, which is killed at a failpoint. What is there then must be the
source as of one of the two positions, and the next process must go on from it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from cdc_core import failpoints
from cdc_core.lake.apply import ways
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance import compaction
from cdc_core.lake.schema.features import FeaturePolicy
from cdc_core.lake.slice.upkeep import UpkeepOrder, UpkeepTask
from cdc_core.lake.write.maintain import Retention, maintain
from tests.delta.source_model import ROW, TABLE, SourceTable, plain
from tests.delta.test_change_feed import assert_difference, deltalake_feed
from tests.support.one_table import OneTable
from tests.support.waits import patient

STEPS = (
    f"{failpoints.DURING_INDEX}:1",
    f"{failpoints.DURING_INDEX}:2",
    failpoints.DURING_ROW_COPY,
    failpoints.AFTER_CHANGES,
    failpoints.AFTER_VECTORS,
    failpoints.DURING_MERGE,
    failpoints.AFTER_APPLY,
    failpoints.DURING_COMPACTION,
    failpoints.AFTER_COMPACTION,
)
ROUNDS = 30


def merger(folder: Path) -> OneTable:
    one = OneTable(folder, TABLE, ROW)
    one.mark_rows()
    one.writer = replace(one.writer, index=str(folder / "index"))
    one.tables = replace(one.tables, features=FeaturePolicy(fed=(".*",)))
    return one


def merged(folder: str, to: int, step: str) -> None:
    """A run's part: merge up to an LSN, then what is due beside the rounds."""
    if step:
        os.environ["WAL2LAKE_FAILPOINT"] = step
    # Every search is by the index, and every pass of compaction beside the rounds, also of small files.
    ways.MARK_BYTES = 0
    compaction._AT_ONCE_BYTES = compaction._WORN_BYTES = 0
    one = merger(Path(folder))
    outcome = one.merge(to, token=1)
    task = UpkeepTask(one.run, one.writer.index, one.writer.index_max_bytes)
    for order in outcome.upkeep:
        while task(order).has_more:
            pass


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    yield context


def run(processes: ForkServerContext, *given: Any) -> int | None:
    process = processes.Process(target=merged, args=given)
    process.start()
    process.join(patient(120))
    return process.exitcode


@pytest.mark.slow
def test_killed_at_every_step_the_table_is_the_source_as_of_a_commit(
    tmp_path: Path, processes: ForkServerContext
) -> None:
    source, one = SourceTable(11, 150), merger(tmp_path)
    source.next_transaction(500, only_inserts=True)
    one.snapshot(1, source.snapshot())
    steps = list(STEPS)
    for _ in range(ROUNDS):
        before = plain(source.rows)
        rows = source.next_transaction(60)
        one.append(rows, source.lsn)
        step = steps[0] if steps else ""
        code = run(processes, str(tmp_path), source.lsn, step)
        assert code in (0, -signal.SIGKILL), code
        stands = one.lake_position.lsn
        assert plain(one.rows) == (plain(source.rows) if stands == source.lsn else before)
        if code:
            steps.pop(0)
            assert not step.startswith(failpoints.DURING_MERGE) or stands != source.lsn
            assert run(processes, str(tmp_path), source.lsn, "") == 0
            assert plain(one.rows) == plain(source.rows)
        if not steps:
            break
    assert not steps, f"never reached: {steps}"
    # No version has changes of a process that was killed before its commit.
    fed = [version for version in range(1, one.held(one.lake).version + 1) if deltalake_feed(one.lake, version)]
    for version in fed:
        assert_difference(one.lake, version, deltalake_feed(one.lake, version))
    # What the killed processes left is no file of the table, and goes with its age.
    maintain(one.lake, Retention(1, 0))
    assert plain(one.rows) == plain(source.rows)
    one.append(source.next_transaction(60), source.lsn)
    assert run(processes, str(tmp_path), source.lsn, "") == 0
    assert plain(one.rows) == plain(source.rows)


@pytest.mark.slow
def test_a_half_written_index_has_no_name_by_which_it_is_found(tmp_path: Path, processes: ForkServerContext) -> None:
    source, one = SourceTable(12, 50), merger(tmp_path)
    source.next_transaction(200, only_inserts=True)
    one.snapshot(1, source.snapshot())
    one.append(source.next_transaction(40), source.lsn)
    armed = (str(tmp_path), source.lsn, failpoints.DURING_INDEX)
    assert run(processes, *armed) == -signal.SIGKILL
    left = list((tmp_path / "index").iterdir())
    assert [path.suffix for path in left] == [".new"]
    # Nor is it believed under the right name.
    assert run(processes, *armed[:2], "") == 0
    (named, *_) = (tmp_path / "index").glob("*.keys")
    named.write_bytes(left[0].read_bytes())
    one.append(source.next_transaction(40), source.lsn)
    assert run(processes, str(tmp_path), source.lsn, "") == 0
    assert plain(one.rows) == plain(source.rows)


def test_an_order_for_a_table_that_was_removed_does_nothing(tmp_path: Path) -> None:
    task = UpkeepTask("run", str(tmp_path / "index"), 1 << 30)
    assert not task(UpkeepOrder(str(tmp_path / "gone"), ("id",))).has_more
    assert not task(UpkeepOrder(str(tmp_path / "gone"), ("id",), indexes=True)).has_more
    assert DeltaTable.open(str(tmp_path / "gone")) is None

"""Incremental snapshots amid random requests, jobs, failures and kills: nothing is lost, left, or mixed up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.engine.backfill import range_requests as pace
from cdc_core.engine.backfill import staged_writes
from cdc_core.errors import (
    CdcError,
    RereadNeededError,
    TransientError,
)
from cdc_core.lake.chunks.task import ChunkOrder, ChunkOutcome
from cdc_core.snapshot.incremental.progress import Collection
from cdc_core.snapshot.incremental.staged import RangeToRead
from cdc_core.snapshot.signals.parse import Signal
from tests.support.backfill_run import NAME, Run
from tests.support.sampling import examples


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(pace, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(staged_writes, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(staged_writes, "_DESCRIBE_SECONDS", 0.0)
    yield


RANGES = 4
TROUBLE: list[CdcError] = [TransientError("A lock.", "Wait."), RereadNeededError("Keys.", "Wait.")]


def happen(run: Run, folder: Any, draw: Any, jobs: list[int]) -> Run:
    """One event that is possible at any time; returns the run, another one after a kill."""
    kind = draw(st.sampled_from(["step", "step", "step", "kill", "job", "slow", "fail", "moved", "behind", "pause"]))
    if kind == "kill":
        return Run(folder, RANGES)
    if kind == "job":
        jobs.append(len(jobs) + 1)
        run.reads.stage(RangeToRead(f"job {len(jobs)}", 1, Collection(NAME), draw(st.integers(1, 20))))
    elif kind == "slow":
        run.reads.end()
        run.reads.is_slow = not run.reads.is_slow
    elif kind == "fail":
        run.lake.outcomes = [ChunkOutcome(NAME, error=draw(st.sampled_from(TROUBLE)))]
    elif kind == "moved":
        run.lake.outcomes = [
            ChunkOutcome(NAME, rest=draw(st.sampled_from([(("1",), ("2",), ("3",)), (("1",),), None])))
        ]
    elif kind == "pause":
        type_of = "resume-snapshot" if run.queue.progress.paused else "pause-snapshot"
        run.channel.signals.append(Signal("p", type_of, {}))
    run.between_rounds(1, passed=0 if kind == "behind" else 20)
    return run


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_whatever_happens_each_range_is_written_or_named_and_nothing_is_left(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("model")
    run, jobs, written = Run(folder, RANGES), list[int](), list[ChunkOrder]()
    run.ask()
    for _ in range(data.draw(st.integers(0, 25))):
        before = run
        run = happen(run, folder, data.draw, jobs)
        if run is not before:
            written += before.lake.applied
    run.reads.end()
    run.reads.is_slow, run.lake.outcomes = False, []
    run.channel.signals.append(Signal("r", "resume-snapshot", {}))
    run.between_rounds(60)
    written += run.lake.applied
    assert run.staged == [] and run.stored.progress.queue == () and not run.snapshots.is_busy
    ordinals: dict[int, str] = {}
    for order in written:
        assert order.staged is not None and order.ordinal is not None
        # Rows with this number may be in the changelog: others under the same number would be left out.
        assert ordinals.setdefault(order.ordinal, order.staged.path) == order.staged.path
    assert len({order.staged.path for order in written if order.staged}) >= RANGES

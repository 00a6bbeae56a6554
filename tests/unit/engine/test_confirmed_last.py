"""What a batch shows is recorded before its position is confirmed, also if it has no captured row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_core.engine.reports import RoundReport, Until
from cdc_core.engine.stream import run as run_module
from cdc_core.engine.stream.confirmations import Confirmations
from cdc_core.engine.stream.run import Hooks, StreamRun
from cdc_core.lsn import Lsn
from tests.support.clock import Clock
from tests.unit.engine.streaming import ORDERS, FakeStream, announce, insert, reader, transaction


class Recorder:
    """A sink that notes the order of what is asked of it."""

    is_busy = False

    def __init__(self) -> None:
        self.unmerged: dict[object, str] = {}
        self.did: list[str] = []
        self.rests = self.resting = 0

    def append(self, batch: Any, to_lsn: Lsn) -> None:
        self.did += ["renamed", "appended"]
        self.to_lsn = to_lsn

    def merge(self) -> RoundReport:
        self.did.append("merged")
        self.rests = max(0, self.rests - 1)
        return RoundReport(self.to_lsn, ())

    def note_renamed(self) -> None:
        self.did.append("renamed")

    def has_backlog(self, to_lsn: Lsn) -> bool:
        return self.rests > 0

    def call_all(self) -> None:
        self.did.append("called")
        self.rests += self.resting
        self.resting = 0

    def between_rounds(self, passed: int) -> bool:
        return False

    def close(self) -> None:
        pass


@pytest.mark.parametrize("rows", [0, 1])
def test_a_rename_is_recorded_before_the_batch_is_confirmed(tmp_path: Path, rows: int) -> None:
    stream, sink = FakeStream(), Recorder()
    stream.send(transaction(1_000, *([*announce(ORDERS), insert(1)] if rows else [])))
    with reader(stream, tmp_path) as reading:
        confirmations = Confirmations(lambda lsn: sink.did.append(f"confirmed {lsn}"))
        run = StreamRun(reading, sink, confirmations, 0, Lsn(0), lambda: Lsn(0))
        run.run(Until(lsn=Lsn(1_000), max_seconds=10))
    first = sink.did.index("confirmed 1008")
    assert "renamed" in sink.did[:first]
    assert ("appended" in sink.did[:first]) == bool(rows)
    assert ("merged" in sink.did[first:]) == bool(rows) and "merged" not in sink.did[:first]


def test_silence_is_confirmed_after_what_was_seen_before_it(tmp_path: Path) -> None:
    stream, sink = FakeStream(), Recorder()
    stream.wal_end = 5_000
    with reader(stream, tmp_path) as reading:
        confirmations = Confirmations(lambda lsn: sink.did.append(f"confirmed {lsn}"))
        StreamRun(reading, sink, confirmations, 0, Lsn(0), lambda: Lsn(0)).run(Until(lsn=Lsn(5_000), max_seconds=10))
    assert sink.did[:2] == ["renamed", "confirmed 5000"]


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize(("rests", "resting", "left"), [(4, 0, 3), (0, 2, 2)])
def test_what_a_round_left_is_merged_before_the_run_ends(
    tmp_path: Path, stops: bool, rests: int, resting: int, left: int
) -> None:
    """Of tables that are not due, too."""
    stream, sink = FakeStream(), Recorder()
    sink.rests, sink.resting = rests, resting
    stream.send(transaction(1_000, *announce(ORDERS), insert(1)))
    hooks = Hooks(should_stop=lambda: stops and "appended" in sink.did)
    with reader(stream, tmp_path) as reading:
        confirmations = Confirmations(lambda lsn: None)
        run = StreamRun(reading, sink, confirmations, 0, Lsn(0), lambda: Lsn(0), hooks)
        run.run(Until(lsn=Lsn(1_000), max_seconds=10))
    assert sink.rests == (left if stops else 0), "a run that is asked to stop leaves it to the next one"


class Asked(Recorder):
    """A sink for which a signal waits: its work begins with the first step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    @property
    def is_busy(self) -> bool:  # type: ignore[override]
        return 0 < self.steps < 5

    def between_rounds(self, passed: int) -> bool:
        self.steps += 1
        return False


def test_a_run_that_ends_when_it_is_idle_does_first_what_a_waiting_signal_asks_for(tmp_path: Path) -> None:
    """However slow its start was: the silence is longer than asked for before the first step."""
    stream, sink = FakeStream(), Asked()
    stream.wal_end = 5_000
    with reader(stream, tmp_path) as reading:
        confirmations = Confirmations(lambda lsn: None)
        run = StreamRun(reading, sink, confirmations, 0, Lsn(5_000), lambda: Lsn(5_000))
        assert run.run(Until(idle_seconds=0, max_seconds=10)).stopped_by == "idle"
    assert sink.steps == 5


@pytest.mark.parametrize(("has_more", "begun"), [(True, [0.0, 0.25, 0.5]), (False, [0.0, 0.25, 0.6])])
def test_steps_are_done_until_a_round_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_more: bool, begun: list[float]
) -> None:
    """One after another while there is more to do, else a tenth of a second apart, and none for which it would wait."""
    clock, stream = Clock(), FakeStream()
    monkeypatch.setattr(run_module, "time", clock)
    merged: list[float] = []
    steps: list[float] = []

    class Working(Recorder):
        def merge(self) -> RoundReport:
            merged.append(clock.now)
            return super().merge()

        def between_rounds(self, passed: int) -> bool:
            steps.append(clock.now)
            clock.sleep(0.25)
            return has_more

    stream.send(transaction(1_000, *announce(ORDERS), insert(1)))
    hooks = Hooks(should_stop=lambda: bool(merged) and clock.now > merged[0] + 1)
    with reader(stream, tmp_path) as reading:
        run = StreamRun(reading, Working(), Confirmations(lambda lsn: None), 1.0, Lsn(0), lambda: Lsn(0), hooks)
        run.run(Until(max_seconds=1e9))
    after = [at - merged[0] for at in steps if merged[0] <= at < merged[0] + 0.99]
    assert after == pytest.approx(begun)

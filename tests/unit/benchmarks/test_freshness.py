"""The arithmetic of the freshness benchmark, and what it reads from logs and from /proc."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.freshness.figures import (
    Changes,
    Commit,
    first_visible,
    freshness,
    growth,
    held_seconds,
    percentile,
    rounds,
    since,
    spread,
    used_between,
)
from benchmarks.freshness.load import Mix
from benchmarks.freshness.log_tail import LogTail, TableLog
from benchmarks.freshness.processes import DRIVER, JVM, POSTGRES, WORKERS, Process, busy_seconds, kinds, read_stat


def changes(*rows: tuple[float, int, int, int]) -> Changes:
    time, lsn, table, count = zip(*rows, strict=True)
    return Changes(np.array(time, float), np.array(lsn), np.array(table), np.array(count))


def test_a_percentile_is_one_of_the_values() -> None:
    values = np.arange(1.0, 101.0)
    assert [percentile(values, share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 50, 95, 100]
    assert percentile(np.array([3.0]), 0.5) == 3
    assert np.isnan(percentile(np.array([]), 0.5))


def test_a_percentile_counts_weights() -> None:
    values, weights = np.array([10.0, 1.0, 5.0]), [1, 98, 1]
    assert percentile(values, 0.95, weights) == 1
    assert percentile(values, 0.985, weights) == 5
    assert spread(values, weights) == {"p50": 1.0, "p95": 1.0, "max": 10.0, "count": 100.0}


def test_a_percentile_knows_changes_that_were_never_seen() -> None:
    assert percentile(np.array([1.0, np.inf, np.inf]), 0.5) == np.inf


def test_a_change_is_visible_from_the_first_commit_at_or_above_its_lsn() -> None:
    commits = [Commit(10.0, 100, 1), Commit(20.0, 200, 2), Commit(30.0, 200, 3), Commit(40.0, 300, 4)]
    lsns = np.array([50, 100, 101, 200, 201, 300, 301])
    assert first_visible(lsns, commits).tolist() == [10, 10, 20, 20, 40, 40, np.inf]
    assert first_visible(lsns[:1], []).tolist() == [np.inf]


def test_a_table_that_goes_back_has_not_been_further() -> None:
    # A repeated commit with a lower LSN cannot make an LSN visible twice, nor later.
    commits = [Commit(10.0, 200, 1), Commit(20.0, 100, 2), Commit(30.0, 300, 3)]
    assert first_visible(np.array([150, 250]), commits).tolist() == [10, 30]


def test_freshness_is_of_the_change_s_own_table() -> None:
    load = changes((1.0, 10, 0, 1), (1.0, 10, 1, 1), (2.0, 20, 0, 1), (2.0, 20, 2, 1))
    commits = {0: [Commit(3.0, 20, 1)], 1: [Commit(5.0, 10, 1)]}
    assert freshness(load, commits).tolist() == [2.0, 4.0, 1.0, np.inf]


def test_growth_compares_the_ends_of_the_load() -> None:
    load = changes(*[(float(second), second, 0, 1) for second in range(100)])
    first, last = growth(load, np.arange(100.0), 10)
    assert (first, last) == (9.0, 99.0)
    assert since(load, 95.0).time.tolist() == [95, 96, 97, 98, 99]


def test_a_round_is_one_lsn_in_all_tables_that_had_changes() -> None:
    found = rounds(
        {0: [Commit(1.0, 10, 1), Commit(2.0, 20, 2), Commit(2.5, 20, 3)], 1: [Commit(1.2, 10, 4)], 2: []},
    )
    assert [(one.lsn, one.first, one.last, one.tables) for one in found] == [(10, 1.0, 1.2, 2), (20, 2.0, 2.0, 1)]


def test_held_wal_in_seconds_of_it() -> None:
    times, wal_end = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1000.0, 2000.0])
    assert held_seconds(times, wal_end, np.array([0.0, 500.0, 0.0])).tolist() == [0.0, 0.5, 2.0]
    # A position ahead of the end that was read before it holds nothing.
    assert held_seconds(times, wal_end, wal_end + 5).tolist() == [0, 0, 0]
    # What was written in a rush a moment ago is a moment old, however much it is.
    rush = np.array([0.0, 10.0, 9_000.0])
    assert held_seconds(times, rush, np.array([0.0, 10.0, 10.0])).tolist() == [0, 0, 1]
    assert held_seconds(times, np.zeros(3), np.zeros(3)).tolist() == [0, 0, 0]
    assert held_seconds(times[:0], times[:0], times[:0]).tolist() == []


def test_a_counter_between_samples() -> None:
    times, used = np.array([0.0, 10.0, 20.0]), np.array([0.0, 5.0, 25.0])
    assert used_between(times, used, 5.0, 15.0) == pytest.approx(12.5)


def test_a_mix_touches_only_rows_that_are_there() -> None:
    mix, live = Mix(3, 50, seed=4), [set(range(1, 51)) for _ in range(3)]
    kinds_seen = {"inserts": 0, "updates": 0, "deletes": 0}
    for _ in range(2_000):
        for part in mix.transaction(20):
            rows = live[part.table]
            assert not set(part.inserts) & rows and set(part.updates) <= rows
            assert set(part.deletes) <= rows and not set(part.updates) & set(part.deletes)
            rows.update(part.inserts)
            rows.difference_update(part.deletes)
            for kind in kinds_seen:
                kinds_seen[kind] += len(getattr(part, kind))
    whole = sum(kinds_seen.values())
    assert kinds_seen["updates"] / whole == pytest.approx(0.5, abs=0.15)
    assert kinds_seen["inserts"] / whole == pytest.approx(0.25, abs=0.1)


def write_commit(log: Path, number: int, *actions: dict[str, object]) -> None:
    log.mkdir(parents=True, exist_ok=True)
    partial = log / f".{number}"
    partial.write_text("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions))
    partial.rename(log / f"{number:020d}.json")


def txn(name: str, version: int) -> dict[str, object]:
    return {"txn": {"appId": f"wal2lake:s:public.t:{name}", "version": version, "lastUpdated": 0}}


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    table = TableLog(tmp_path, "s", "public.t")
    assert not table.poll() and table.reached == -1
    log = tmp_path / "_delta_log"
    write_commit(log, 0, {"metaData": {}}, txn("snapshot", 7))
    write_commit(log, 1, txn("7", 100))
    assert table.poll() and not table.poll()
    write_commit(log, 2, {"commitInfo": {"operation": "OPTIMIZE"}})
    write_commit(log, 3, txn("7", 200), {"txn": {"appId": "wal2lake:s:public.other:7", "version": 900}})
    assert table.poll()
    assert [(commit.lsn, commit.version) for commit in table.commits] == [(100, 1), (200, 3)]
    assert table.commits[1].time == (log / f"{3:020d}.json").stat().st_ctime and table.reached == 200


def test_a_new_snapshot_forgets_what_was_merged_before_it(tmp_path: Path) -> None:
    table, log = TableLog(tmp_path, "s", "public.t"), tmp_path / "_delta_log"
    write_commit(log, 0, txn("snapshot", 7))
    write_commit(log, 1, txn("7", 100))
    write_commit(log, 2, txn("snapshot", 8))
    write_commit(log, 3, txn("7", 300))
    assert table.poll() and table.reached == -1
    write_commit(log, 4, txn("8", 150))
    assert table.poll() and table.reached == 150


def test_entries_that_were_cleaned_up_unread_are_passed_by(tmp_path: Path) -> None:
    table, log = TableLog(tmp_path, "s", "public.t"), tmp_path / "_delta_log"
    write_commit(log, 0, txn("0", 1))
    assert table.poll()
    write_commit(log, 5, txn("0", 50))
    assert not table.poll()
    table.skip_gap()
    assert table.poll() and table.reached == 50


def test_waiting_for_a_table_has_a_bound_and_an_end(tmp_path: Path) -> None:
    with LogTail(tmp_path, "s", ["public.t"], interval=0.005) as tail:
        assert not tail.wait({0: 10}, 0.05) and tail.behind({0: 10}) == 1
        write_commit(tmp_path / "public" / "t" / "_delta_log", 0, txn("0", 10))
        assert tail.wait({0: 10}, 10) and tail.behind({0: 10}) == 0
        assert [commit.lsn for commit in tail.commits()[0]] == [10]


def test_processes_are_distinguished_by_their_parents() -> None:
    family = [(1, 0, "init"), (2, 1, "wal2lake"), (3, 2, "java"), (4, 3, "python3"), (5, 4, "sh"), (6, 2, "python")]
    family += [(7, 3, "sh"), (8, 1, "postgres"), (9, 8, "postgres"), (10, 2, "git")]
    everybody = {pid: Process(pid, parent, name, 0.0) for pid, parent, name in family}
    expected = {2: DRIVER, 3: JVM, 4: WORKERS, 5: WORKERS, 6: WORKERS, 7: JVM, 10: DRIVER}
    assert kinds(2, DRIVER, everybody) == expected
    assert kinds(8, POSTGRES, everybody) == {8: POSTGRES, 9: POSTGRES}
    assert kinds(99, DRIVER, everybody) == {}


def test_a_name_with_brackets_does_not_shift_the_fields() -> None:
    fields = ["S", "41"] + ["0"] * 9 + ["100", "50", "25", "25"] + ["0"] * 20
    process = read_stat(f"42 (a (b) c) {' '.join(fields)}")
    assert (process.pid, process.parent, process.name) == (42, 41, "a (b) c")
    assert process.cpu == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))


def test_idle_time_and_waiting_for_disks_are_not_busy() -> None:
    stat = "cpu  100 10 20 9000 500 1 2 3 50 60\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert busy_seconds(stat) == pytest.approx(136 / os.sysconf("SC_CLK_TCK"))

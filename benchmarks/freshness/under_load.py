"""F1 (with F7, F8), F2 and F3: how far behind the lake is while its source changes."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from benchmarks.freshness.bench import Bench, Observed, last_lsns, observed, run_load, say
from benchmarks.freshness.figures import first_visible, freshness, growth, rounds, since, spread
from benchmarks.freshness.load import LoadSpec, Mix, Writer
from benchmarks.freshness.slot_watch import SlotWatch

F2_CHANGES = 20
_GROWTH_SECONDS = 60
_SMALL_RATE = 2_000


def f1(bench: Bench) -> dict[str, Any]:
    """Seven tables under a steady mix of changes; WAL held (F7) and memory (F8) meanwhile."""
    plan = bench.plan
    with observed(bench, "f1", plan.f1_tables, plan.f1_rows) as seen:
        return steady(bench, seen, plan.f1_rows, plan.f1_rate, plan.f1_seconds)


def f3(bench: Bench) -> dict[str, Any]:
    """One large table under random updates of single rows."""
    plan = bench.plan
    with observed(bench, "f3", 1, plan.f3_rows) as seen:
        return steady(bench, seen, plan.f3_rows, plan.f3_rate, plan.f3_seconds, updates_only=True)


def f2(bench: Bench) -> list[dict[str, Any]]:
    """Many tables changed in one transaction; for each number of tables in the plan."""
    return [_bursts(bench, tables) for tables in bench.plan.f2_tables]


def steady(
    bench: Bench, seen: Observed, rows: int, rate: float, seconds: float, *, updates_only: bool = False
) -> dict[str, Any]:
    """Load for ``seconds`` after the warm-up, and measure."""
    plan, site = bench.plan, seen.site
    spec = LoadSpec(
        site.conninfo,
        list(site.tables),
        rows,
        rate,
        plan.warm_up_seconds + seconds,
        str(site.folder / "load.csv"),
        # Above it one connection needs too much of a core for its round trips.
        most_a_transaction=20 if rate <= _SMALL_RATE else 200,
        updates_only=updates_only,
    )
    say(f"{rate:g} changes/s for {spec.seconds:g} s, of which {plan.warm_up_seconds:g} s of warm-up")
    with SlotWatch(site.conninfo, site.slot) as slot:
        everything = run_load(seen, spec)
        changes = since(everything, everything.time[0] + plan.warm_up_seconds)
        start, end = float(changes.time[0]), float(changes.time[-1])
        held = slot.held(start, end)
    problem = seen.problem(last_lsns(everything), plan.drain_seconds)
    commits = seen.tail.commits()
    waited = freshness(changes, commits)
    during = [one for one in rounds(commits) if start <= one.last <= end]
    cpu = seen.sampler.cpu(start, end)
    first_minute, last_minute = growth(changes, waited, min(_GROWTH_SECONDS, seconds / 2))
    return {
        "tables": len(site.tables),
        "rows_a_table": rows,
        "seconds": seconds,
        "start": start,
        "end": end,
        "changes_a_second": float(changes.count.sum() / max(end - start, 1e-9)),
        "freshness": spread(waited, changes.count),
        "p95_of_first_and_last_minute": [first_minute, last_minute],
        "never_seen": int(changes.count[np.isinf(waited)].sum()),
        "rounds": len(during),
        "cpu_cores": {kind: used / (end - start) for kind, used in cpu.items()},
        "cpu_seconds_a_round": {kind: used / len(during) if during else None for kind, used in cpu.items()},
        "wal_held": held,
        "memory_mb": seen.sampler.memory(start, end),
        "problem": problem,
    }


def _bursts(bench: Bench, tables: int) -> dict[str, Any]:
    plan, rows = bench.plan, bench.plan.f2_rows
    taken: list[float] = []
    pause = random.Random(tables)
    last: dict[int, int] = {}
    missed = 0
    with observed(bench, "f2", tables, rows) as seen, Writer(seen.site.conninfo, seen.site.tables) as writer:
        mix = Mix(tables, rows, seed=2)
        warm = time.monotonic() + plan.warm_up_seconds
        measured_from: float | None = None
        while len(taken) + missed < plan.f2_bursts:
            if measured_from is None and time.monotonic() >= warm:
                measured_from = time.time()
            committed = writer.commit([mix.part(table, F2_CHANGES) for table in range(tables)])
            last = dict.fromkeys(range(tables), committed.before)
            in_time = seen.drained(last, plan.drain_seconds)
            if measured_from is not None:
                missed += not in_time
                if in_time:
                    taken.append(_all_visible(seen, committed.before, committed.time))
                    say(f"{tables} tables: {taken[-1]:.2f} s")
            # Not in step with the product's own clock.
            time.sleep(pause.uniform(1.0, 3.0))
        problem = seen.problem(last, plan.drain_seconds)
        during = [one for one in rounds(seen.tail.commits()) if one.last >= (measured_from or 0.0)]
        until = time.time()
        cpu = seen.sampler.cpu(measured_from or until, until)
        seconds = until - (measured_from or until)
    if missed and not problem:
        problem = f"{missed} of {plan.f2_bursts} bursts were not seen within {plan.drain_seconds:g} s"
    return {
        "tables": tables,
        "rows_a_table": rows,
        "changes_a_table": F2_CHANGES,
        "seconds_until_all": spread(taken),
        "all": taken,
        "rounds": len(during),
        "cpu_cores": {kind: used / max(seconds, 1e-9) for kind, used in cpu.items()},
        "cpu_seconds_a_round": {kind: used / len(during) if during else None for kind, used in cpu.items()},
        "problem": problem,
    }


def _all_visible(seen: Observed, lsn: int, committed: float) -> float:
    """Seconds from the commit until the last table had reached it."""
    wanted = np.array([lsn], dtype=np.int64)
    return max(float(first_visible(wanted, commits)[0]) for commits in seen.tail.commits().values()) - committed

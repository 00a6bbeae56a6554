"""F4 (a million inserts, warm and cold) and F6 (how soon a start shows something)."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.freshness.bench import Bench, Observed, observed, say
from benchmarks.freshness.figures import first_visible, spread
from benchmarks.freshness.load import Mix, Writer
from benchmarks.freshness.product import PROGRAM, MeasureError, Product, running
from cdc_core.lsn import Lsn
from tests.support.lake import write_properties

_ROOT = Path(__file__).parents[2]
_RUN_SECONDS = 900
_STATUS_SECONDS = 180
_BACKLOG_CHANGES = 20


def f4(bench: Bench) -> dict[str, Any]:
    """Inserts from one slot into the merged lake, beside pg_recvlogical over the same WAL.

    Warm is benchmarks/macro/stream.py's lake target, in a process of its own. Cold is ``wal2lake run`` from the command
    line, less the time of the same command where the slot holds nothing. In each turn of the cold ones: pg_recvlogical,
    the empty run, the cold run.
    """
    from benchmarks.macro import stream  # loads the product: not for the scenarios that only look from outside

    plan = bench.plan
    warm = _warm(bench)
    cluster = bench.cluster
    database, end = stream.prepare(cluster, plan.f4_rows, 1_000)
    cold: dict[str, list[float]] = {"pg_recvlogical": [], "start_up": [], "cold": []}
    try:
        for turn in range(plan.f4_turns):
            cold["pg_recvlogical"].append(stream.recvlogical(cluster, database, end))
            cold["start_up"].append(_cold_run(bench, database, turn, end, rows=0))
            cold["cold"].append(_cold_run(bench, database, turn, end, rows=plan.f4_rows))
            say(f"turn {turn}: " + "  ".join(f"{name} {values[-1]:.2f} s" for name, values in cold.items()))
    finally:
        cluster.drop_database(database)
    turns = zip(cold["cold"], cold["start_up"], cold["pg_recvlogical"], strict=True)
    return {
        "rows": plan.f4_rows,
        "turns": plan.f4_turns,
        "warm_seconds": warm,
        "cold_seconds": cold,
        "warm_ratio": spread([a / b for a, b in zip(warm["lake"], warm["pg_recvlogical"], strict=True)]),
        "cold_ratio": spread([(whole - empty) / base for whole, empty, base in turns]),
        "problem": None,
    }


def f6(bench: Bench) -> dict[str, Any]:
    """A start of ``wal2lake run`` on a lake that is there, with a small backlog; ``wal2lake status``."""
    plan = bench.plan
    mix = Mix(plan.f1_tables, plan.f1_rows, seed=6)
    first, everything, status = [], [], []
    with observed(bench, "f6", plan.f1_tables, plan.f1_rows) as seen, Writer(seen.site.conninfo, seen.site.tables) as w:
        seen.product.stop()
        for _ in range(plan.f6_runs):
            committed = w.commit([mix.part(table, _BACKLOG_CHANGES) for table in range(plan.f1_tables)])
            with running(seen.site.config) as product:
                again = Observed(seen.site, product, seen.tail, seen.sampler)
                last = dict.fromkeys(range(plan.f1_tables), committed.before)
                if not again.drained(last, plan.drain_seconds):
                    raise MeasureError(f"a start showed nothing within {plan.drain_seconds:g} s: {product.said()}")
                one, every = _shown_after(again, committed.before)
                first.append(one)
                everything.append(every)
                problem = again.problem(last, plan.drain_seconds)
            status.append(_status(seen.site.config))
            say(f"start to first change {first[-1]:.1f} s, to all {everything[-1]:.1f} s; status {status[-1]:.2f} s")
    return {
        "runs": plan.f6_runs,
        "first_change": {**spread(first), "min": min(first), "median": statistics.median(first)},
        "all_changes": {**spread(everything), "min": min(everything), "median": statistics.median(everything)},
        "status": {**spread(status), "min": min(status), "median": statistics.median(status)},
        "problem": problem,
    }


def _shown_after(seen: Observed, lsn: int) -> tuple[float, float]:
    """Seconds from the product's start until the first and until the last table had reached ``lsn``."""
    wanted = np.array([lsn], dtype=np.int64)
    times = [float(first_visible(wanted, commits)[0]) for commits in seen.tail.commits().values()]
    return min(times) - seen.product.started, max(times) - seen.product.started


def _status(config: Path) -> float:
    began = time.monotonic()
    done = subprocess.run(
        [str(PROGRAM), "status", str(config)], capture_output=True, text=True, timeout=_STATUS_SECONDS, check=False
    )
    if done.returncode:
        raise MeasureError(f"wal2lake status ended with {done.returncode}: {done.stderr[-2000:]}")
    return time.monotonic() - began


def _warm(bench: Bench) -> dict[str, list[float]]:
    file = bench.folder / "stream.json"
    arguments = ["--only", "lake", "--rows", bench.plan.f4_rows, "--runs", bench.plan.f4_turns, "--json", file]
    turns = bench.plan.f4_turns + 1
    subprocess.run(
        [sys.executable, "-m", "benchmarks.macro.stream", *map(str, arguments)],
        cwd=_ROOT,
        check=True,
        timeout=_RUN_SECONDS * turns,
        stdout=sys.stderr,
    )
    found: dict[str, list[float]] = json.loads(file.read_text())["seconds"]
    return found


def _cold_run(bench: Bench, database: str, turn: int, end: Lsn, rows: int) -> float:
    """From the command to its end: over all the WAL up to ``end``, or (``rows`` 0) from a slot that holds nothing."""
    from benchmarks.macro import stream

    slot = f"cold_{turn}_{rows}"
    home = bench.folder / slot
    home.mkdir(parents=True)
    if rows:
        stream.copy_slot(bench.cluster, database, slot)
    else:
        bench.cluster.execute(database, "select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        end = Lsn.parse(bench.cluster.execute(database, "select pg_current_wal_lsn()")[0][0])
    properties = stream.connector_properties(bench.cluster, database, slot, home)
    config = write_properties(home / "connector.properties", {**properties, **bench.properties})
    product = Product(config, "--until-lsn", str(end))
    began = time.monotonic()
    try:
        product.wait(_RUN_SECONDS)
        taken = time.monotonic() - began
        _require_rows(home, rows, product)
    finally:
        product.stop()
        stream.drop_slot(bench.cluster, database, slot)
    return taken


def _require_rows(home: Path, rows: int, product: Product) -> None:
    from deltalake import DeltaTable

    found = DeltaTable(str(home / "lake" / "test" / "public" / "load")).count() if rows else 0
    if found != rows:
        raise MeasureError(f"the lake holds {found:,} rows, expected {rows:,}: {product.said()}")

"""T1: whether a round costs what the tables cost that changed, however many others the connector has.

Two runs at the same time, of a database with many tables and of one with few: the same number of tables change in both,
in transactions that are committed to both one after the other. What disturbs one disturbs the other, so the ratios hold
on a machine that others use, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.freshness.bench import Bench, Observed, say, wait_ready
from benchmarks.freshness.figures import Floats, first_visible, rounds, spread
from benchmarks.freshness.load import Committed, Mix, Part, Writer
from benchmarks.freshness.log_tail import LogTail
from benchmarks.freshness.processes import DRIVER, PRODUCT, Sampler
from benchmarks.freshness.product import made_site, running

_CHANGES = 20
_EVERY_SECONDS = 1.0
_WINDOW_SECONDS = 20.0


def t1(bench: Bench) -> dict[str, Any]:
    """A transaction a second with 20 changes in each of some tables: of many, and of no others."""
    plan = bench.plan
    with ExitStack() as stack:
        seen = [stack.enter_context(_followed(bench, tables)) for tables in (plan.t1_tables, plan.t1_changed)]
        ready = [stack.enter_context(_timed(one, plan.ready_seconds)) for one in seen]
        writers = [stack.enter_context(Writer(one.site.conninfo, one.site.tables)) for one in seen]
        done = _load(seen, writers, Mix(plan.t1_changed, plan.t1_rows, seed=4), plan.warm_up_seconds + plan.t1_seconds)
        start, end = done[0][0].time + plan.warm_up_seconds, done[0][-1].time
        last = [dict.fromkeys(range(plan.t1_changed), of_one[-1].before) for of_one in done]
        problems = [one.problem(lsns, plan.drain_seconds) for one, lsns in zip(seen, last, strict=True)]
        waited = [_waited(one, of_one, start) for one, of_one in zip(seen, done, strict=True)]
        costs = [_costs(one, start, end) for one in seen]
    fresh = [spread(seconds) for seconds in waited]
    names = "many", "few"
    return {
        "tables": plan.t1_tables,
        "changed": plan.t1_changed,
        "changes_a_table": _CHANGES,
        "seconds_until_ready": dict(zip(names, ready, strict=True)),
        "freshness": dict(zip(names, fresh, strict=True)),
        "ratio_of_freshness": {part: fresh[0][part] / fresh[1][part] for part in ("p50", "p95", "max")},
        "cpu_milliseconds_a_round": {name: one["milliseconds"] for name, one in zip(names, costs, strict=True)},
        "ratio_of_cpu": spread(costs[0]["windows"] / costs[1]["windows"]),
        "rounds": {name: one["rounds"] for name, one in zip(names, costs, strict=True)},
        "memory_mb": {name: one["memory_mb"] for name, one in zip(names, costs, strict=True)},
        "problem": next((problem for problem in problems if problem), None),
    }


@contextmanager
def _followed(bench: Bench, tables: int) -> Iterator[Observed]:
    """A product that follows so many tables, of which those that are going to change are watched and compared."""
    plan = bench.plan
    with made_site(bench.cluster, bench.folder, "t1", tables, plan.t1_rows, **bench.properties) as site:
        changed = replace(site, tables=site.tables[: plan.t1_changed])
        with (
            LogTail(changed.lake, changed.slot, changed.tables) as tail,
            Sampler() as sampler,
            running(changed.config) as product,
        ):
            sampler.watch(product.pid, DRIVER)
            yield Observed(changed, product, tail, sampler)


@contextmanager
def _timed(seen: Observed, most_seconds: float) -> Iterator[float]:
    """Seconds from the start of the product, which reads all tables first, until it follows them."""
    wait_ready(seen, most_seconds)
    seconds = time.time() - seen.product.started
    say(f"t1: ready after {seconds:.0f} s")
    yield seconds


def _load(seen: list[Observed], writers: list[Writer], mix: Mix, seconds: float) -> list[list[Committed]]:
    """Commit to each, in turns as to which is first; what was committed to each."""
    done: list[list[Committed]] = [[] for _ in writers]
    started = time.monotonic()
    number = 0
    while (elapsed := time.monotonic() - started) < seconds:
        time.sleep(max(0.0, number * _EVERY_SECONDS - elapsed))
        parts: list[Part] = [mix.part(table, _CHANGES) for table in range(len(seen[0].site.tables))]
        for place in (0, 1) if number % 2 else (1, 0):
            seen[place].product.require_running()
            done[place].append(writers[place].commit(parts))
        number += 1
    return done


def _waited(seen: Observed, done: list[Committed], start: float) -> Floats:
    """Seconds from each commit since ``start`` until the last of its tables showed it."""
    since = [commit for commit in done if commit.time >= start]
    lsns = np.array([commit.before for commit in since], dtype=np.int64)
    visible = np.max([first_visible(lsns, commits) for commits in seen.tail.commits().values()], axis=0)
    waited: Floats = visible - np.array([commit.time for commit in since])
    return waited


def _costs(seen: Observed, start: float, end: float) -> dict[str, Any]:
    """CPU of a round: by kind of process over the whole time, and of all together in each of some windows."""
    ends = np.array([one.last for one in rounds(seen.tail.commits())])
    cpu, used = seen.sampler.cpu(start, end), seen.sampler.product_cpu()
    bounds = np.arange(start, end + 1e-9, _WINDOW_SECONDS) if end - start >= _WINDOW_SECONDS else [start, end]
    of_windows = [used(*pair) / max(1, _between(ends, *pair)) for pair in pairwise(bounds)]
    count = _between(ends, start, end)
    whole = {kind: 1000 * cpu.get(kind, float("nan")) / max(1, count) for kind in PRODUCT}
    return {
        "rounds": count,
        "milliseconds": {**whole, "product": sum(whole.values())},
        "windows": np.array(of_windows),
        "memory_mb": seen.sampler.memory(start, end)["product"],
    }


def _between(times: Floats, start: float, end: float) -> int:
    return int(np.count_nonzero((times >= start) & (times < end)))

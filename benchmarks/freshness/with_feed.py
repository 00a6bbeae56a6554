"""C1: F1's load without and with a change data feed, in turn, with each replica identity."""

from __future__ import annotations

import math
import statistics
from typing import Any

from benchmarks.freshness.bench import Bench, observed, say
from benchmarks.freshness.processes import PRODUCT
from benchmarks.freshness.under_load import steady

# The goal of p95 with a feed, × without.
_GOALS = {"full": 1.1, "default": 1.3}


def c1(bench: Bench) -> list[dict[str, Any]]:
    """A result for each replica identity."""
    return [_in_turn(bench, identity, goal) for identity, goal in _GOALS.items()]


def _in_turn(bench: Bench, identity: str, goal: float) -> dict[str, Any]:
    """Measure without, with, with, without a feed, and so on: what grows with time is in both."""
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for turn in range(bench.plan.c1_turns):
        for feeds in (False, True) if turn % 2 == 0 else (True, False):
            say(f"turn {turn + 1}, identity {identity}, {'with' if feeds else 'without'} a feed")
            found[feeds].append(_measured(bench, identity, feeds=feeds))
    without, fed = found[False], found[True]
    compared = {name: _ratios(without, fed, name) for name in ("p95", "cpu_ms_a_change")}
    problems = [one["problem"] for one in (*without, *fed) if one["problem"]]
    return {
        "identity": identity,
        "goal": goal,
        "turns": {"without": without, "with": fed},
        "ratios": compared,
        "problem": "; ".join(problems) or None,
    }


def _measured(bench: Bench, identity: str, *, feeds: bool) -> dict[str, Any]:
    plan = bench.plan
    extra = {"wal2lake.lake.change.feed.tables": ".*"} if feeds else {}
    alter = f"replica identity {identity}"
    with observed(bench, "c1", plan.f1_tables, plan.f1_rows, alter, **extra) as seen:
        found = steady(bench, seen, plan.f1_rows, plan.f1_rate, plan.f1_seconds)
    cores = sum(found["cpu_cores"].get(kind, 0.0) for kind in PRODUCT)
    return {
        **found,
        "p95": found["freshness"]["p95"],
        "cpu_ms_a_change": 1e3 * cores / found["changes_a_second"] if found["changes_a_second"] else None,
    }


def _ratios(without: list[dict[str, Any]], fed: list[dict[str, Any]], name: str) -> list[float]:
    """The ratio of each turn, the median first."""
    ratios = [two[name] / one[name] if one[name] else math.nan for one, two in zip(without, fed, strict=True)]
    return [statistics.median(ratios), *ratios]

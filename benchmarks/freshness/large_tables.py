"""L1 to L7: tables of millions of rows under random updates, and what reading them costs afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.freshness.bench import Bench, observed, say
from benchmarks.freshness.under_load import steady

_READS = 3
# Another text in each row; PostgreSQL does not compress it, so it is stored out of line.
_TOAST = "add large text default repeat(md5(random()::text), 128), alter large set storage external"


@dataclass(frozen=True, slots=True)
class Large:
    """One scenario: tables of equal size, updates a second over all, and the p95 of freshness that is the goal.

    ``toast``: with a column of 4 kB that no update changes. ``mode``: the delete mode.
    """

    what: str
    goal: float
    tables: int
    rows: int
    rate: float
    toast: bool = False
    mode: str = "hard"


def large(bench: Bench) -> dict[str, Large]:
    """The scenarios by name, as large as the plan says."""
    plan = bench.plan
    rows, rate = plan.l_rows, plan.l_rate
    return {
        "L1": Large("one table", 1.5, 1, rows, rate),
        "L2": Large("one table", 2.5, 1, 5 * rows, rate),
        "L3": Large("one table", 3.0, 1, rows, 10 * rate),
        # A tenth of the rows: the source alone would need 40 GB.
        "L4": Large("one table, 4 kB unchanged in each row", 3.0, 1, rows // 10, rate / 2, toast=True),
        "L5": Large("many tables", 2.0, plan.l_tables, rows // 5, rate),
        "L6": Large("one table, mode soft", 2.0, 1, rows, rate, mode="soft"),
        "L7": Large("one table, mode history", 2.0, 1, rows, rate, mode="history"),
    }


NAMES = ("L1", "L2", "L3", "L4", "L5", "L6", "L7")


def scenario(name: str) -> Callable[[Bench], dict[str, Any]]:
    """The function that measures a scenario."""

    def run(bench: Bench) -> dict[str, Any]:
        one = large(bench)[name]
        extra = {} if one.mode == "hard" else {"wal2lake.lake.delete.mode": one.mode}
        with observed(bench, name.lower(), one.tables, one.rows, _TOAST if one.toast else "", **extra) as seen:
            folders = seen.site.table_folders()
            first = {folder: _first_version(folder) for folder in folders}
            found = steady(bench, seen, one.rows, one.rate, bench.plan.l_seconds, updates_only=True)
            seen.product.stop()
            reading = _reading(first)
        return {**found, "what": one.what, "goal": one.goal, "reading": reading}

    return run


def _first_version(folder: Path) -> int:
    """The version of a lake table at which the load begins."""
    from deltalake import DeltaTable

    return int(DeltaTable(str(folder)).version())


def _reading(first: dict[Path, int]) -> dict[str, float]:
    """CPU seconds in which delta-rs reads the tables, as they were before the load and now, and their files."""
    from deltalake import DeltaTable

    before = min(_passes(first.items()))
    now = {folder: DeltaTable(str(folder)).version() for folder in first}
    after = min(_passes(now.items()))
    files = [len(DeltaTable(str(folder)).file_uris()) for folder in first]
    say(f"reading all: {before:.1f} → {after:.1f} CPU seconds; {max(files)} files")
    return {"before": before, "after": after, "ratio": after / before, "files": max(files)}


def _passes(versions: Any) -> Iterator[float]:
    from deltalake import DeltaTable, QueryBuilder

    for _ in range(_READS):
        began = time.process_time()
        for folder, version in versions:
            table = DeltaTable(str(folder), version=version)
            query = QueryBuilder().register("t", table)
            query.execute("select count(*), sum(quantity), max(name), sum(amount), max(note) from t").read_all()
        yield time.process_time() - began

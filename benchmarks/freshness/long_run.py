"""F5: whether a round costs the same after thousands of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.freshness.bench import Bench, Observed, observed, say
from benchmarks.freshness.figures import Changes, freshness, rounds
from benchmarks.freshness.load import Committed, Mix, Writer

_CHANGES = 20
_SAY_EVERY = 100
_OLD_INTERVAL = "wal2lake.merge.interval.seconds"
_FRESHNESS = "wal2lake.freshness.seconds"
_FRESHNESS_SECONDS = "0.1"


def soon() -> dict[str, str]:
    """The property that asks for rounds without a rest between them, by the name that this version has for it."""
    from cdc_core.config.catalogue import is_declared

    return {_FRESHNESS: _FRESHNESS_SECONDS} if is_declared(_FRESHNESS) else {_OLD_INTERVAL: "0"}


def f5(bench: Bench) -> dict[str, Any]:
    """One transaction with 20 changes in each table; as soon as all tables show it, the next: each is a round."""
    plan = bench.plan
    tables = range(plan.f5_tables)
    with observed(bench, "f5", plan.f5_tables, plan.f1_rows, **soon()) as seen:
        with Writer(seen.site.conninfo, seen.site.tables) as writer:
            done, problem = _loop(bench, seen, writer, Mix(plan.f5_tables, plan.f1_rows, seed=5))
        last = dict.fromkeys(tables, done[-1].before)
        problem = problem or seen.problem(last, plan.drain_seconds)
        costs = _costs(seen, done, plan.f5_tables, plan.f5_window)
        commits = seen.tail.commits()
        seen.product.stop()
        files = _files(seen)
    return {
        "tables": plan.f5_tables,
        "rows_a_table": plan.f1_rows,
        "transactions": len(done),
        "rounds": len([one for one in rounds(commits) if one.lsn >= done[0].before]),
        "window": plan.f5_window,
        **costs,
        **files,
        "problem": problem,
    }


def _loop(bench: Bench, seen: Observed, writer: Writer, mix: Mix) -> tuple[list[Committed], str | None]:
    plan, tables = bench.plan, range(bench.plan.f5_tables)
    end = time.monotonic() + plan.f5_seconds
    done: list[Committed] = []
    while len(done) < plan.f5_rounds:
        done.append(writer.commit([mix.part(table, _CHANGES) for table in tables]))
        if not seen.drained(dict.fromkeys(tables, done[-1].before), plan.drain_seconds):
            return done, f"round {len(done)} was not seen within {plan.drain_seconds:g} s"
        if time.monotonic() > end:
            return done, f"{len(done)} of {plan.f5_rounds} rounds were done within {plan.f5_seconds:g} s"
        if len(done) % _SAY_EVERY == 0:
            say(f"{len(done)} rounds; the last took {time.time() - done[-1].time:.2f} s")
    return done, None


def _costs(seen: Observed, done: list[Committed], tables: int, window: int) -> dict[str, Any]:
    """Seconds and CPU-seconds a round of rounds ``window`` to 2 × ``window`` and of the last ``window``."""
    changes = Changes(
        np.repeat([one.time for one in done], tables),
        np.repeat(np.array([one.before for one in done], dtype=np.int64), tables),
        np.tile(np.arange(tables), len(done)),
        np.ones(len(done) * tables, dtype=np.int64),
    )
    took = freshness(changes, seen.tail.commits()).reshape(len(done), tables).max(axis=1)
    used = seen.sampler.product_cpu()
    found: dict[str, Any] = {}
    for name, part in (("early", slice(window, 2 * window)), ("late", slice(-window, None))):
        commits, seconds = done[part], took[part]
        if not commits:
            continue
        cpu = used(commits[0].time, commits[-1].time + float(seconds[-1]))
        found[f"{name}_seconds_a_round"] = float(seconds.mean())
        found[f"{name}_cpu_seconds_a_round"] = cpu / len(commits)
    for cost in ("seconds_a_round", "cpu_seconds_a_round"):
        if f"early_{cost}" in found:
            found[f"ratio_of_{cost}"] = found[f"late_{cost}"] / found[f"early_{cost}"]
    return found


def _files(seen: Observed) -> dict[str, Any]:
    """The most files that a table holds at the end, and entries and bytes on disk."""
    lake = [_table_files(folder) for folder in seen.site.table_folders()]
    changelogs = [
        _table_files(seen.site.lake.joinpath("__changelog", *table.split(".", 1))) for table in seen.site.tables
    ]
    return {
        "lake_table_most": {name: max(one[name] for one in lake) for name in lake[0]},
        "changelog_most": {name: max(one[name] for one in changelogs) for name in changelogs[0]},
    }


def _table_files(folder: Path) -> dict[str, int]:
    from deltalake import DeltaTable

    return {
        "active_files": len(DeltaTable(str(folder)).file_uris()),
        "files_on_disk": sum(1 for _ in folder.rglob("*.parquet")),
        "log_entries": sum(1 for _ in (folder / "_delta_log").glob("*.json")),
    }

"""R1: whether other tables notice that a large one is read again."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.freshness.bench import Bench, Observed, last_lsns, run_load, say, wait_ready
from benchmarks.freshness.equality import lake_sum, source_sum
from benchmarks.freshness.figures import Changes, freshness, spread
from benchmarks.freshness.load import LoadSpec, create_table
from benchmarks.freshness.log_tail import LogTail
from benchmarks.freshness.processes import DRIVER, POSTGRES, Sampler
from benchmarks.freshness.product import made_site, running

_LARGE = "public.large"
_CHANGE = "alter table large alter quantity type bigint"


def r1(bench: Bench) -> dict[str, Any]:
    """Six tables under a steady load, and a large one whose column takes another type meanwhile."""
    plan = bench.plan
    with made_site(bench.cluster, bench.folder, "r1", plan.r1_tables, plan.f1_rows, **bench.properties) as site:
        say(f"r1: filling a table of {plan.r1_rows:,} rows")
        bench.cluster.execute(site.database, create_table(_LARGE, plan.r1_rows))
        with LogTail(site.lake, site.slot, site.tables) as tail, Sampler() as sampler, running(site.config) as product:
            sampler.watch(bench.cluster.pid, POSTGRES)
            sampler.watch(product.pid, DRIVER)
            seen = Observed(site, product, tail, sampler)
            wait_ready(seen, plan.ready_seconds)
            return _measured(bench, seen)


def _measured(bench: Bench, seen: Observed) -> dict[str, Any]:
    plan, site = bench.plan, seen.site
    seconds = plan.warm_up_seconds + plan.r1_seconds + plan.r1_most_seconds
    tables, output = list(site.tables), str(site.folder / "load.csv")
    spec = LoadSpec(site.conninfo, tables, plan.f1_rows, plan.r1_rate, seconds, output)
    alter = _Alter(bench, seen)
    alter.start()
    say(f"{plan.r1_rate:g} changes/s for {seconds:g} s; the large table is altered meanwhile")
    everything = run_load(seen, spec)
    alter.join(60)
    problem = alter.problem or seen.problem(last_lsns(everything), plan.drain_seconds)
    if not problem and source_sum(site, _LARGE) != lake_sum(site.lake / "public" / "large"):
        problem = "the large table's lake side is not its source's rows"
    waited = freshness(everything, seen.tail.commits())
    before = _between(everything, alter.began - plan.r1_seconds, alter.began)
    during = _between(everything, alter.altered, alter.read)
    return {
        "tables": len(tables),
        "rows_a_table": plan.f1_rows,
        "rows_read_again": plan.r1_rows,
        "seconds_altering": alter.altered - alter.began,
        "seconds_reading": alter.read - alter.altered,
        "before": spread(waited[before], everything.count[before]),
        "during": spread(waited[during], everything.count[during]),
        "never_seen": int(everything.count[np.isinf(waited)].sum()),
        "cpu_cores": {
            kind: used / (alter.read - alter.altered)
            for kind, used in seen.sampler.cpu(alter.altered, alter.read).items()
        },
        "problem": problem,
    }


def _between(changes: Changes, start: float, end: float) -> Any:
    return (changes.time >= start) & (changes.time < end)


class _Alter(threading.Thread):
    """Alters the large table once the load is warm, and waits until the lake has it: times of each in seconds."""

    def __init__(self, bench: Bench, seen: Observed) -> None:
        super().__init__(name="alter", daemon=True)
        self._bench, self._seen = bench, seen
        self.began = self.altered = self.read = time.time()
        self.problem: str | None = None

    def run(self) -> None:
        plan, site = self._bench.plan, self._seen.site
        try:
            time.sleep(plan.warm_up_seconds + plan.r1_seconds)
            self.began = time.time()
            site.cluster.execute(site.database, _CHANGE)
            self.altered = time.time()
            while not _is_wide(site.lake / "public" / "large"):
                if time.time() - self.altered > plan.r1_most_seconds:
                    self.problem = f"the large table was not read again within {plan.r1_most_seconds:g} s"
                    break
                time.sleep(0.5)
        except Exception as error:
            # A thread's end by an error would go unnoticed.
            self.problem = f"the large table could not be altered: {type(error).__name__}"
        self.read = time.time()


def _is_wide(folder: Path) -> bool:
    from deltalake import DeltaTable

    types = {each.name: str(each.type) for each in DeltaTable(str(folder)).schema().fields}
    return "long" in types["quantity"]

"""K1 and K2: how far Kafka is behind its source, beside the lake and alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.freshness.arrivals import Arrivals
from benchmarks.freshness.bench import Bench, Observed, observed, run_load, say
from benchmarks.freshness.figures import spread
from benchmarks.freshness.load import LoadSpec
from benchmarks.freshness.log_tail import LogTail
from benchmarks.freshness.processes import DRIVER, POSTGRES, Sampler
from benchmarks.freshness.product import MeasureError, made_site, running
from benchmarks.freshness.under_load import steady
from cdc_core.demo.broker import Broker
from tests.support.kafka import await_broker

# The topics' prefix: that of every connector file of a test.
_PREFIX = "test"
_POLL_SECONDS = 0.2


def k1(bench: Bench) -> dict[str, Any]:
    """F1 with both sinks: the lake's freshness, and Kafka's."""
    plan = bench.plan
    with _broker(bench) as broker, Arrivals(broker.servers, _PREFIX) as arrivals:
        more = {"wal2lake.sinks": "lake,kafka", "bootstrap.servers": broker.servers}
        with observed(bench, "k1", plan.f1_tables, plan.f1_rows, **more) as seen:
            figures = steady(bench, seen, plan.f1_rows, plan.f1_rate, plan.f1_seconds)
            figures["kafka"] = _measured(arrivals, plan.f1_seconds)
    return figures


def k2(bench: Bench) -> dict[str, Any]:
    """The same load with Kafka alone."""
    plan = bench.plan
    with _broker(bench) as broker, Arrivals(broker.servers, _PREFIX) as arrivals:
        more = {**bench.properties, "wal2lake.sinks": "kafka", "bootstrap.servers": broker.servers}
        with (
            made_site(bench.cluster, bench.folder, "k2", plan.f1_tables, plan.f1_rows, **more) as site,
            LogTail(site.lake, site.slot, site.tables) as tail,
            Sampler() as sampler,
            running(site.config) as product,
        ):
            sampler.watch(bench.cluster.pid, POSTGRES)
            sampler.watch(product.pid, DRIVER)
            seen = Observed(site, product, tail, sampler)
            rows = plan.f1_tables * plan.f1_rows
            _await(arrivals, rows, seen, plan.ready_seconds)
            seconds = plan.warm_up_seconds + plan.f1_seconds
            spec = LoadSpec(
                site.conninfo, list(site.tables), plan.f1_rows, plan.f1_rate, seconds, str(site.folder / "load.csv")
            )
            changes = run_load(seen, spec)
            problem = _missing(arrivals, rows + int(changes.count.sum()), seen, plan.drain_seconds)
            start, end = float(changes.time[-1]) - plan.f1_seconds, float(changes.time[-1])
            cpu = sampler.cpu(start, end)
            return {
                "tables": plan.f1_tables,
                "rows_a_table": plan.f1_rows,
                "changes_a_second": float(changes.count.sum() / seconds),
                "kafka": _measured(arrivals, plan.f1_seconds),
                "cpu_cores": {kind: used / (end - start) for kind, used in cpu.items()},
                "memory_mb": sampler.memory(start, end),
                "problem": problem,
            }


@contextmanager
def _broker(bench: Bench) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder, Broker(Path(folder)) as broker:
        await_broker(broker.servers)
        yield broker


def _measured(arrivals: Arrivals, seconds: float) -> dict[str, float]:
    """The spread of the events committed in the last ``seconds`` of the load."""
    return spread(arrivals.waited(arrivals.newest - seconds))


def _await(arrivals: Arrivals, wanted: int, seen: Observed, seconds: float) -> None:
    problem = _missing(arrivals, wanted, seen, seconds)
    if problem:
        raise MeasureError(problem)
    say(f"{wanted:,} rows of the snapshot have arrived")


def _missing(arrivals: Arrivals, wanted: int, seen: Observed, seconds: float) -> str | None:
    """Wait for so many events; why they are not there."""
    end = time.monotonic() + seconds
    while arrivals.count < wanted:
        seen.product.require_running()
        if time.monotonic() > end:
            return f"{arrivals.count:,} of {wanted:,} events arrived within {seconds:g} s"
        time.sleep(_POLL_SECONDS)
    return None

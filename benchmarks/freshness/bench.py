"""What the scenarios share: how large they are, and a run of the product under observation."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.freshness.equality import require_equal
from benchmarks.freshness.figures import Changes
from benchmarks.freshness.load import LoadSpec, Part, Writer, read_changes
from benchmarks.freshness.log_tail import LogTail
from benchmarks.freshness.processes import DRIVER, LOAD, POSTGRES, Sampler
from benchmarks.freshness.product import MeasureError, Product, Site, made_site, running
from tests.support.cluster import Cluster

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Plan:
    """How large the scenarios are. Seconds, rows and changes as in their names."""

    warm_up_seconds: float = 60
    drain_seconds: float = 300
    ready_seconds: float = 900
    f1_tables: int = 7
    f1_rows: int = 10_000
    f1_rate: float = 1_000
    f1_seconds: float = 300
    f2_tables: tuple[int, ...] = (100,)
    f2_rows: int = 1_000
    f2_bursts: int = 10
    f3_rows: int = 5_000_000
    f3_rate: float = 1_000
    f3_seconds: float = 150
    f4_rows: int = 1_000_000
    f4_turns: int = 3
    f5_tables: int = 7
    f5_rounds: int = 3_000
    f5_window: int = 100
    f5_seconds: float = 7_200
    f6_runs: int = 5
    c1_turns: int = 4
    l_rows: int = 10_000_000
    l_tables: int = 20
    l_rate: float = 1_000
    l_seconds: float = 600
    r1_tables: int = 6
    r1_rows: int = 5_000_000
    r1_rate: float = 500
    r1_seconds: float = 60
    r1_most_seconds: float = 300
    t1_tables: int = 2_000
    t1_changed: int = 20
    t1_rows: int = 100
    t1_seconds: float = 120
    s1_tables: int = 7
    s1_rate: float = 1_000
    s1_milliseconds: float = 30


QUICK = Plan(
    warm_up_seconds=10,
    drain_seconds=180,
    ready_seconds=600,
    f1_rows=1_000,
    f1_rate=200,
    f1_seconds=20,
    f2_tables=(10,),
    f2_rows=100,
    f2_bursts=3,
    f3_rows=100_000,
    f3_seconds=20,
    f4_rows=100_000,
    f4_turns=1,
    f5_rounds=30,
    f5_window=10,
    f5_seconds=300,
    f6_runs=2,
    c1_turns=1,
    l_rows=200_000,
    l_tables=5,
    l_rate=500,
    l_seconds=20,
    r1_rows=200_000,
    r1_rate=100,
    r1_seconds=15,
    r1_most_seconds=60,
    t1_tables=40,
    t1_changed=5,
    t1_seconds=20,
    s1_rate=200,
)


@dataclass(frozen=True, slots=True)
class Bench:
    """A server, a folder for everything, and the plan. ``properties`` are set in every connector file."""

    cluster: Cluster
    folder: Path
    plan: Plan
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """A product that runs, and those who look at it."""

    site: Site
    product: Product
    tail: LogTail
    sampler: Sampler

    def drained(self, lsns: Mapping[int, int], seconds: float) -> bool:
        """Wait until each table has reached its LSN, at most so long. Raises MeasureError when the product ends."""
        end = time.monotonic() + seconds
        while not self.tail.wait(lsns, min(2.0, max(0.0, end - time.monotonic()))):
            self.product.require_running()
            if time.monotonic() >= end:
                return False
        return True

    def problem(self, lsns: Mapping[int, int], seconds: float) -> str | None:
        """Why the lake is not what the source is, after at most ``seconds`` of waiting; None when every table is."""
        if not self.drained(lsns, seconds):
            return f"{self.tail.behind(lsns)} tables were not up to date {seconds:g} s after the load"
        try:
            require_equal(self.site)
        except MeasureError as error:
            return str(error)
        except Exception as error:
            # What was measured is told all the same.
            return f"the lake could not be compared with its source: {type(error).__name__}: {error}"
        return None


@contextmanager
def observed(bench: Bench, prefix: str, tables: int, rows: int, alter: str = "", **extra: str) -> Iterator[Observed]:
    """Tables in a fresh database with a product that has taken their snapshot and streams."""
    with (
        made_site(bench.cluster, bench.folder, prefix, tables, rows, alter, **{**bench.properties, **extra}) as site,
        LogTail(site.lake, site.slot, site.tables) as tail,
        Sampler() as sampler,
        running(site.config) as product,
    ):
        sampler.watch(bench.cluster.pid, POSTGRES)
        sampler.watch(product.pid, DRIVER)
        seen = Observed(site, product, tail, sampler)
        say(f"{prefix}: {tables} tables of {rows:,} rows; waiting until they are in the lake and followed")
        wait_ready(seen, bench.plan.ready_seconds)
        say(f"{prefix}: ready after {time.time() - product.started:.0f} s")
        yield seen


def wait_ready(seen: Observed, seconds: float) -> None:
    """Change a row of every table, again and again, until one of these changes has come in each.

    A change made before the snapshot is in the snapshot and never comes, hence again. Raises MeasureError when
    ``seconds`` have passed.
    """
    tables = range(len(seen.site.tables))
    end, first = time.monotonic() + seconds, 0
    with Writer(seen.site.conninfo, seen.site.tables) as writer:
        while time.monotonic() < end:
            lsn = writer.commit([Part(table, [], [1], []) for table in tables]).before
            first = first or lsn
            if seen.drained(dict.fromkeys(tables, first), 10):
                return
    raise MeasureError(f"the product did not follow every table within {seconds:g} s: {seen.product.said()}")


def run_load(seen: Observed, spec: LoadSpec) -> Changes:
    """Run the load in a process of its own to its end. Raises MeasureError when it, or the product, fails."""
    file = spec.write(seen.site.folder / "load.json")
    log = seen.site.folder / "load.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.freshness.load", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=_ROOT,
        )
    seen.sampler.watch(process.pid, LOAD)
    end = time.monotonic() + spec.seconds + 120
    try:
        while process.poll() is None:
            seen.product.require_running()
            if time.monotonic() > end:
                raise MeasureError(f"the load did not end within {spec.seconds + 120:g} s")
            time.sleep(0.5)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(20)
    if process.returncode:
        raise MeasureError(f"the load ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
    return read_changes(Path(spec.output))


def last_lsns(changes: Changes) -> dict[int, int]:
    """The LSN of each table's last change, by the table's place."""
    return {int(table): int(lsn) for table, lsn in zip(changes.table, changes.lsn, strict=True)}


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)

"""What comparisons with the source cost the freshness of the stream beside them.

    python -m benchmarks.macro.reconcile_beside --rows 2000000 --seconds 90

One run follows random updates of single rows of a table: first alone, then while ``wal2lake reconcile`` compares the
table again and again. What is compared is the time from a commit to the Delta commit that shows it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.freshness.bench import Bench, Observed, Plan, observed
from benchmarks.freshness.under_load import steady
from benchmarks.macro.snapshot import PROGRAM
from benchmarks.server import bench_server

_SECONDS = 3600


def main() -> None:
    """Measure and print a table; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rate", type=float, default=1_000, help="updates a second")
    parser.add_argument("--seconds", type=float, default=90, help="measured, each time")
    parser.add_argument("--warm-up", type=float, default=30, help="seconds before, not measured")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a connector property")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    properties = dict(entry.split("=", 1) for entry in arguments.set)
    with bench_server(shared_buffers="512MB") as (cluster, folder):
        bench = Bench(cluster, folder, Plan(warm_up_seconds=arguments.warm_up), properties)
        with observed(bench, "beside", 1, arguments.rows) as seen:
            load = (arguments.rows, arguments.rate, arguments.seconds)
            figures: dict[str, Any] = {"alone": steady(bench, seen, *load, updates_only=True)}
            with _compared(seen) as comparisons:
                figures["beside"] = steady(bench, seen, *load, updates_only=True)
            figures["comparisons"] = comparisons
    _print(figures, arguments.rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))
    if any(each["code"] for each in figures["comparisons"]):
        raise SystemExit("a comparison did not end with 0")


@contextmanager
def _compared(seen: Observed) -> Iterator[list[dict[str, Any]]]:
    """Compare again and again, and yield the list of what came of it, which grows."""
    stop, found = threading.Event(), list[dict[str, Any]]()

    def compare() -> None:
        while not stop.is_set():
            began = time.monotonic()
            done = subprocess.run(
                [PROGRAM, "reconcile", seen.site.config, "--json"],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            found.append({"seconds": round(time.monotonic() - began, 1), "code": done.returncode, **_said(done.stdout)})

    thread = threading.Thread(target=compare)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join(_SECONDS)


def _said(output: str) -> dict[str, Any]:
    tables = json.loads(output)["tables"].values() if output.strip() else []
    return {"states": [each["state"] for each in tables], "reasons": [each["reason"] for each in tables]}


def _print(figures: dict[str, Any], rows: int) -> None:
    print(f"\none table of {rows:,} rows; {len(figures['comparisons'])} comparisons beside the second")
    print("| | half within | 95 % within | longest | problem |\n|---|---|---|---|---|")
    for name in ("alone", "beside"):
        told = figures[name]["freshness"]
        print(f"| {name} | {told['p50']:.2f} | {told['p95']:.2f} | {told['max']:.2f} | {figures[name]['problem']} |")
    ratio = figures["beside"]["freshness"]["p95"] / figures["alone"]["freshness"]["p95"]
    print(f"p95 beside comparisons: {ratio:.2f} × alone")
    for each in figures["comparisons"]:
        print(each)


if __name__ == "__main__":
    main()

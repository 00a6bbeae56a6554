"""What it costs to open Delta tables, side by side with delta-rs alone: CPU milliseconds a table.

    python benchmarks/micro/bench_open.py [tables] [commits] [runs]

Of each run: delta-rs; the first look at each table, at a table whose log has not changed since, and at one to which a
commit was made. The fastest run is the one that other work disturbed least; the spread is that of all runs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import deltalake
import pyarrow as pa

from cdc_core.lake.delta.table import DeltaTable

ROW = pa.table({"id": [1], "v": ["x"]})


def made(folder: Path, number: int, commits: int) -> str:
    """A table of so many commits of a row each."""
    path = str(folder / f"t{number}")
    for _ in range(commits):
        add(path)
    return path


def add(path: str) -> None:
    """Commit a row by delta-rs, as another process would."""
    deltalake.write_deltalake(path, ROW, mode="append")


def timed(action: Callable[[str], object], paths: Sequence[str]) -> float:
    """CPU milliseconds of this process for each path."""
    started = time.process_time()
    for path in paths:
        action(path)
    return (time.process_time() - started) * 1000 / len(paths)


def measured(tables: int, commits: int) -> dict[str, float]:
    """One run with tables of its own."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [made(Path(folder), number, commits) for number in range(tables)]
        found = {"delta-rs": timed(deltalake.DeltaTable, paths), "first": timed(DeltaTable.open, paths)}
        found["again"] = timed(DeltaTable.open, paths)
        for path in paths:
            add(path)
        found["after a commit"] = timed(DeltaTable.open, paths)
    return found


def main() -> None:
    """Print each figure and its ratio to delta-rs."""
    given = [int(text) for text in sys.argv[1:]]
    tables, commits, runs = (given + [100, 10, 5][len(given) :])[:3]
    found = [measured(tables, commits) for _ in range(runs)]
    print(f"{tables} tables of {commits} commits, {runs} runs")
    alone = min(run["delta-rs"] for run in found)
    for name in found[0]:
        all_runs = [run[name] for run in found]
        print(f"{name:15} {min(all_runs):7.3f} ms (to {max(all_runs):.3f})  x {min(all_runs) / alone:.2f}")


if __name__ == "__main__":
    main()

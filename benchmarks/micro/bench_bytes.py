"""What rounds of few updates leave on disk, by the size of their table: files rewritten, beside rows marked.

    python benchmarks/micro/bench_bytes.py [--rows 1000,5000,30000] [--rounds 400] [--updates 4] [--seconds 0]

A table of 8 mixed columns in one file takes rounds of updates at random keys, each followed by the round's own
maintenance. Replaced files stay for 15 minutes at least, so all that is written is there at the end: files and
megabytes of data, deletion vectors and log. With ``--seconds`` rounds are so far apart by the clock that commits and
the cleaning of data files use; log entries stay. CPU milliseconds of a round are means, of all threads.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.micro.bench_apply import TABLE, Clock, change_rows, fill
from cdc_core.lake.apply.changes import apply, prepare
from cdc_core.lake.apply.ways import REWRITE, Ways
from cdc_core.lake.maintenance.compaction import maintain_after

WAYS = {"rewritten": REWRITE, "marked": Ways(0)}
KINDS = ("data", "vectors", "log")


def updates(rows: int, count: int, turn: int) -> pa.Table:
    """Some updates at random keys."""
    made = change_rows(4 * count, 0, rows, rows, turn)
    return made.filter(pc.equal(made.column("__op"), "u")).slice(0, count)


def held(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The number of files in a table's folder, and their bytes, by kind."""
    files, octets = Counter[str](), Counter[str]()
    for path in folder.rglob("*"):
        if path.is_file():
            kind = "log" if path.parent.name == "_delta_log" else "data" if path.suffix == ".parquet" else "vectors"
            files[kind] += 1
            octets[kind] += path.stat().st_size
    return files, octets


def measure(folder: Path, way: str, rows: int, rounds: int, count: int, seconds: float = 0) -> str:
    """One line of the result."""
    begun, table = time.time(), fill(folder, rows)
    live = sum(file.size for file in table.files)
    if way == "marked":
        table.enable_vectors()
    clock = Clock()
    for turn in range(rounds):
        if seconds:
            time.time = lambda now=begun + turn * seconds: now
        since, changes = table.version, prepare(updates(rows, count, turn), TABLE, table.schema)
        effect = apply(table, changes, ways=WAYS[way])
        added = [table.write(part) for part in effect.rows]
        table.commit(added, effect.removed, marked=effect.marked, txns={"bench": turn})
        maintain_after(table, since, 15, ("id",))
    cpu = 1e3 * clock.read()[1] / rounds
    files, octets = held(folder)
    kinds = " | ".join(f"{files[kind]} ({octets[kind] / 1e6:.1f} MB)" for kind in KINDS)
    return f"| {rows:,} | {live / 1e6:.2f} | {way} | {cpu:.1f} | {sum(octets.values()) / live:.0f} × | {kinds} |"


def main() -> None:
    """Print a table."""
    numbers = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    numbers.add_argument("--rows", default="1000,5000,30000")
    numbers.add_argument("--rounds", type=int, default=400)
    numbers.add_argument("--updates", type=int, default=4)
    numbers.add_argument("--seconds", type=float, default=0)
    asked = numbers.parse_args()
    print(f"| rows | live MB | by | CPU ms | on disk | {' | '.join(KINDS)} |")
    print("|---|---|---|---|---|---|---|---|")
    for rows in map(int, asked.rows.split(",")):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                print(measure(Path(folder) / "t", way, rows, asked.rounds, asked.updates, asked.seconds), flush=True)


if __name__ == "__main__":
    main()

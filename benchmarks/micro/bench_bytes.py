"""What rounds of few updates leave on disk, by the size of their table: files rewritten, beside rows marked.

    python benchmarks/micro/bench_bytes.py [--rows 300,1000,5000,30000] [--rounds 400] [--updates 4] [--seconds 0]

A table of 8 mixed columns in one file, and its changelog, take rounds of updates at random keys, each followed by the
round's own maintenance, with a history of 15 minutes. With ``--seconds`` rounds are so far apart by the clock that
commits and the cleaning use: 2700 rounds of 7 updates, 1.33 seconds apart, are an hour of 5 changes a second. Without,
nothing is so old that it goes. Printed are files and megabytes of lake data, deletion vectors, logs, and the changelog;
beside them 5 times the live data and 10 MB. CPU milliseconds of a round are means, of all threads.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.micro.bench_apply import TABLE, Clock, change_rows, fill
from cdc_core.lake.apply.changes import apply, prepare
from cdc_core.lake.apply.ways import MARK_BYTES, Ways
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.index.key_positions import positions_in
from cdc_core.lake.maintenance.compaction import maintain_behind, maintain_briefly, moved_at_once
from cdc_core.lake.schema.lake_schema import changelog_properties, lake_properties

AS_A_RUN = "as a run decides"
MARK_ABOVE = {"rewritten": None, "marked": 0, AS_A_RUN: MARK_BYTES}
KINDS = ("data", "vectors", "log", "changelog")
_HISTORY = 15
_STAMP_EVERY = 25


def updates(rows: int, count: int, turn: int) -> pa.Table:
    """Some updates at random keys."""
    made = change_rows(4 * count, 0, rows, rows, turn)
    return made.filter(pc.equal(made.column("__op"), "u")).slice(0, count)


def held(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The number of files of a table and its changelog, and their bytes, by kind."""
    files, octets = Counter[str](), Counter[str]()
    for path in folder.rglob("*"):
        if path.is_file() and "index" not in path.parts:
            kind = "log" if path.parent.name == "_delta_log" else "data" if path.suffix == ".parquet" else "vectors"
            kind = "changelog" if "changelog" in path.parts else kind
            files[kind] += 1
            octets[kind] += path.stat().st_size
    return files, octets


class Clocks:
    """Sets the clock of commits and cleaning, and the times of log entries, by which delta-rs removes them."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds, self._really = folder, seconds, time.time
        self._begun = time.time()
        self._made: dict[Path, float] = {}

    def turn(self, number: int) -> None:
        """Begin a round."""
        if not self._seconds:
            return
        now = self._begun + number * self._seconds
        time.time = lambda: now
        if number % _STAMP_EVERY == 0:
            for path in self._folder.rglob("_delta_log/*"):
                made = self._made.setdefault(path, now)
                os.utime(path, (self._really() - (now - made),) * 2)

    def end(self) -> None:
        """Set the clock right."""
        time.time = self._really


def measure(folder: Path, way: str, rows: int, rounds: int, count: int, seconds: float = 0) -> str:
    """One line of the result."""
    clocks, lake = Clocks(folder, seconds), fill(folder / "lake", rows)
    lake.commit(definition=lake.definition.with_properties(lake_properties(_HISTORY)))
    changelog: DeltaTable | None = None
    above = MARK_ABOVE[way]
    moved = partial(moved_at_once, lake) if way == AS_A_RUN else None
    ways = Ways(above, positions_in(str(folder / "index"), 1 << 30), moved=moved)
    clock = Clock()
    for turn in range(rounds):
        clocks.turn(turn)
        changes = updates(rows, count, turn)
        if changelog is None:
            path, properties = str(folder / "changelog"), changelog_properties(_HISTORY)
            changelog = DeltaTable.create(path, changes.schema, properties)
        since = changelog.version
        changelog.commit([changelog.write(changes)], txns={"bench": turn})
        maintain_briefly(changelog, since, _HISTORY)
        since = lake.version
        effect = apply(lake, prepare(changes, TABLE, lake.schema), ways=ways)
        if effect.marked:
            lake.enable_vectors()
        added = [lake.write(part) for part in effect.rows]
        lake.commit(added, effect.removed, marked=effect.marked, txns={"bench": turn})
        if maintain_briefly(lake, since, _HISTORY, ("id",)):
            maintain_behind(lake, ("id",))
    cpu = 1e3 * clock.read()[1] / rounds
    clocks.end()
    assert changelog is not None
    live = sum(file.size for table in (lake, changelog) for file in table.files)
    files, octets = held(folder)
    kinds = " | ".join(f"{files[kind]} ({octets[kind] / 1e6:.1f} MB)" for kind in KINDS)
    took = f"{sum(octets.values()) / 1e6:.1f} | {5 * live / 1e6 + 10:.1f}"
    mine = sum(file.size for file in lake.files) / 1e6
    return f"| {rows:,} | {mine:.2f} | {way} | {cpu:.1f} | {took} | {kinds} |"


def main() -> None:
    """Print a table."""
    numbers = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    numbers.add_argument("--rows", default="300,1000,5000,30000")
    numbers.add_argument("--rounds", type=int, default=400)
    numbers.add_argument("--updates", type=int, default=4)
    numbers.add_argument("--seconds", type=float, default=0)
    numbers.add_argument("--by", default=",".join(MARK_ABOVE))
    asked = numbers.parse_args()
    print(f"| rows | live MB | by | CPU ms | MB on disk | 5 × live + 10 MB | {' | '.join(KINDS)} |")
    print("|---" * (6 + len(KINDS)) + "|")
    for rows in map(int, asked.rows.split(",")):
        for way in asked.by.split(","):
            with tempfile.TemporaryDirectory() as folder:
                print(measure(Path(folder), way, rows, asked.rounds, asked.updates, asked.seconds), flush=True)


if __name__ == "__main__":
    main()

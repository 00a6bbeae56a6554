"""What a round of changes costs by the size of its table: merge on read, beside copy-on-write and delta-rs' MERGE.

    python benchmarks/micro/bench_round.py [--rows 1000000,10000000] [--turns 30] [--others 2] [--spark]
    python benchmarks/micro/bench_round.py --rows 2000000 --turns 3000 --others 0 --every 500     # a curve
    python benchmarks/micro/bench_round.py --others 0 --mode history

Each way begins with an equal table (8 mixed columns, 400,000 rows a file) and takes rounds of change rows at random
keys: half updates, a quarter inserts, a quarter deletes. Merge on read: the rows are found by the index of keys, marked
in deletion vectors, and appended anew, and the round's compaction follows. Milliseconds of the wall clock and of the
CPU (all threads) are medians; peak memory is that of a process which does nothing else. The index is made before the
rounds: that is what a moved task pays once. ``read``: the CPU seconds in which delta-rs (with ``--spark`` also Spark)
reads the whole table after all rounds, beside a table with the same rows that was written at once; Spark's CPU is that
of the Java process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from benchmarks.micro.bench_apply import TABLE, Clock, change_rows, fill, ours, theirs
from cdc_core.lake.apply.changes import apply, prepare
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.apply.ways import Ways
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.index.key_positions import KeyPositions
from cdc_core.lake.maintenance.compaction import maintain_after
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.schema.lake_schema import lake_properties

FILE_ROWS = 400_000
INDEX_BYTES = 1 << 40


def opened(folder: Path) -> DeltaTable:
    """The table in a folder."""
    table = DeltaTable.open(str(folder / "lake"))
    assert table is not None
    return table


def marked_round(table: DeltaTable, positions: KeyPositions, rows: pa.Table, turn: int) -> dict[str, float]:
    """One round by deletion vectors; milliseconds of its steps."""
    clock, since = Clock(), table.version
    changes = prepare(rows, TABLE, table.schema)
    assert isinstance(changes, KeyedChanges)
    reduced = changes.reduced
    before, _ = clock.read()
    hits = positions.locate(table, table.files, reduced.index)
    found, _ = clock.read()
    added = [table.write(reduced.rows.filter(pa.array(~reduced.deleted)))]
    table.commit(added, marked=[MarkedRows(each.file, each.places) for each in hits], txns={"bench": turn})
    done, cpu = clock.read()
    maintain_after(table, since, 0, ("id",))
    upkeep, _ = clock.read()
    return {
        "ms": 1e3 * done,
        "cpu_ms": 1e3 * cpu,
        "locate_ms": 1e3 * (found - before),
        "upkeep_ms": 1e3 * (upkeep - done),
    }


def say_window(turn: int, spent: list[dict[str, float]], table: DeltaTable) -> None:
    """Print the medians of the last rounds, and what the table consists of."""
    ms, cpu, upkeep = (statistics.median(one[name] for one in spent) for name in ("ms", "cpu_ms", "upkeep_ms"))
    mean = statistics.mean(one["ms"] + one["upkeep_ms"] for one in spent)
    held, live = sum(file.rows for file in table.files), sum(file.live for file in table.files)
    print(
        f"after {turn:,} rounds, the last {len(spent)}: {ms:.1f} ms, {cpu:.1f} CPU ms, upkeep {upkeep:.1f} ms, "
        f"mean of both {mean:.1f} ms; {len(table.files)} files, {held / live:.2f} rows read for a live one",
        flush=True,
    )


def applied_round(table: DeltaTable, positions: KeyPositions, rows: pa.Table, turn: int) -> dict[str, float]:
    """One round as the product applies it, in any delete mode; milliseconds."""
    clock, since = Clock(), table.version
    effect = apply(table, prepare(rows, TABLE, table.schema), ways=Ways(0, positions))
    added = [table.write(each) for each in effect.rows]
    table.commit(added, effect.removed, marked=effect.marked, txns={"bench": turn})
    done, cpu = clock.read()
    maintain_after(table, since, 0, ("id",))
    upkeep, _ = clock.read()
    return {"ms": 1e3 * done, "cpu_ms": 1e3 * cpu, "upkeep_ms": 1e3 * (upkeep - done)}


def by_vectors(folder: Path, rows: int, changes: int, turns: int, every: int = 0) -> dict[str, float]:
    """Rounds by merge on read."""
    table = opened(folder)
    table.enable_vectors()
    positions, clock = KeyPositions(folder / "index", INDEX_BYTES), Clock()
    positions.ready(table, table.files, KeyColumns.of(["id"], table.schema), 1e9)
    index, _ = clock.read()
    spent, one_round = [], marked_round if mode_of(table.schema.names) is DeleteMode.HARD else applied_round
    for turn in range(1, turns + 2):
        spent.append(one_round(table, positions, change_rows(changes, 0, rows, rows + turn * changes, turn), turn))
        if every and turn > 1 and (turn - 1) % every == 0:
            say_window(turn - 1, spent[-min(every, 100) :], table)
    found = {name: statistics.median(one[name] for one in spent[1:]) for name in spent[0]}
    ordered = sorted(one["ms"] + one["upkeep_ms"] for one in spent[1:])
    return {**found, "p95_ms": ordered[int(0.95 * (len(ordered) - 1))], "index_s": index}


def by_rewriting(folder: Path, rows: int, changes: int, turns: int) -> dict[str, float]:
    """Rounds by copy-on-write."""
    table = opened(folder)
    spent = [ours(table, change_rows(changes, 0, rows, rows + turn * changes, turn), turn) for turn in range(turns)]
    return {"ms": 1e3 * statistics.median(s for s, *_ in spent), "cpu_ms": 1e3 * statistics.median(s[1] for s in spent)}


def by_delta_rs(folder: Path, rows: int, changes: int, turns: int) -> dict[str, float]:
    """Rounds by delta-rs' MERGE of rows that are reduced already."""
    schema, spent = opened(folder).schema, []
    for turn in range(turns):
        made = change_rows(changes, 0, rows, rows + turn * changes, turn)
        changes = prepare(made, TABLE, schema)
        assert isinstance(changes, KeyedChanges)
        spent.append(theirs(folder / "lake", changes))
    return {"ms": 1e3 * statistics.median(s for s, *_ in spent), "cpu_ms": 1e3 * statistics.median(s[1] for s in spent)}


class SparkReads:
    """Spark's reads; CPU seconds are those of its Java process."""

    def __init__(self) -> None:
        from cdc_core.spark.session import get_session

        self._spark = get_session()
        self._java = Path(f"/proc/{self._spark.sparkContext._gateway.proc.pid}/stat")

    def read_seconds(self, folder: Path) -> float:
        """CPU seconds in which Spark goes through the whole table; the least of seven, the first ones to warm up."""
        query = f"select count(*), sum(customer), max(note), sum(amount), sum(weight) from delta.`{folder / 'lake'}`"
        return min(self._timed(query) for _ in range(7))

    def _timed(self, statement: str) -> float:
        cpu = self._cpu()
        self._spark.sql(statement).collect()
        return self._cpu() - cpu

    def _cpu(self) -> float:
        fields = self._java.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_seconds(folder: Path) -> float:
    """CPU seconds in which delta-rs' reader goes through the whole table; the least of five."""
    import deltalake

    query, took = "select count(*), sum(customer), max(note), sum(amount), sum(weight) from t", []
    for _ in range(5):
        clock = Clock()
        builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder / "lake")))
        pa.table(builder.execute(query).read_all())
        took.append(clock.read()[1])
    return min(took)


def written_at_once(folder: Path) -> Path:
    """A folder with a table of the same rows, in files as large as those of a snapshot."""
    table = opened(folder)
    fresh = DeltaTable.create(str(folder / "fresh" / "lake"), table.schema, lake_properties(0))
    rows = (batch for file in table.files for part in table.batches(file) for batch in part.to_batches())
    fresh.commit(fresh.write_stream(rows, table.schema, FILE_ROWS))
    return folder / "fresh"


def _in_process(work: Callable[..., dict[str, float]], *given: Any) -> dict[str, float]:
    """The result of ``work`` in a process of its own, and that process's peak memory."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=_child, args=(its, work, given))
    process.start()
    its.close()
    try:
        found: dict[str, float] = mine.recv()
    finally:
        process.join()
    return found


def _child(pipe: Any, work: Callable[..., dict[str, float]], given: tuple[Any, ...]) -> None:
    found = work(*given)
    pipe.send({**found, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def measure(
    rows: int, changes: int, turns: int, others: int, every: int, spark: SparkReads | None, mode: DeleteMode
) -> None:
    """Print the lines of one table's size."""
    with tempfile.TemporaryDirectory(prefix="bench-round-") as made:
        folder = Path(made)
        whole = folder / "whole"
        fill(whole / "lake", rows, FILE_ROWS, mode)
        for name, work, many in (
            ("merge on read", partial(by_vectors, every=every), turns),
            ("copy-on-write", by_rewriting, others),
            ("delta-rs MERGE", by_delta_rs, others),
        ):
            if not many:
                continue
            own = folder / "own"
            shutil.copytree(whole, own)
            found = _in_process(work, own, rows, changes, many)
            steps = " | ".join(
                f"{found[step]:.1f}" if step in found else "" for step in ("locate_ms", "upkeep_ms", "p95_ms")
            )
            fresh = written_at_once(own)
            read = f"{read_seconds(own) / read_seconds(fresh):.2f}"
            if spark is not None:
                read += f" (Spark {spark.read_seconds(own) / spark.read_seconds(fresh):.2f})"
            print(
                f"| {rows:,} | {changes:,} | {name} | {found['ms']:,.1f} | {found['cpu_ms']:,.1f} | {steps} | "
                f"{found['mb']:,.0f} | {read} |",
                flush=True,
            )
            if "index_s" in found:
                octets = sum(path.stat().st_size for path in (own / "index").iterdir())
                print(
                    f"| | | its index: {found['index_s']:.2f} s, {octets / 2**20:,.0f} MiB | | | | | | | |", flush=True
                )
            shutil.rmtree(own)


def main() -> None:
    """Print a table."""
    numbers = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    numbers.add_argument("--rows", default="1000000,10000000")
    numbers.add_argument("--changes", default="1000")
    numbers.add_argument("--turns", type=int, default=30)
    numbers.add_argument("--others", type=int, default=2, help="rounds of the other ways; 0 leaves them out")
    numbers.add_argument("--every", type=int, default=0, help="print a line after so many rounds of merge on read")
    numbers.add_argument("--spark", action="store_true", help="also how long Spark reads")
    numbers.add_argument("--mode", choices=list(DeleteMode), default=DeleteMode.HARD, type=DeleteMode)
    asked = numbers.parse_args()
    if asked.mode is not DeleteMode.HARD and asked.others:
        numbers.error("--mode is measured by merge on read alone: --others 0")
    spark = SparkReads() if asked.spark else None
    print("| rows | changes | by | ms | CPU ms | to find | upkeep | p95 of all | peak MB | read × |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for rows in map(int, asked.rows.split(",")):
        for changes in map(int, asked.changes.split(",")):
            measure(rows, changes, asked.turns, asked.others, asked.every, spark, asked.mode)


if __name__ == "__main__":
    main()

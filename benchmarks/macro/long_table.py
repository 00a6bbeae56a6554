"""One table whose changelog grows to millions of rows, and one of a thousand columns: does a round stay as it was?

    python -m benchmarks.macro.long_table                    # 5 M changes in steps of 10,000; 1,000 columns
    python -m benchmarks.macro.long_table --quick            # small: proves that it runs
    python -m benchmarks.macro.long_table --csv curve.csv    # a line a round

A step is committed, and the next one when a round has brought the lake to it, so every round has the same number of
changes and what differs between them is what has piled up: changelog rows, files, log entries. Rounds are those of
``wal2lake run`` with its defaults, in this process; a round's seconds are its own (``RoundReport.seconds``), its
CPU-seconds those of its tasks. A tenth of the rounds is a line; the first round, which is cold, is left out.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from cdc_core.engine.reports import RoundReport, Until
from cdc_core.lsn import Lsn
from tests.support.cluster import Cluster
from tests.support.lake import difference, write_properties

_TENTHS = 10
_ROUND_SECONDS = 300
_TRANSACTION = 100


@dataclass(frozen=True, slots=True)
class Step:
    """One round. ``changelog_rows`` is what the changelog holds after it."""

    changelog_rows: int
    seconds: float
    task_cpu_seconds: float
    behind_seconds: float
    lake_files: int
    changelog_files: int
    log_entries: int


@dataclass(frozen=True, slots=True)
class Load:
    """A table, its first rows, and changes in steps. ``statements`` gives the SQL of the transactions of one step."""

    name: str
    ddl: str
    rows: int
    changes: int
    step: int
    statements: Callable[[random.Random, int], Iterator[str]]


def long_load(rows: int, changes: int, step: int) -> Load:
    """Half updates of random rows, a quarter inserts, a quarter deletes; ten columns."""
    columns = ", ".join(f"c{number} text default md5({number}::text)" for number in range(7))
    ddl = f"""
        create table big (id bigint primary key, n bigint default 0, at timestamptz default now(), {columns});
        insert into big (id) select g from generate_series(1, {rows}) g;
    """
    state = {"first": 1, "next": rows + 1}

    def statements(chance: random.Random, count: int) -> Iterator[str]:
        for _ in range(count // _TRANSACTION):
            quarter = _TRANSACTION // 4
            keys = chance.sample(range(state["first"] + quarter, state["next"]), 2 * quarter)
            low, high = state["next"], state["next"] + quarter - 1
            yield (
                f"update big set n = n + 1, c3 = md5(n::text) where id in ({', '.join(map(str, keys))});"
                f"insert into big (id) select g from generate_series({low}, {high}) g;"
                f"delete from big where id between {state['first']} and {state['first'] + quarter - 1}"
            )
            state["first"], state["next"] = state["first"] + quarter, high + 1

    return Load("long", ddl, rows, changes, step, statements)


def wide_load(columns: int, rows: int, changes: int, step: int) -> Load:
    """Updates of three columns of random rows; whole rows are logged by PostgreSQL all the same."""
    # A row must fit a page of 8 KB, and short values are not moved out of it.
    kinds = ("int default 1", "text default 'text'", "numeric(6, 2) default 1.5", "date default current_date")
    listed = ", ".join(f"c{number} {kinds[number % 4]}" for number in range(columns - 1))
    ddl = f"create table big (id bigint primary key, {listed}); insert into big select generate_series(1, {rows});"

    def statements(chance: random.Random, count: int) -> Iterator[str]:
        for start in range(0, count, _TRANSACTION):
            size = min(_TRANSACTION, count - start)
            keys = ", ".join(map(str, chance.sample(range(1, rows + 1), size)))
            yield f"update big set c0 = c0 + 1, c1 = c0, c500 = c500 + 1 where id in ({keys})"

    return Load("wide", ddl, rows, changes, step, statements)


class Writer(threading.Thread):
    """Commits a step, waits until a round has it, and commits the next; ``steps`` are the rounds' figures."""

    def __init__(self, cluster: Cluster, database: str, load: Load, lake: Path) -> None:
        super().__init__(daemon=True)
        self._cluster, self._database, self._load, self._lake = cluster, database, load, lake
        self._rounds: list[RoundReport] = []
        self._changed = threading.Condition()
        self.done = threading.Event()
        self.steps: list[Step] = []
        self.error: BaseException | None = None

    def on_round(self, report: RoundReport) -> None:
        """What the engine calls after each round."""
        with self._changed:
            self._rounds.append(report)
            self._changed.notify_all()

    def run(self) -> None:
        """All steps."""
        try:
            self._run()
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def _run(self) -> None:
        chance, load, changes = random.Random(1), self._load, 0
        with self._cluster.connect(self._database) as connection:
            connection.autocommit = True
            while changes < load.changes:
                at = Lsn(0)
                for statement in load.statements(chance, load.step):
                    connection.execute(f"begin; {statement}")
                    # Before the commit, so that the commit's own LSN is not below it.
                    row = connection.execute("select pg_current_wal_insert_lsn()").fetchone()
                    at = Lsn.parse(str(row[0]))
                    connection.execute("commit")
                committed = time.monotonic()
                mine = self._wait(at)
                changes += load.step
                self.steps.append(self._step(mine, changes, time.monotonic() - committed))

    def _wait(self, lsn: int) -> list[RoundReport]:
        end = time.monotonic() + _ROUND_SECONDS
        with self._changed:
            while not self._rounds or self._rounds[-1].lsn < lsn:
                if not self._changed.wait(end - time.monotonic()):
                    raise RuntimeError(f"no round reached {lsn} within {_ROUND_SECONDS} s")
            found, self._rounds = self._rounds, []
        return found

    def _step(self, rounds: list[RoundReport], changes: int, behind: float) -> Step:
        from deltalake import DeltaTable

        lake, changelog = self._lake / "public" / "big", self._lake / "__changelog" / "public" / "big"
        return Step(
            changes,
            sum(report.seconds for report in rounds),
            sum(sum(report.parts.values()) for report in rounds),
            behind,
            len(DeltaTable(str(lake)).file_uris()),
            len(DeltaTable(str(changelog)).file_uris()),
            sum(1 for _ in (changelog / "_delta_log").glob("*.json")),
        )


def measure(cluster: Cluster, load: Load, folder: Path) -> list[Step]:
    """Run one load; the figures of its rounds. Raises where the lake is not the source's rows at the end."""
    from cdc_core.assemble import Connector
    from cdc_core.config.connector import load as read
    from cdc_core.schema.table import TableId

    database = cluster.database(f"long_table_{load.name}")
    cluster.execute(database, load.ddl)
    properties = {"wal2lake.lake.path": str(folder / "lake"), "wal2lake.state.path": str(folder / "state")}
    file = write_properties(folder / f"{load.name}.properties", cluster.properties(database, **properties))
    connector = Connector.from_file(file)
    connector.initial_snapshot()
    writer = Writer(cluster, database, load, folder / "lake" / read(file).schema.topic_prefix)
    writer.start()
    connector.stream(Until(), on_round=writer.on_round, should_stop=writer.done.is_set)
    writer.join(60)
    if writer.error is not None:
        raise writer.error
    if found := difference(file, [TableId("public", "big")]):
        raise RuntimeError(f"the lake is not the source's rows: {found}")
    return writer.steps


def report(load: Load, steps: list[Step]) -> None:
    """Print a line a tenth, and the last tenth against the first."""
    print(f"\n{load.name}: {load.rows:,} rows, {load.changes:,} changes in steps of {load.step:,}\n")
    print("| changelog rows | seconds a round | CPU-seconds of tasks | behind, s | lake files | changelog files |")
    print("|---|---|---|---|---|---|")
    tenths = list(_tenths(steps[1:]))
    for part in tenths:
        print(
            f"| {part[-1].changelog_rows:,} | {mean(s.seconds for s in part):.2f} "
            f"| {mean(s.task_cpu_seconds for s in part):.2f} | {mean(s.behind_seconds for s in part):.2f} "
            f"| {part[-1].lake_files} | {max(s.changelog_files for s in part)} |"
        )
    if len(tenths) > 1:
        first, last = (mean(s.seconds for s in tenths[n]) for n in (0, -1))
        cpu = [mean(s.task_cpu_seconds for s in tenths[n]) for n in (0, -1)]
        print(f"\nlast against first tenth: {last / first:.2f} × the seconds, {cpu[1] / cpu[0]:.2f} × the CPU-seconds")


def _tenths(steps: list[Step]) -> Iterator[list[Step]]:
    bounds = [len(steps) * number // _TENTHS for number in range(_TENTHS + 1)]
    yield from (steps[low:high] for low, high in itertools.pairwise(bounds) if high > low)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="w2l-long-") as name:
        yield Path(name)


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    small = arguments.quick
    loads = {
        "long": long_load(*((20_000, 40_000, 2_000) if small else (arguments.rows, arguments.changes, arguments.step))),
        "wide": wide_load(arguments.columns, *((200, 1_000, 100) if small else (5_000, 100_000, 1_000))),
    }
    cluster = Cluster.start("debian15")
    found: dict[str, Any] = {}
    try:
        for name in arguments.only.split(","):
            with _folder() as folder:
                steps = measure(cluster, loads[name], folder)
            report(loads[name], steps)
            found[name] = [asdict(step) for step in steps]
    finally:
        cluster.stop()
    for place in filter(None, (arguments.json, arguments.csv)):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found), encoding="utf-8")
    if arguments.csv:
        with Path(arguments.csv).open("w", newline="", encoding="utf-8") as target:
            lines = csv.writer(target)
            for name, steps in found.items():
                lines.writerows([name, *step.values()] for step in steps)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small and short")
    parser.add_argument("--only", default="long,wide", help="long, wide, or both")
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the long table")
    parser.add_argument("--changes", type=int, default=5_000_000, help="changes of the long table")
    parser.add_argument("--step", type=int, default=10_000, help="changes a round of the long table")
    parser.add_argument("--columns", type=int, default=1_000, help="columns of the wide table")
    parser.add_argument("--json", help="write the figures of every round there")
    parser.add_argument("--csv", help="the same as lines")
    return parser.parse_args()


if __name__ == "__main__":
    main()

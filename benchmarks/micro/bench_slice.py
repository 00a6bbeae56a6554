"""What a table costs a round: spool file to commit, by the engine's own task, in one process without Spark.

    python benchmarks/micro/bench_slice.py [--tables 7] [--changes 20] [--rows 10000] [--rounds 60] [--profile FILE]
        [--feed] [--identity full]

Each table has ``rows`` rows of the columns of ``benchmarks.freshness``, with generated rules and all defaults. In a
round each takes ``changes`` changes (half updates, a quarter inserts, a quarter deletes) as pgoutput sent them, through
decoding, the changelog, the rules, the merge and compaction. Printed are CPU milliseconds a table and round (all
threads of this process; the mean after ``--warm-up`` rounds), in all and by part. Spark, the driver and the slot's
reader are not in them. ``--profile`` writes what cProfile counted. With ``--feed`` every second table has a
change data feed, and its costs are printed beside those of the others.
"""

from __future__ import annotations

import argparse
import cProfile
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from cdc_core.decode.pgoutput import StreamState, sort_segment
from cdc_core.decode.segment import Segment
from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.options import LakeOptions
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import ChangelogPosition
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.rows.spool import Spool
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.lake_tables import LakeTables
from cdc_core.lake.slice.order import MergeOrder, SliceOrder, SnapshotInForce, SpoolFiles
from cdc_core.lake.slice.task import SliceTask
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.lake.write.replace import commit_snapshot, prepare, write_rows
from cdc_core.quality.options import QualityOptions
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.types import TypeOptions
from tests.support import plain_pgoutput as plain

_TYPES = {
    "id": (20, "int8", -1),
    "name": (25, "text", -1),
    "amount": (1700, "numeric", ((12 << 16) | 2) + 4),
    "changed_at": (1184, "timestamptz", -1),
    "active": (16, "bool", -1),
    "attributes": (3802, "jsonb", -1),
    "quantity": (23, "int4", -1),
    "note": (25, "text", -1),
}
_TIME_US = 1_700_000_000_000_000
_SLOT = "bench"


def values(number: int, turn: int) -> list[plain.Value]:
    """A row's texts."""
    return [
        str(number),
        f"name of row number {number}",
        f"{number % 1000}.{turn % 100:02}",
        f"2026-11-21 08:15:{turn % 60:02}.123456+00",
        "t" if turn % 2 else "f",
        f'{{"group": {number % 97}, "tags": ["a", {number % 7}]}}',
        str(turn),
        None if number % 4 == 0 else f"a note of some length on row {number}",
    ]


class Source:
    """One table, as a walsender sends it."""

    def __init__(self, number: int, rows: int, changes: int, identity: ReplicaIdentity) -> None:
        oid = 16_400 + number
        columns = tuple(
            Column(name, PgType(kind, type_name), modifier=modifier, optional=name == "note")
            for name, (kind, type_name, modifier) in _TYPES.items()
        )
        self.table = TableSchema(TableId("public", f"t{number:03}"), oid, columns, primary_key=("id",))
        described = tuple(RelationColumn(name, *(_TYPES[name][0], _TYPES[name][2]), name == "id") for name in _TYPES)
        self.relation = Relation(oid, "public", self.table.id.table, identity, described)
        self._live, self._next = list(range(1, rows + 1)), rows + 1
        self._old = dict[int, int]()  # the turn of each row's last change
        self._random, self._changes = random.Random(number), changes
        self.end: int | None = None

    def batch(self, turn: int, lsn: int) -> pa.RecordBatch:
        """The changes of one round, in one transaction."""
        made = [self._change(turn) for _ in range(self._changes)]
        frames = [plain.frame(plain.relation_message(self.relation)), plain.frame(plain.begin(lsn, _TIME_US, turn))]
        frames += [plain.frame(change, lsn - len(made) + at) for at, change in enumerate(made)]
        frames.append(plain.frame(plain.commit(lsn, lsn + 48, _TIME_US), lsn))
        (run,) = sort_segment(Segment.of(frames), StreamState(), lambda relation, at: self.table).runs
        return run.raw

    def _change(self, turn: int) -> bytes:
        kind, place = self._random.random(), self._random.randrange(len(self._live))
        if kind < 0.5:
            key = self._live[place]
            return plain.update(self.relation.oid, values(key, turn), self._before(key, turn))
        if kind < 0.75:
            self._live.append(self._next)
            self._next += 1
            self._old[self._next - 1] = turn
            return plain.insert(self.relation.oid, values(self._next - 1, turn))
        self._live[place], self._live[-1] = self._live[-1], self._live[place]
        gone = self._live.pop()
        if (before := self._before(gone, turn)) is not None:
            return plain.delete(self.relation.oid, before, "O")
        return plain.delete(self.relation.oid, [str(gone), *[None] * (len(_TYPES) - 1)])

    def _before(self, key: int, turn: int) -> list[str | None] | None:
        """The row before its change, which the server sends with REPLICA IDENTITY FULL."""
        before, self._old[key] = self._old.get(key, 0), turn
        return [*values(key, before)] if self.relation.identity is ReplicaIdentity.FULL else None


class Bench:
    """Tables and their lake in a folder."""

    def __init__(
        self, folder: Path, tables: int, rows: int, changes: int, identity: ReplicaIdentity, *, feeds: bool
    ) -> None:
        self.owner = Owner(uuid.uuid4().hex, _SLOT)
        (folder / "spool").mkdir()
        self.spool = Spool(folder / "spool", self.owner)
        fed = (r"public\.t\d*[13579]",) if feeds else ()
        options, plan = (
            LakeOptions(lake_path=str(folder), lake_change_feed_tables=fed),
            TypingPlan(TypeOptions(), SelectionOptions()),
        )
        paths = LakePaths(str(folder), "t")
        checks = TableChecks(QualityOptions(), plan, lambda table: table)
        writer = LakeWriter.of(options, folder / "scratch", self.owner, folder / "index")
        self.task = SliceTask(self.owner.run, _SLOT, paths, plan, checks, LakeTables.of(options), writer)
        self.sources = [Source(number, rows, changes, identity) for number in range(tables)]
        row = plan.typer(self.sources[0].table).row_type
        schema = lake_schema(row)
        for source in self.sources:
            lake = prepare(paths.lake(source.table.id), schema, source.table.id, options.lake_history_minutes)
            files = write_rows(lake, _snapshot(rows, row, schema).to_batches(), schema)
            commit_snapshot(lake, files, schema, _SLOT, source.table.id, token=1, schema_version=1)

    def orders(self, turn: int) -> list[SliceOrder]:
        """What a round of all tables is to do; spooled."""
        lsn = (1 << 32) + turn * 10_000
        return [self._order(source, turn, lsn) for source in self.sources]

    def _order(self, source: Source, turn: int, lsn: int) -> SliceOrder:
        path = self.spool.write_raw(source.relation, source.table, source.batch(turn, lsn))
        before = None if source.end is None else ChangelogPosition(source.end)
        spool = SpoolFiles(((1, str(path)),), source._changes, Reached(lsn), before)
        snapshot = SnapshotInForce(token=1, merged=source.end)
        source.end = lsn
        return SliceOrder(TargetSchema(source.table, 1), snapshot, spool, MergeOrder(lsn))


def _snapshot(rows: int, row: pa.StructType, schema: pa.Schema) -> pa.Table:
    texts = [dict(zip(_TYPES, values(number, 0), strict=True)) for number in range(1, rows + 1)]
    columns = {name: pa.array([text[name] for text in texts], pa.string()) for name in _TYPES}
    columns["active"] = pa.array([True] * rows)
    columns["changed_at"] = pa.array([_TIME_US] * rows, pa.int64())
    made = {name: columns[name].cast(row.field(name).type) for name in _TYPES}
    made |= {"__commit_lsn": pa.array([1] * rows), "__tx_index": pa.array([-1] * rows)}
    arrays = [
        made[field.name].cast(field.type) if field.name in made else pa.nulls(rows, field.type) for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def main() -> None:
    """Print CPU milliseconds a table and round."""
    numbers = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    numbers.add_argument("--tables", type=int, default=7)
    numbers.add_argument("--changes", type=int, default=20)
    numbers.add_argument("--rows", type=int, default=10_000)
    numbers.add_argument("--rounds", type=int, default=60)
    numbers.add_argument("--warm-up", type=int, default=15)
    numbers.add_argument("--profile", default="")
    numbers.add_argument("--feed", action="store_true", help="every second table has a change data feed")
    numbers.add_argument("--identity", choices=("default", "full"), default="default", help="REPLICA IDENTITY")
    asked = numbers.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-slice-"))
    try:
        identity = ReplicaIdentity[asked.identity.upper()]
        measure(Bench(folder, asked.tables, asked.rows, asked.changes, identity, feeds=asked.feed), asked)
    finally:
        shutil.rmtree(folder)


def measure(bench: Bench, asked: argparse.Namespace) -> None:
    """Run the rounds and print."""
    kinds = ["", "with a feed"] if asked.feed else [""]
    parts, cpu = [Counter[str]() for _ in kinds], [0.0 for _ in kinds]
    profile = cProfile.Profile(time.process_time) if asked.profile else None
    for turn in range(1, asked.warm_up + asked.rounds + 1):
        for number, order in enumerate(bench.orders(turn)):
            began = time.process_time()
            if profile is not None and turn > asked.warm_up:
                profile.enable()
            outcome = bench.task(order)
            if profile is not None:
                profile.disable()
            spent = time.process_time() - began
            assert outcome.error is None and outcome.merged == order.to_lsn, outcome
            Path(order.files[0][1]).unlink()
            if turn > asked.warm_up:
                cpu[number % len(kinds)] += spent
                parts[number % len(kinds)].update(outcome.timings.cpu_seconds)
    for number, kind in enumerate(kinds):
        tables = len(bench.sources[number :: len(kinds)])
        each = tables * asked.rounds / 1e3
        told = ", ".join(f"{name} {seconds / each:.2f}" for name, seconds in parts[number].items())
        what = f"{tables} tables {kind}".strip()
        print(f"{what}, {asked.changes} changes: {cpu[number] / each:.2f} CPU ms a table and round: {told}")
    if profile is not None:
        profile.dump_stats(asked.profile)


if __name__ == "__main__":
    main()

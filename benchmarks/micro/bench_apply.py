"""What applying a slice of changes to a lake table costs: our copy-on-write beside delta-rs' own MERGE, turn by turn.

    python benchmarks/micro/bench_apply.py [--rows 10000,1000000,5000000] [--changes 150,1000,100000] [--turns 3]

Both tables begin equal: ``rows`` rows of 8 mixed columns in files of at most 1 M rows. Each turn takes change rows
(half updates, a quarter inserts, a quarter deletes, at random keys) through reduction, application and commit; delta-rs
gets the rows already reduced. Seconds and CPU-seconds (of all threads) are medians of the turns, the first left out.
``one range`` has its changes in a hundredth of the keys: there statistics leave most files of a large table alone.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.changes import apply, prepare
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import lake_properties, lake_schema
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema

FILE_ROWS = 1_000_000
ROW = pa.struct(
    [
        ("id", pa.int64()),
        ("customer", pa.int32()),
        ("status", pa.string()),
        ("note", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("weight", pa.float64()),
        ("placed", pa.timestamp("us", "UTC")),
        ("paid", pa.bool_()),
        ("__rescued", pa.map_(pa.string(), pa.string())),
    ]
)
LAKE = lake_schema(ROW)
TABLE = TableSchema(
    TableId("public", "orders"), 1, (Column("id", PgType(20, "int8"), optional=False),), primary_key=("id",)
)
# The columns besides the source's; the others of a delete mode are null.
AT_SNAPSHOT = {"__commit_lsn": 1, "__tx_index": -1, "__valid_from_lsn": 1, "__current": True, "__deleted": False}
META = {"__lsn": pa.int64(), "__xid": pa.int64()}


def images(ids: np.ndarray, seed: int) -> list[pa.Array]:
    """The columns of ROW for some ids."""
    chance, count = np.random.default_rng(seed), len(ids)
    cents = pa.array(chance.integers(0, 10**9, count)).cast(pa.decimal128(19, 0)).to_numpy(zero_copy_only=False)
    return [
        pa.array(ids),
        pa.array(chance.integers(0, 100_000, count, dtype=np.int32)),
        pa.array(["new", "paid", "sent", "back"]).take(pa.array(chance.integers(0, 4, count))),
        pa.array(np.char.add("note of the order ", chance.integers(0, 10**9, count).astype(str))),
        pa.array(cents).cast(pa.decimal128(12, 2)),
        pa.array(chance.random(count)),
        pa.array(chance.integers(0, 2 * 10**15, count)).cast(pa.timestamp("us", "UTC")),
        pa.array(chance.random(count) < 0.5),
        pa.nulls(count, ROW.field("__rescued").type),
    ]


def fill(path: Path, rows: int, file_rows: int = FILE_ROWS, mode: DeleteMode = DeleteMode.HARD) -> DeltaTable:
    """A table of ``rows`` rows, as a snapshot leaves it."""
    schema = lake_schema(ROW, mode)
    table = DeltaTable.create(str(path), schema, lake_properties(0))
    files = []
    for start in range(0, rows, file_rows):
        ids = np.arange(start, min(rows, start + file_rows))
        meta = [_repeated(AT_SNAPSHOT.get(each.name), each.type, len(ids)) for each in list(schema)[len(ROW) :]]
        made = pa.Table.from_arrays([*images(ids, start), *meta], schema=schema)
        files += table.write_stream(made.to_batches(), schema, file_rows)
    table.commit(files)
    return table


def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.array([value], kind).take(pa.array(np.zeros(count, dtype=np.int64)))


def change_rows(count: int, low: int, high: int, fresh: int, turn: int, *, is_full: bool = False) -> pa.Table:
    """Change rows of one turn; inserts get ids from ``fresh`` on. ``is_full``: with REPLICA IDENTITY FULL."""
    chance = np.random.default_rng(turn)
    op = np.array(["u", "u", "c", "d"])[np.arange(count) % 4]
    ids = chance.integers(low, high, count)
    ids[op == "c"] = fresh + np.arange(np.count_nonzero(op == "c"))
    columns = images(ids, turn)
    gone = pa.array(op == "d")
    after = pa.StructArray.from_arrays(columns, fields=list(ROW), mask=gone)
    others = images(ids, -turn % 2**32)[1:] if is_full else [pa.nulls(count, each.type) for each in list(ROW)[1:]]
    has_none = op == "c" if is_full else op != "d"
    before = pa.StructArray.from_arrays([columns[0], *others], fields=list(ROW), mask=pa.array(has_none))
    lsn = pa.array(np.full(count, 100 + turn))
    no_names = pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, dtype=np.int32)), pa.array([], pa.string()))
    names = ["__op", "__commit_lsn", "__tx_index", "__lsn", "__xid", "__commit_ts", "__unchanged", "before", "after"]
    stamps = pa.nulls(count, LAKE[-1].type)
    arrays = [pa.array(op), lsn, pa.array(np.arange(count)), lsn, lsn, stamps, no_names, before, after]
    return pa.Table.from_arrays(arrays, names=names)


class Clock:
    """Wall and CPU seconds since it was made, of all threads."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._began[0], time.process_time() - self._began[1]


def ours(table: DeltaTable, rows: pa.Table, turn: int) -> tuple[float, ...]:
    """Seconds and CPU-seconds of the whole, and seconds of the reduction in it."""
    clock = Clock()
    changes = prepare(rows, TABLE, table.schema)
    reduced, _ = clock.read()
    rewrite = apply(table, changes)
    table.commit([table.write(part) for part in rewrite.rows], rewrite.removed, txns={"bench": turn})
    return *clock.read(), reduced


def theirs(path: Path, changes: KeyedChanges) -> tuple[float, ...]:
    """Seconds and CPU-seconds of delta-rs' MERGE of the reduced rows."""
    import deltalake

    rows = changes.reduced.rows.append_column("gone", pa.array(changes.reduced.deleted))
    clock = Clock()
    (
        deltalake.DeltaTable(str(path))
        .merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_delete("s.gone")
        .when_matched_update({name: f"s.{name}" for name in LAKE.names})
        .when_not_matched_insert({name: f"s.{name}" for name in LAKE.names}, "not s.gone")
        .execute()
    )
    return clock.read()


def measure(rows: int, changes: int, turns: int, folder: Path) -> Iterator[str]:
    """One line of the result for changes all over the table, one for changes in one range of it."""
    table = fill(folder / "ours", rows)
    shutil.copytree(folder / "ours", folder / "theirs")
    fresh, turn = rows, 0
    for where, high in (("everywhere", rows), ("one range", max(1, rows // 100))):
        spent: list[tuple[float, ...]] = []
        for _ in range(turns + 1):
            turn += 1
            made = change_rows(changes, 0, high, fresh, turn)
            fresh += changes
            prepared = prepare(made, TABLE, table.schema)
            assert isinstance(prepared, KeyedChanges)
            size = sum(file.size for file in prepared.candidates(table))
            spent.append((*ours(table, made, turn), *theirs(folder / "theirs", prepared)))
        mine, cpu, reduction, other, other_cpu = (statistics.median(each) for each in zip(*spent[1:], strict=True))
        yield (
            f"| {rows:,} | {changes:,} | {where} | {size / 2**20:.1f} | {mine:.3f} ({cpu:.3f}) | {reduction:.3f} "
            f"| {other:.3f} ({other_cpu:.3f}) | {mine / other:.2f} ({cpu / other_cpu:.2f}) |"
        )


def main() -> None:
    numbers = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    numbers.add_argument("--rows", default="10000,1000000,5000000")
    numbers.add_argument("--changes", default="150,1000,100000")
    numbers.add_argument("--turns", type=int, default=3)
    asked = numbers.parse_args()
    print("| rows | changes | where | MiB looked into | s (CPU s) | s reducing | delta-rs MERGE, s (CPU s) | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for rows in map(int, asked.rows.split(",")):
        for changes in map(int, asked.changes.split(",")):
            if changes > 10 * rows:
                continue
            with tempfile.TemporaryDirectory() as folder:
                for line in measure(rows, changes, asked.turns, Path(folder)):
                    print(line, flush=True)


if __name__ == "__main__":
    main()

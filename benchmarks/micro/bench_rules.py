"""What judging a slice costs: seconds for ten rules over slices of several sizes, and for many tables.

    python benchmarks/micro/bench_rules.py [largest slice] [tables]

The first judgement of a table's rules plans them; later ones only run the plan. No server, no Spark. On a machine with
other work the CPU figures are those to compare.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa

from cdc_core.quality.judge import judge, quarantine_rows
from cdc_core.quality.options import UserRule
from cdc_core.quality.rules import Rule, rules_for
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column, TableId, TableSchema

TEXT, NUMBER, MOMENT = PgType(25, "text"), PgType(20, "int8"), PgType(1184, "timestamptz")
STATE = PgType(90001, "state", "public", TypeKind.ENUM, labels=("new", "paid", "sent"))
NATURAL = {
    "id": pa.int64(),
    "customer": pa.int64(),
    "note": pa.string(),
    "state": pa.string(),
    "total": pa.decimal128(38, 18),
    "ordered_at": pa.timestamp("us", "UTC"),
    "token": pa.string(),
    "payload": pa.binary(),
}
RESCUED = pa.map_(pa.string(), pa.string())


def table(number: int) -> TableSchema:
    """A table of eight columns whose names tell it from the others, so that no two share a plan."""
    return TableSchema(
        TableId("public", f"orders_{number}"),
        16_400 + number,
        (
            Column("id", NUMBER, optional=False),
            Column("customer", NUMBER, optional=False),
            Column("note", PgType(1043, "varchar"), modifier=104),
            Column("state", STATE),
            Column("total", PgType(1700, "numeric")),
            Column("ordered_at", MOMENT),
            Column(f"token_{number}", PgType(1043, "varchar"), modifier=44, optional=False),
            Column("payload", PgType(17, "bytea")),
        ),
        primary_key=("id",),
    )


def rules(number: int) -> tuple[Rule, ...]:
    named = {name if name != "token" else f"token_{number}": kind for name, kind in NATURAL.items()}
    mine = (("positive", UserRule(f"public.orders_{number}", "after.total >= 0")),)
    return rules_for(table(number), named, mine)


def changes(rows: int, number: int = 0, bad: int = 0) -> pa.Table:
    """Updates with new images alone; the first ``bad`` of them hold a state that the enum does not."""
    index = np.arange(rows)
    states = np.array(["new", "paid", "sent"], dtype=object)[index % 3]
    states[:bad] = "lost"
    note = pa.array(np.char.add("note of order ", index.astype(str)))
    values = [
        pa.array(index),
        pa.array(index % 977),
        note,
        pa.array(states),
        pa.array(index % 500).cast(pa.decimal128(38, 0)).cast(pa.decimal128(38, 18)),
        pa.array(index + 1_700_000_000_000_000).cast(pa.timestamp("us", "UTC")),
        note,
        note.cast(pa.binary()),
    ]
    names = [name if name != "token" else f"token_{number}" for name in NATURAL]
    after = pa.StructArray.from_arrays([*values, pa.nulls(rows, RESCUED)], names=[*names, "__rescued"])
    none = pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, dtype=np.int32)), pa.array([], pa.string()))
    return pa.table(
        {
            "__op": pa.array(["u"] * rows),
            "__commit_lsn": pa.array(index // 10 + 1000),
            "__tx_index": pa.array(index % 10),
            "__lsn": pa.array(index // 10 + 900),
            "__xid": pa.array(index // 10),
            "__commit_ts": pa.array(index).cast(pa.timestamp("us", "UTC")),
            "__unchanged": none,
            "before": pa.nulls(rows, after.type),
            "after": after,
        }
    )


def measure(name: str, rounds: int, work: Callable[[], object]) -> None:
    seconds, cpu = [], []
    for _ in range(rounds):
        started, used = time.perf_counter(), time.process_time()
        work()
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    print(
        f"{name:44s} ms: first {seconds[0] * 1e3:8.2f} (CPU {cpu[0] * 1e3:8.2f}), later median"
        f" {median(seconds[1:]) * 1e3:8.2f} (CPU {median(cpu[1:]) * 1e3:8.2f}), best {min(seconds[1:]) * 1e3:8.2f}",
        flush=True,
    )


def main() -> None:
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    tables = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    known = rules(0)
    started = time.perf_counter()
    judge("public.start", changes(1), known[:1])
    print(f"opening DuckDB: {(time.perf_counter() - started) * 1e3:.0f} ms; {len(known)} rules a table")
    for rows in (20, 500, 10_000, largest):
        slice_ = changes(rows)
        measure(f"{rows} rows, all good", 6 if rows > 100_000 else 60, lambda slice_=slice_: judge("t", slice_, known))
    for rows in (500, largest):
        slice_ = changes(rows, bad=rows // 100)

        def quarantine(slice_: pa.Table = slice_) -> object:
            return quarantine_rows(slice_, judge("t", slice_, known))

        measure(f"{rows} rows, 1 % bad, with quarantine rows", 6 if rows > 100_000 else 60, quarantine)
    many = [(rules(number), changes(20, number)) for number in range(tables)]
    measure(
        f"{tables} tables of 20 rows, one after the other",
        6,
        lambda: [judge(f"t{n}", slice_, known) for n, (known, slice_) in enumerate(many)],
    )


if __name__ == "__main__":
    main()

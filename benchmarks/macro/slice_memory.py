"""Memory of a process that merges one transaction, as its peak: slices whose changes are connected, or of one row.

    python -m benchmarks.macro.slice_memory                       # each slice with 1 M changes, in a process of its own
    python -m benchmarks.macro.slice_memory --rows 20000          # small: proves that it runs
    python -m benchmarks.macro.slice_memory chain hot             # some slices

chain           update t set id = id + 1: every update connects two keys
chain-unsent    the same, of rows with a value of 2 kB that the server does not send
unsent          updates of these rows that do not change the key
chain-keyless   an update of every row of a table without a key
hot             updates of one row
hot-history     the same of a history table: each is a version
quarantined     inserts that a rule refuses
replayed        the same when all are accepted

Rows are of 200 bytes, rules are on, and a slice is merged by two tasks, one after the other. No server and no Spark.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.slice.order import Replay
from cdc_core.lake.stores.changelog import append_changes
from cdc_core.quality.options import QualityOptions, UserRule
from tests.support import one_table
from tests.support.damaged import KEYED, KEYLESS, ROW
from tests.support.one_table import SLOT, OneTable
from tests.support.spark import AT, change_schema

SLICES = ("chain", "chain-unsent", "unsent", "chain-keyless", "hot", "hot-history", "quarantined", "replayed")
_STEP = 50_000
_FIRST, _SECOND = 100, 200


def images(ids: np.ndarray, numbers: np.ndarray, tag: str, large: pa.Array | None = None) -> pa.StructArray:
    """Rows of 200 bytes; ``large`` is a further value of each."""
    texts = pa.array(["bad" * 60 if tag == "bad" else f"{tag}{number:09}" * 18 for number in numbers.tolist()])
    columns = [pa.array(ids), texts, pa.nulls(len(ids), pa.string()) if large is None else large]
    return pa.StructArray.from_arrays([*columns, pa.nulls(len(ids), ROW.field("__rescued").type)], fields=list(ROW))


def steps(count: int) -> Iterator[np.ndarray]:
    """The numbers of changes, some at a time."""
    for start in range(0, count, _STEP):
        yield np.arange(start, min(count, start + _STEP))


class Transactions:
    """One table, and the transactions that its changelog gets."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.is_keyed = name, not name.endswith("keyless")
        self.one = OneTable(folder, KEYED if self.is_keyed else KEYLESS, ROW)
        mode = DeleteMode.HISTORY if name.endswith("history") else DeleteMode.HARD
        self.one.tables = replace(self.one.tables, modes=DeleteModes(mode, ()))
        rule = UserRule("public.t", f"after.v is distinct from '{'bad' * 60}'")
        self.one.quality = QualityOptions(quality_rules=(("good", rule),), quality_quarantine_limit_rows=1 << 40)
        self.log = self.one.open_changelog()

    def add(self, lsn: int, at: np.ndarray, count: int, op: str, **more: pa.Array) -> None:
        """Append some changes of a transaction of ``count``."""
        size, schema = len(at), change_schema(ROW)
        made = {name: pa.array(np.full(size, lsn)) for name in ("__commit_lsn", "__lsn", "__xid")}
        made |= {"__op": pa.array([op] * size), "__tx_index": pa.array(at), "__commit_ts": pa.array([AT] * size)}
        made |= {"__unchanged": pa.array([[]] * size, pa.list_(pa.string())), **more}
        columns = [made.get(field.name, pa.nulls(size, field.type)).cast(field.type) for field in schema]
        rows = conform(pa.table(columns, schema=schema), self.log.schema)
        is_last = int(at[-1]) + 1 == count
        reached = Reached(lsn if is_last else None, None if is_last else (lsn, int(at[-1])))
        append_changes(self.log, rows, SLOT, self.one.table.id, reached)

    def first(self, count: int) -> None:
        """Insert rows."""
        tag = "bad" if self.name in ("quarantined", "replayed") else "a"
        count = 10 if self.name.startswith("hot") else count
        for at in steps(count):
            is_large = self.name.endswith("unsent")
            large = pa.array([f"{number:010}" * 200 for number in at.tolist()]) if is_large else None
            self.add(_FIRST, at, count, "c", after=images(at, at, tag, large))

    def second(self, count: int) -> None:
        """Update them."""
        for at in steps(count):
            if self.name.startswith("hot"):
                self.add(_SECOND, at, count, "u", after=images(np.full(len(at), 3), at, "b"))
                continue
            ids = count - 1 - at
            left_out = {"__unchanged": pa.array([["t"]] * len(at))} if self.name.endswith("unsent") else {}
            if self.name.startswith("chain"):
                old = images(ids, ids, "a")
                if left_out:  # the replica identity is the key: with all columns nothing is left out
                    texts, others = pa.nulls(len(ids), pa.string()), [old.field(name) for name in ("t", "__rescued")]
                    old = pa.StructArray.from_arrays([old.field("id"), texts, *others], fields=list(ROW))
                left_out |= {"before": old}
                ids = ids + 1
            self.add(_SECOND, at, count, "u", after=images(ids, at, "b"), **left_out)


def peak_mb() -> float:
    """The largest memory of this process since it was set back."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024


def measure(name: str, count: int, folder: Path) -> str:
    """Merge one slice, and return a row of the table."""
    one_table.SHARES = 2
    made = Transactions(name, folder)
    made.first(count)
    if name != "quarantined":
        made.one.merge(_FIRST)
    is_update = name not in ("quarantined", "replayed")
    if is_update:
        made.second(count)
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, began = peak_mb(), time.process_time()
    if name == "replayed":
        made.one.merge(_SECOND, replay=Replay(accept_all=True))
    else:
        made.one.merge(_SECOND if is_update else _FIRST)
    return f"| {name} | {count:,} | {peak_mb():,.0f} | {before:,.0f} | {time.process_time() - began:.1f} |"


def main() -> None:
    """Measure each slice in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slices", nargs="*", default=SLICES, help="some of the slices", metavar="SLICE")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        with tempfile.TemporaryDirectory(prefix="wal2lake-") as folder:
            print(measure(given.slices[0], given.rows, Path(folder)))
        return
    print("| slice | changes | peak MB | MB before | CPU s |\n|---|---|---|---|---|", flush=True)
    for name in given.slices:
        command = [sys.executable, "-m", "benchmarks.macro.slice_memory", name, "--rows", str(given.rows), "--here"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()

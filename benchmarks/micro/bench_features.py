"""What a round costs by the features of its lake table: each of them, and all together, beside a plain table.

    python benchmarks/micro/bench_features.py [--rows 1000000] [--changes 1000] [--turns 20] [--mode hard]
        [--identity full] [--only changeDataFeed]

Equal tables take the same rounds of change rows at random keys (``bench_round``), in turn: what the product does with a
slice in memory, from its reduction to the commit and the compaction after it. The times are CPU milliseconds of all
threads, of the rounds but the first: the medians, and all rounds together, with the files that some of them compact or
copy. The change data feed is a second copy of every changed row, with the row before.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from benchmarks.micro.bench_apply import TABLE, change_rows, fill
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.index.key_positions import positions_in
from cdc_core.lake.maintenance.compaction import maintain_after
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.schema.features import enabled
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.order import Merge, SnapshotInForce
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.schema import DeltaFeature

FILE_ROWS = 400_000
WITH = {"plain": frozenset[DeltaFeature](), **{feature.value: frozenset({feature}) for feature in DeltaFeature}}
WITH["all of them"] = frozenset(DeltaFeature)


class FeaturedTable:
    """A copy of a table with some features, and the CPU milliseconds of its rounds."""

    def __init__(self, folder: Path, features: frozenset[DeltaFeature]) -> None:
        table = DeltaTable.open(str(folder / "lake"))
        assert table is not None
        self.table, self.spent = table, list[float]()
        self.writer = LakeWriter(64 << 20, 0, str(folder), index=str(folder / "index"), index_max_bytes=1 << 40)
        table.enable_vectors()
        positions = positions_in(self.writer.index, self.writer.index_max_bytes)
        positions.ready(table, table.files, KeyColumns.of(TABLE.row_key, table.schema), 1e9)
        if features:
            columns = ("id",) if DeltaFeature.CLUSTERING in features else None
            table.commit(definition=enabled(table, features), clustered_by=columns)

    def round(self, made: pa.Table, turn: int) -> None:
        """Merge the change rows of a turn."""
        since = self.table.version
        began = time.process_time()
        self.writer.write(self.table, Merge(TargetSchema(TABLE), SnapshotInForce(), TABLE, 100 + turn), made, "b", None)
        maintain_after(self.table, since, 0, TABLE.row_key)
        self.spent.append(1e3 * (time.process_time() - began))


def main() -> None:
    """Print a table."""
    numbers = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    numbers.add_argument("--rows", type=int, default=1_000_000)
    numbers.add_argument("--changes", type=int, default=1_000)
    numbers.add_argument("--turns", type=int, default=20)
    numbers.add_argument("--mode", choices=list(DeleteMode), default=DeleteMode.HARD, type=DeleteMode)
    numbers.add_argument("--identity", choices=("default", "full"), default="default", help="REPLICA IDENTITY")
    numbers.add_argument("--only", choices=list(WITH), action="append", help="a table besides the plain one")
    asked = numbers.parse_args()
    wanted = {name: WITH[name] for name in WITH if name == "plain" or name in (asked.only or WITH)}
    with tempfile.TemporaryDirectory(prefix="bench-features-") as made:
        whole = Path(made) / "whole"
        fill(whole / "lake", asked.rows, FILE_ROWS, asked.mode)
        tables = {}
        for number, (name, features) in enumerate(wanted.items()):
            folder = Path(made) / str(number)
            shutil.copytree(whole, folder)
            tables[name] = FeaturedTable(folder, features)
        for turn in range(asked.turns + 1):
            fresh, is_full = asked.rows + turn * asked.changes, asked.identity == "full"
            made_rows = change_rows(asked.changes, 0, asked.rows, fresh, turn, is_full=is_full)
            for table in tables.values():
                table.round(made_rows, turn)
        plain = tables["plain"].spent[1:]
        print(f"{asked.rows:,} rows, {asked.changes:,} changes a round, mode {asked.mode}, identity {asked.identity}")
        print("| features | CPU ms a round | × plain, of each round | quartiles | all rounds × plain |")
        print("|---|---|---|---|---|")
        for name, table in tables.items():
            ratios = [mine / theirs for mine, theirs in zip(table.spent[1:], plain, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            total, spent = sum(table.spent[1:]) / sum(plain), statistics.median(table.spent[1:])
            print(f"| {name} | {spent:.1f} | {middle:.2f} | {low:.2f} to {high:.2f} | {total:.2f} |")


if __name__ == "__main__":
    main()

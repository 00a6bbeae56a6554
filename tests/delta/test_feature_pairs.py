"""Random histories of tables with features, all pairs of them on and off, written by wal2lake and by Spark in turn.

Writers are killed just before their commit. Spark, deltalake (where it reads the features) and the source agree, row
ids are kept, and the feed of each version is what the version changed.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import CommitConflictError
from cdc_core.lake.apply.changes import prepare
from cdc_core.lake.delete_columns import as_live
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.schema.features import enabled, features_on
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.schema.changes import DeltaFeature
from tests.delta.kept_model import KeptModel
from tests.delta.source_model import ROW, TABLE, SourceTable, plain
from tests.support.applied_lake import MARKED, REWRITTEN, AppliedLake, texts
from tests.support.spark import change_schema, lake_rows
from tests.support.spark import lake_schema as bare_schema
from tests.unit.lake.test_delete_modes_model import assert_history, assert_soft

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261128"))
MAPPING, WIDENING, CLUSTERED, TIMES, TRACKED, FED = DeltaFeature
KEY = ("h", "k")
# Any two of them are on together, off together, and each without the other.
TABLES = [
    (DeleteMode.HARD, frozenset(DeltaFeature)),
    (DeleteMode.SOFT, frozenset({MAPPING, WIDENING, CLUSTERED})),
    (DeleteMode.HISTORY, frozenset({MAPPING, TIMES, TRACKED})),
    (DeleteMode.SOFT, frozenset({WIDENING, TIMES, FED})),
    (DeleteMode.HISTORY, frozenset({CLUSTERED, TRACKED, FED})),
    (DeleteMode.HARD, frozenset[DeltaFeature]()),
]


def test_every_pair_of_features_is_on_and_off() -> None:
    for one, other in itertools.combinations(DeltaFeature, 2):
        assert len({(one in on, other in on) for _, on in TABLES}) == 4, (one, other)


class FeaturedLake:
    """A lake table with features that follows a source, and models of what it must be."""

    def __init__(self, spark: Any, folder: Path, mode: DeleteMode, features: frozenset[DeltaFeature]) -> None:
        self.spark, self.mode, self.features, self.chance = spark, mode, features, random.Random(SEED)
        self.source, self.model = SourceTable(SEED, histories=25), KeptModel(KEY)
        self.source.next_transaction(80)
        self.lake = AppliedLake(folder, lake_schema(ROW, mode), key=KEY)
        clustered = KEY if CLUSTERED in features else None
        self.table.commit(definition=enabled(self.table, features), clustered_by=clustered)
        rows = self.source.snapshot()
        self.model.take(rows, (self.source.lsn, -1, None))
        self.lake.add(as_live(pa.Table.from_pylist(rows, schema=bare_schema(ROW)), mode))
        self.first, self.row_ids = self.table.version, dict[tuple[Any, ...], int]()
        self.check()

    @property
    def table(self) -> DeltaTable:
        return self.lake.table

    def follow(self, way: str) -> None:
        """A slice; the first one that writes it may be killed before its commit, and another one goes on."""
        rows = [row for _ in range(2) for row in self.source.next_transaction(25)]
        for row in rows:
            self.model.apply(row)
        arrived = pa.Table.from_pylist(self.chance.sample(rows, len(rows)), schema=change_schema(ROW))
        if way == MARKED:
            self.table.enable_vectors()
        if self.chance.random() < 0.5:
            with pytest.MonkeyPatch.context() as patch, suppress(CommitConflictError):
                patch.setattr(Folder, "create", lambda *_: False)
                self.lake.apply(prepare(arrived, TABLE, self.table.schema), way)
            self.reopen()
        self.lake.apply(prepare(arrived, TABLE, self.table.schema), way)

    def reopen(self) -> None:
        """As another process has it."""
        opened = DeltaTable.open(self.table.path)
        assert opened is not None
        self.lake.table = opened

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(t=f"delta.`{self.table.path}`")).collect()
        self.table.refresh()

    def check(self) -> None:
        """All readers and the source agree."""
        names = self.table.schema.names
        rows = [row for file in self.table.files for row in self.table.read(file).to_pylist()]
        for row in rows:
            row["__rescued"] = None if row["__rescued"] is None else dict(row["__rescued"])
        if self.mode is DeleteMode.HARD:
            assert plain(rows) == plain(self.source.rows)
        else:
            (assert_soft if self.mode is DeleteMode.SOFT else assert_history)(rows, self.model)
        by_spark = self.spark.read.format("delta").load(self.table.path)
        assert texts(pa.table(by_spark.toArrow()), names) == texts(rows, names)
        if WIDENING not in self.features:
            assert texts(lake_rows(self.table.path), names) == texts(rows, names)
        if TRACKED in self.features:
            self._check_row_ids()

    def _check_row_ids(self) -> None:
        """Rows that are there still have their ids, and no two rows have one."""
        more = "__commit_lsn, __tx_index" if self.mode is DeleteMode.HISTORY else "0, 0"
        found = self.spark.sql(f"select h, k, {more}, _metadata.row_id from delta.`{self.table.path}`").collect()
        row_ids = {tuple(row)[:-1]: row[-1] for row in found}
        assert len(set(row_ids.values())) == len(found) == len(row_ids)
        if self.mode is DeleteMode.HISTORY:  # of which no row goes
            assert row_ids.items() >= self.row_ids.items()
        self.row_ids = row_ids

    def check_feed(self) -> None:
        """Each version since the first one is the one before it and its feed."""
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        feed = pa.table(reader.option("startingVersion", self.first).load(self.table.path).toArrow())
        names = [name for name in self.table.schema.names if name != "extra"]
        before = self._content(self.first - 1, names)
        for version in range(self.first, self.table.version + 1):
            told = [row for row in feed.to_pylist() if row["_commit_version"] == version]
            lost = [row for row in told if row["_change_type"] in ("delete", "update_preimage")]
            new = [row for row in told if row["_change_type"] in ("insert", "update_postimage")]
            after = self._content(version, names)
            assert before + Counter(texts(new, names)) == after + Counter(texts(lost, names)), version
            before = after
        assert feed.num_rows > 50

    def _content(self, version: int, names: list[str]) -> Counter[str]:
        opened = DeltaTable.open_version(self.table.path, version)
        assert opened is not None
        return Counter(text for file in opened.files for text in texts(opened.read(file, names), names))


@pytest.mark.parametrize(("mode", "features"), TABLES, ids=[f"{mode.value}-{len(on)}-features" for mode, on in TABLES])
def test_tables_with_features_are_right_whoever_writes_them(
    spark: Any, tmp_path: Path, mode: DeleteMode, features: frozenset[DeltaFeature]
) -> None:
    lake = FeaturedLake(spark, tmp_path, mode, features)
    for way in (REWRITTEN, MARKED, MARKED):
        lake.follow(way)
    lake.sql("update {t} set big = big where h % 3 = 0")
    lake.follow(MARKED)
    assert compact(lake.table, 2) > 1
    lake.follow(REWRITTEN)
    lake.check()
    lake.sql("optimize {t}")
    lake.sql("alter table {t} add columns (extra int)")
    lake.reopen()
    for way in (MARKED, REWRITTEN):
        lake.follow(way)
    lake.check()
    assert features <= features_on(lake.table)
    if FED in features:
        lake.check_feed()

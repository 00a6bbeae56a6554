"""Which reader reads a lake table with which feature: the table of docs/reading.md, as it is found here.

The last column is of a lake that a connector filled, with one table for each feature: at the Delta versions of a round
each reader that can read the table has the rows that PostgreSQL had at the round's LSN. ``WAL2LAKE_WRITE_DOCS=1``
writes the table into the page.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import polars
import pyarrow as pa
import pytest

from cdc_core.assemble import Connector
from cdc_core.engine.reports import Until
from cdc_core.lake.apply.change_feed import change_files
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.definition import Definition
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.evolve import evolve
from cdc_core.lake.schema.features import Evolution, features_on
from cdc_core.lake.schema.lake_schema import lake_properties
from cdc_core.lake.schema.project import SchemaStep, StepColumn
from cdc_core.lake.stores.round_lookup import Cut, ReadableVersion
from cdc_core.schema.changes import DeltaFeature
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import lake_settings, write_properties
from tests.support.spark import AT, row_type
from tests.support.spark import lake_schema as schema_of

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reading.md"
BEGIN, END = "<!-- readers: begin -->", "<!-- readers: end -->"
SCHEMA = schema_of(row_type(id=pa.int32(), v=pa.string(), n=pa.int32()))
RENAMED = SchemaStep(
    2,
    (
        StepColumn("id", "id", pa.int32()),
        StepColumn("w", "v", pa.string()),
        StepColumn("n", "n", pa.int32()),
    ),
)
WIDENED = SchemaStep(
    2,
    (
        StepColumn("id", "id", pa.int32()),
        StepColumn("v", "v", pa.string()),
        StepColumn("n", "n", pa.int64()),
    ),
)


def marked(lake: DeltaTable) -> None:
    lake.enable_vectors()
    marks = [MarkedRows(lake.files[0], np.array([1]))]
    lake.commit(marked=marks, changes=change_files(lake, [], [], marks, ["id"]))


def defined(change: Callable[[Definition], Definition], clustered_by: tuple[str, ...] | None = None) -> Any:
    def made(lake: DeltaTable) -> None:
        lake.commit(definition=change(lake.definition), clustered_by=clustered_by)

    return made


def evolved(step: SchemaStep, feature: DeltaFeature) -> Any:
    def made(lake: DeltaTable) -> None:
        evolve(lake, [step], Evolution(frozenset({feature})), "test", {})

    return made


def fed(lake: DeltaTable) -> None:
    lake.commit(definition=lake.definition.with_change_feed())
    rows = lake.read(lake.files[0]).slice(0, 1)
    new = [lake.write(rows)]
    lake.commit(new, changes=change_files(lake, new, [], [], ["id"]))


FEATURES: dict[str, Callable[[DeltaTable], None]] = {
    "none": lambda lake: None,
    "deletion vectors": marked,
    "column mapping": lambda lake: evolve(
        lake, [RENAMED], Evolution(frozenset({DeltaFeature.COLUMN_MAPPING})), "x", {}
    ),
    "type widening": lambda lake: evolve(lake, [WIDENED], Evolution(frozenset({DeltaFeature.TYPE_WIDENING})), "x", {}),
    "row tracking": defined(Definition.with_row_tracking),
    "change data feed": fed,
    "clustering": defined(Definition.with_clustering, ("id",)),
    "in-commit timestamps": lambda lake: lake.commit(
        definition=lake.definition.with_commit_timestamps(lake.version + 1, int(AT.timestamp() * 1000))
    ),
}


def by_spark(spark: Any, path: str, version: int) -> pa.Table:
    return pa.table(spark.read.format("delta").option("versionAsOf", version).load(path).toArrow())


def by_query_builder(spark: Any, path: str, version: int) -> pa.Table:
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path, version=version))
    return pa.table(builder.execute("select * from t").read_all())


def by_arrow(spark: Any, path: str, version: int) -> pa.Table:
    return deltalake.DeltaTable(path, version=version).to_pyarrow_table()


def by_polars(spark: Any, path: str, version: int) -> pa.Table:
    return polars.scan_delta(path, version=version).collect().to_arrow()


def feed_by_spark(spark: Any, path: str, version: int) -> pa.Table:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    return pa.table(reader.load(path).toArrow())


def feed_by_deltalake(spark: Any, path: str, version: int) -> pa.Table:
    return pa.table(deltalake.DeltaTable(path).load_cdf(starting_version=version).read_all())


READERS = {
    "Spark": by_spark,
    "deltalake's `QueryBuilder`": by_query_builder,
    "deltalake's `to_pyarrow_table`": by_arrow,
    "polars": by_polars,
}
FEEDS = {"Spark's `readChangeFeed`": feed_by_spark, "deltalake's `load_cdf`": feed_by_deltalake}


def made(folder: Path, feature: Callable[[DeltaTable], None], *, is_fed: bool = False) -> DeltaTable:
    lake = DeltaTable.create(str(folder), SCHEMA, lake_properties(15))
    row = {"__rescued": None, "__commit_lsn": 1, "__tx_index": 0, "__commit_ts": AT}
    rows = pa.Table.from_pylist([{"id": key, "v": f"v{key}", "n": key, **row} for key in range(4)], schema=SCHEMA)
    lake.commit([lake.write(rows)])
    if is_fed:
        lake.commit(definition=lake.definition.with_change_feed())
    feature(lake)
    return lake


def row_texts(rows: pa.Table, names: list[str]) -> Counter[str]:
    return Counter(repr([row[name] for name in names]) for row in rows.to_pylist())


def reads(reader: Any, spark: Any, lake: DeltaTable) -> bool:
    """Whether a reader has the rows of the newest version, and those of the one before it."""
    names = [name for name in lake.schema.names if not name.startswith("__")]
    for version in (lake.version, lake.version - 1):
        at = DeltaTable.open_version(lake.path, version)
        assert at is not None
        here = [name for name in names if name in at.schema.names]
        rows = pa.concat_tables([at.schema.empty_table(), *(at.read(file) for file in at.files)])
        try:
            if row_texts(reader(spark, lake.path, version), here) != row_texts(rows, here):
                return False
        except Exception:  # each reader has its own errors for what it does not know
            return False
    return True


def feeds(reader: Any, spark: Any, lake: DeltaTable) -> bool:
    """Whether a reader has the changes of a merge into the table."""
    file, version = lake.files[0], lake.version + 1
    rows = lake.read(file)
    new = [lake.write(rows.slice(1))]
    lake.commit(new, [file], changes=change_files(lake, new, [file], [], ["id"]))
    try:
        kinds = reader(spark, lake.path, version).column("_change_type").to_pylist()
    except Exception:  # as above
        return False
    return kinds == ["delete"]


@dataclass(frozen=True)
class Recorded:
    """A round of a connector, and what PostgreSQL had at its LSN: the columns and rows of each table."""

    cut: Cut
    source: Mapping[str, tuple[list[str], Counter[str]]]

    def features(self, feature: str) -> set[str]:
        """The features that the table for one of them has."""
        table = self._table(feature)
        assert table.version is not None, f"{table}: it is not part of the round"
        lake = DeltaTable.open_version(table.path, table.version)
        assert lake is not None
        vectors = any(file.vector is not None for file in lake.files)
        return {NAMES[each] for each in features_on(lake)} | ({"deletion vectors"} if vectors else set())

    def _table(self, feature: str) -> ReadableVersion:
        (table,) = (table for table in self.cut.tables if table.table.table == TABLES[feature])
        return table

    def read_by(self, reader: Any, spark: Any, feature: str) -> bool:
        """Whether a reader has the source's rows in the table with a feature."""
        table = self._table(feature)
        names, rows = self.source[feature]
        try:
            return row_texts(reader(spark, table.path, table.version), names) == rows
        except Exception:  # each reader has its own errors for what it does not know
            return False


NAMES = {
    DeltaFeature.COLUMN_MAPPING: "column mapping",
    DeltaFeature.TYPE_WIDENING: "type widening",
    DeltaFeature.ROW_TRACKING: "row tracking",
    DeltaFeature.CHANGE_FEED: "change data feed",
    DeltaFeature.CLUSTERING: "clustering",
    DeltaFeature.COMMIT_TIMESTAMPS: "in-commit timestamps",
}
TABLES = {feature: "t_" + feature.replace(" ", "_").replace("-", "_") for feature in FEATURES}
# Rows of 10,000 and more are in files of a few rows, which are written again when some of them change. Only the table
# with deletion vectors has changes in its first file; a change of columns rewrites tables smaller than 20,000 bytes.
HAS_LARGE_FILE = ("deletion vectors", "column mapping", "type widening")
FIRST = "insert into {t} select g, md5(g::text) || md5((-g)::text), g from generate_series(1, {many}) g"
SECOND = "insert into {t} select g, 'second ' || g, g from generate_series(10000, 10005) g"
THEN = (
    "update {t} set n = -n where id = 10000; delete from {t} where id = 10001; insert into {t} values (20000, 'b', 3)",
    "update {t} set n = 4 where id in (10002, 20000); delete from {t} where id = 10003; insert into {t} values (30000)",
)
OWN = {
    "deletion vectors": "update {t} set n = -n where id = 7; delete from {t} where id = 8",
    "column mapping": "alter table {t} rename v to w",
    "type widening": "alter table {t} alter n type numeric(14,2)",
}


class Lake:
    """The lake of a connector that has a table for each feature, and no other feature in any of them."""

    def __init__(self, pg: Cluster, spark: Any, folder: Path) -> None:
        self.pg, self.spark, self.folder, self.database = pg, spark, folder, pg.database("readers")
        for feature in FEATURES:
            many = 1500 if feature in HAS_LARGE_FILE else 10
            self.change("create table {t} (id int primary key, v text, n numeric(8,2)); " + FIRST, feature, many=many)
        timed = [TableId("public", TABLES["in-commit timestamps"])]
        self.connector(**{"wal2lake.lake.commit.timestamps": "true"}).initial_snapshot(spark, only=timed)
        self.connector().initial_snapshot(spark)
        self.change(SECOND)
        self.stream()
        for feature, text in OWN.items():
            self.change(text, feature)

    def connector(self, **more: str) -> Connector:
        given = {
            "table.include.list": "public.*",
            **lake_settings(self.folder),
            "wal2lake.merge.rewrite.max.bytes": "20000",
            "wal2lake.lake.row.tracking.tables": f"public.{TABLES['row tracking']}",
            "wal2lake.lake.change.feed.tables": f"public.{TABLES['change data feed']}",
            "wal2lake.lake.clustered.tables": f"public.{TABLES['clustering']}",
        }
        file = self.folder / "readers.properties"
        return Connector.from_file(write_properties(file, self.pg.properties(self.database, **given, **more)))

    def change(self, text: str, *features: str, **values: Any) -> None:
        """Statements in all tables or in those of some features, in one transaction."""
        texts = [text.format(t=TABLES[feature], **values) for feature in features or FEATURES]
        self.pg.execute(self.database, "; ".join(texts))

    def recorded(self) -> Recorded:
        """The round that has everything which the source has now."""
        source = {}
        for feature, table in TABLES.items():
            columns = "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum"
            names = [name for (name,) in self.pg.execute(self.database, columns, [table])]
            rows = self.pg.execute(self.database, f"select * from {table}")
            source[feature] = names, Counter(repr(list(row)) for row in rows)
        self.stream()
        return Recorded(self.connector().versions(), source)

    def stream(self) -> None:
        self.connector().stream(Until(idle_seconds=0.2), self.spark)


def matrix(spark: Any, folder: Path, rounds: list[Recorded]) -> str:
    titles = ["the table has", *READERS, *FEEDS, "at the LSN of a round, the source's rows"]
    lines = [f"| {' | '.join(titles)} |", "|" + " --- |" * len(titles)]
    for number, (name, feature) in enumerate(FEATURES.items()):
        lake = made(folder / f"{number}", feature)
        cells = [reads(reader, spark, lake) for reader in READERS.values()]
        cells += [
            feeds(r, spark, made(folder / f"{number}-{r.__name__}", feature, is_fed=True)) for r in FEEDS.values()
        ]
        at_round = [all(each.read_by(reader, spark, name) for each in rounds) for reader in READERS.values()]
        same = "yes" if at_round == cells[: len(READERS)] else ", ".join(compress(READERS, at_round))
        lines.append(f"| {name} | {' | '.join('yes' if cell else 'no' for cell in cells)} | {same} |")
    return "\n".join(lines)


def test_the_page_says_what_readers_do(pg: Cluster, spark: Any, tmp_path: Path) -> None:
    lake, rounds = Lake(pg, spark, tmp_path), list[Recorded]()
    for change in THEN:
        lake.change(change)
        rounds.append(lake.recorded())
        for feature in FEATURES:
            assert rounds[-1].features(feature) == {feature} - {"none"}
    assert all(rounds[0].source[feature] != rounds[1].source[feature] for feature in FEATURES)
    # The first of them is a round of the past by now.
    rounds[0] = Recorded(lake.connector().versions(rounds[0].cut.lsn), rounds[0].source)
    pg.drop_database(lake.database)
    table, page = matrix(spark, tmp_path, rounds), PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    told, after = rest.split(END)
    if os.environ.get("WAL2LAKE_WRITE_DOCS"):
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")
        return
    assert told.strip() == table

"""Which reader reads a lake table with which feature: the table of docs/reading.md, as it is found here.

``WAL2LAKE_WRITE_DOCS=1`` writes the table into the page.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import polars
import pyarrow as pa
import pytest

from cdc_core.lake.apply.change_feed import change_files
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.definition import Definition
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.evolve import evolve
from cdc_core.lake.schema.features import Evolution
from cdc_core.lake.schema.lake_schema import lake_properties
from cdc_core.lake.schema.project import SchemaStep, StepColumn
from cdc_core.schema.changes import DeltaFeature
from tests.support.spark import AT, row_type
from tests.support.spark import lake_schema as schema_of

pytestmark = pytest.mark.spark

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


def matrix(spark: Any, folder: Path) -> str:
    titles = ["the table has", *READERS, *FEEDS]
    lines = [f"| {' | '.join(titles)} |", "|" + " --- |" * len(titles)]
    for number, (name, feature) in enumerate(FEATURES.items()):
        lake = made(folder / f"{number}", feature)
        cells = [reads(reader, spark, lake) for reader in READERS.values()]
        cells += [
            feeds(r, spark, made(folder / f"{number}-{r.__name__}", feature, is_fed=True)) for r in FEEDS.values()
        ]
        lines.append(f"| {name} | {' | '.join('yes' if cell else 'no' for cell in cells)} |")
    return "\n".join(lines)


def test_the_page_says_what_readers_do(spark: Any, tmp_path: Path) -> None:
    table, page = matrix(spark, tmp_path), PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    told, after = rest.split(END)
    if os.environ.get("WAL2LAKE_WRITE_DOCS"):
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")
        return
    assert told.strip() == table

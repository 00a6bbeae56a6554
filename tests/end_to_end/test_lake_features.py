"""``wal2lake.lake.features``: each policy through the whole line, read back by Spark and, where it can, by delta-rs.

One connector a policy over the same tables: names that change places, columns that go or come back as others, numbers
that grow, constants that fill, rows read again. Changes of rows follow each, so every road into a lake table is taken
with the features on and off.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import lake_path, lake_settings, query, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

MAPPING, WIDENING = "columnMapping", "typeWidening"
MADE = (
    "create table {t} (id int primary key, a text, b text, n numeric(8,2), many numeric(6,2)[], v int); "
    "insert into {t} select g, 'a' || g, 'b' || g, g, array[g, 0.5], g from generate_series(1, 6) g"
)
BEFORE = "update {t} set b = 'older' where id = 2; insert into {t} (id, a) values (7, 'new')"
CHANGED = {
    "swapped": "alter table swapped rename a to c; alter table swapped rename b to a; "
    "alter table swapped rename c to b",
    "again": "alter table again drop b; alter table again add b int",
    "wider": "alter table wider alter n type numeric(14,2)",
    "mixed": "alter table mixed rename a to c; alter table mixed add d numeric(5,2) default 7.5",
}
AFTER = (
    "insert into {t} (id) values (8); update {t} set v = 30 where id = 3; delete from {t} where id = 4; "
    "update {t} set id = 50 where id = 5"
)
LATER = "update {t} set w = 1 where id = 2; delete from {t} where id = 1"
AGAIN = {
    "mixed": "alter table mixed alter v type text using v || '!'; update mixed set v = 'seven' where id = 3",
    "wider": "truncate wider; insert into wider (id, n) values (1, 123456789.5)",
    "swapped": "insert into swapped (id) values (9)",
}
REREAD = "alter table {t} alter v type text using v || '!'; insert into {t} (id, v) values (9, 'text')"
LARGE = {"wal2lake.merge.rewrite.max.bytes": "1"}


@dataclass(frozen=True)
class Case:
    """A policy, settings beside it, the features that each table has in the end, and the tables that are read again."""

    policy: str
    more: dict[str, str]
    features: dict[str, set[str]]
    read_again: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self.features)


# As few tables as take every road.
CASES = {
    "widest": Case("widest", LARGE, {"swapped": set(), "wider": set()}),
    "auto, small tables": Case("auto", {}, {"swapped": set(), "again": set(), "wider": set()}),
    "auto, large tables": Case("auto", LARGE, {"swapped": {MAPPING}, "wider": {WIDENING}}, ("swapped",)),
    "modern": Case("modern", {"wal2lake.changelog.reads": "true"}, {"mixed": {MAPPING, WIDENING}}),
}


@pytest.mark.parametrize("name", CASES)
def test_tables_follow_and_have_the_features_of_the_policy(
    pg: Cluster, program: Program, spark: Any, tmp_path: Path, name: str
) -> None:
    case, database = CASES[name], pg.database("featured")
    file = settings(pg, database, tmp_path, case.policy, case.more)
    make(pg, database, case.tables)
    assert program.run("snapshot", file).returncode == 0
    execute(pg, database, BEFORE, case.tables)
    for table in case.tables:
        pg.execute(database, CHANGED[table])
    execute(pg, database, AFTER, case.tables)
    done = program.stream(file)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    judge(pg, database, file, spark, case.tables)
    said = done.stdout + done.stderr
    for table, features in case.features.items():
        assert features_of(file, table) == features, table
        if case.policy == "auto":
            both = (MAPPING, WIDENING)
            told = {feature for feature in both if f"public.{table}: Delta table feature {feature}" in said}
            assert told == features, table
            assert not features or "can read it" in said
            assert has_written_rows(file, table) is (not features)
    for table in case.tables:
        again = REREAD if table in case.read_again else AGAIN.get(table, "select 1")
        pg.execute(database, again.format(t=table))
    done = program.stream(file)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    judge(pg, database, file, spark, case.tables, again=True)
    for table, features in case.features.items():
        assert features_of(file, table) == features, table
    pg.drop_database(database)


def test_killed_before_and_after_the_change(pg: Cluster, program: Program, spark: Any, tmp_path: Path) -> None:
    database, tables = pg.database("featured"), ("swapped",)
    file = settings(pg, database, tmp_path, "auto", LARGE)
    make(pg, database, tables)
    assert program.run("snapshot", file).returncode == 0
    pg.execute(database, CHANGED["swapped"])
    execute(pg, database, AFTER, tables)
    program.killed_at(failpoints.DURING_EVOLUTION, file)
    assert features_of(file, "swapped") == set(), "they come with the change, in one commit"
    # The next run has one more change.
    pg.execute(database, "alter table swapped rename v to w")
    execute(pg, database, LATER, tables)
    program.killed_at(failpoints.AFTER_EVOLUTION, file)
    done = program.stream(file)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    # Each run goes on at the version of the last change that the one before has appended.
    assert "re-read" not in done.stdout + done.stderr
    judge(pg, database, file, spark, tables)
    pg.drop_database(database)


def settings(pg: Cluster, database: str, folder: Path, policy: str, more: dict[str, str]) -> Path:
    given = {
        "table.include.list": "public.*",
        **lake_settings(folder),
        "wal2lake.lake.dropped.columns": "drop",
        "wal2lake.lake.features": policy,
    }
    return write_properties(folder / "featured.properties", pg.properties(database, **given, **more))


def make(pg: Cluster, database: str, tables: tuple[str, ...]) -> None:
    execute(pg, database, MADE, tables)


def execute(pg: Cluster, database: str, text: str, tables: tuple[str, ...]) -> None:
    for table in tables:
        pg.execute(database, text.format(t=table))


def judge(pg: Cluster, database: str, file: Path, spark: Any, tables: tuple[str, ...], *, again: bool = False) -> None:
    """Every lake table has its source's columns and rows, as Spark reads it and as delta-rs does where it can.

    ``again``: Spark, which takes longest, has read those without a feature already, behind their changes of columns.
    """
    for table in tables:
        path = lake_path(load(file), TableId("public", table))
        with pg.connect(database) as session:
            cursor = session.execute(f"select * from {table}".encode())
            names = [column.name for column in cursor.description or ()]
            source = Counter(map(str, cursor.fetchall()))
        features = features_of(file, table)
        if features or not again:
            held = spark.read.format("delta").load(str(path))
            assert {name for name in held.columns if not name.startswith("__")} == set(names), table
            assert content(held.select(*names).toArrow()) == source, table
        if WIDENING not in features:
            read = query(path, "select * from t")
            assert {name for name in read.column_names if not name.startswith("__")} == set(names), table
            assert content(read.select(names)) == source, table


def content(rows: pa.Table) -> Counter[str]:
    return Counter(str(tuple(row.values())) for row in rows.to_pylist())


def features_of(file: Path, table: str) -> set[str]:
    """Those of the two features that the table's log names."""
    protocol = DeltaTable(str(lake_path(load(file), TableId("public", table)))).protocol()
    return {MAPPING, WIDENING} & {*(protocol.reader_features or ()), *(protocol.writer_features or ())}


def has_written_rows(file: Path, table: str) -> bool:
    """Whether a commit that brought the table to a later schema version named data files."""
    log = lake_path(load(file), TableId("public", table)) / "_delta_log"
    found = False
    for commit in sorted(log.glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        ids = {action["txn"]["appId"].rpartition(":")[2] for action in actions if "txn" in action}
        if "schema-version" in ids and "snapshot" not in ids:
            found = found or any("add" in action for action in actions)
    return found

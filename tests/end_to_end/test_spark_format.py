"""Spark's format ``wal2lake`` on a lake that a connector fills: a table at a round, and its changes as a stream."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import wal2lake
from cdc_core import failpoints
from tests.support.cluster import Cluster
from tests.support.lake import lake_settings, write_properties
from tests.support.program import Program
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
create table items (id int primary key, n numeric(12, 2), at timestamp, seen timestamptz, tags text[], big text);
alter table items alter big set storage external;
insert into items select g, g / 4.0, '2026-01-01', '2026-01-01 12:00+02', array['a', null], repeat('x', 9000)
from generate_series(1, 200) g
"""
PLAIN = "select id, n, at, seen, tags, length(big) from items order by id"


class Query:
    """A streaming query that keeps the table by its changes, in a dictionary, and fails when it is told to."""

    def __init__(self, spark: Any, lake: str, checkpoint: Path, since: str) -> None:
        source = spark.readStream.format("wal2lake").option("table", "public.items").option("changes", True)
        self._rows = source.option("startingLsn", since).load(lake)
        self._checkpoint = checkpoint
        self.batches: dict[int, list[Any]] = {}
        self.fails_at: int | None = None

    def follow(self) -> None:
        """Process all that is there. Raises what the query raises."""
        options = {"checkpointLocation": str(self._checkpoint)}
        query = self._rows.writeStream.foreachBatch(self._take).options(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(patient(120))

    def _take(self, rows: Any, number: int) -> None:
        # A micro-batch that is repeated after a failure has the same rows: it replaces them.
        self.batches[number] = rows.collect()
        if self.fails_at == number:
            self.fails_at = None
            raise RuntimeError("the sink fails after it has written")

    @property
    def changes(self) -> list[Any]:
        """All changes, in the order of the stream."""
        every = [row for rows in self.batches.values() for row in rows]
        return sorted(every, key=lambda row: (row["__commit_lsn"], row["__tx_index"]))


def applied(held: dict[int, tuple[Any, ...]], changes: list[Any]) -> dict[int, tuple[Any, ...]]:
    for row in changes:
        before, after = row["before"], row["after"]
        if row["__op"] in "ud" and before is not None and before["id"] is not None:
            known = held.pop(before["id"])
        elif row["__op"] == "u":
            known = held.pop(after["id"])
        if after is not None:
            length = known[-1] if "big" in row["__unchanged"] else len(after["big"])
            held[after["id"]] = (after["id"], after["n"], after["at"], after["seen"], after["tags"], length)
    return held


def plain(rows: list[Any]) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["id"], row["n"], row["at"], row["seen"], row["tags"], len(row["big"])) for row in rows}


def test_a_table_and_its_changes(pg: Cluster, program: Program, spark: Any, tmp_path: Path) -> None:
    database = pg.database("format")
    pg.execute(database, SCHEMA)
    settings = {"table.include.list": "public.items", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "format.properties", pg.properties(database, **settings))
    assert program.stream(file).returncode == 0
    wal2lake.register(spark)
    lake = str(tmp_path / "lake" / "test")

    def table(**options: str) -> list[Any]:
        return spark.read.format("wal2lake").options(table="public.items", **options).load(lake).collect()

    first = wal2lake.read(file, "public.items")
    held = plain(table())
    delta = first["public.items"].spark(spark).collect()
    assert held == plain(delta) and len(held) == 200
    query = Query(spark, lake, tmp_path / "checkpoint", str(first.lsn))
    chance = random.Random(3)
    for step in range(4):
        for _ in range(5):
            one, other = chance.sample(range(1, 200), 2)
            pg.execute(
                database,
                f"begin; update items set n = n + 1, seen = now() where id in ({one}, {other});"
                f"update items set id = id + 1000 where id = {one}; delete from items where id = {other};"
                f"insert into items values ({other}, null, 'infinity', null, '{{}}', 'n'); commit",
            )
        if step == 1:
            program.killed_at(failpoints.AFTER_APPLY, file)
        assert program.stream(file).returncode == 0
        if step == 2:
            query.fails_at = max(query.batches) + 1
            with pytest.raises(Exception, match="the sink fails"):
                query.follow()
        query.follow()
        assert applied(dict(held), query.changes) == plain(table())
    wanted = {row[0]: row[1] for row in pg.execute(database, "select id, n from items")}
    assert {id: row[1] for id, row in plain(table()).items()} == wanted
    places = [(row["__commit_lsn"], row["__tx_index"]) for row in query.changes]
    assert len(places) == len(set(places))
    # The same by a batch query, and from Python without Spark.
    source = spark.read.format("wal2lake").options(table="public.items", changes="true", startingLsn=str(first.lsn))
    assert source.load(lake).count() == len(places)
    assert wal2lake.open(lake).changes("public.items").arrow(first.lsn).num_rows == len(places)
    assert plain(table(at=str(first.lsn))) == held


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"table": "public.items", "strat": "1"}, "Unknown option strat of format wal2lake"),
        ({}, "Format wal2lake needs table"),
        ({"table": "public.items", "changes": "yes"}, "Option changes must be true or false, found 'yes'"),
        ({"table": "public.items", "startingLsn": "1/2"}, "Option startinglsn has no effect if changes is False"),
        ({"table": "public.items"}, "is not the lake of a connector"),
    ],
)
def test_wrong_options_are_named(spark: Any, tmp_path: Path, options: dict[str, str], sentence: str) -> None:
    wal2lake.register(spark)
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        spark.read.format("wal2lake").options(**options).load(str(tmp_path / "no lake"))
    assert sentence in str(caught.value)

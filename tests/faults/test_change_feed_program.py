"""The change data feed of lake tables in every delete mode, under random changes of rows and tables, through kills.

A version's feed is what the version changed: applied to the rows of the one before, it gives its rows, and a merge's
feed has the last states of the keys that its changelog's events touch. Spark reads it in batch, as a stream, and by
``CHANGES``, and deltalake that of the table without renamed columns. ``WAL2LAKE_FEED_VERSIONS`` sets how many versions
a table gets at least (1,000 take an hour).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from tests.delta.test_change_feed import _LOST, _NEW, assert_difference, rows_as_texts
from tests.faults.test_delete_modes_program import PLACES, REFUSED, Work
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, lake_path, rows, write_properties
from tests.support.program import Program
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

KEYED = ("t_hard", "t_soft", "t_history")
KEYLESS = "t_log"
TABLES = (*KEYED, KEYLESS)
SEED = sampling.seed(5601, "WAL2LAKE_FEED_SEED")
VERSIONS = int(os.environ.get("WAL2LAKE_FEED_VERSIONS", "16"))
FIRST = (failpoints.AFTER_CHANGES, failpoints.BEFORE_SNAPSHOT_COMMIT, failpoints.DURING_CHUNK_APPLY)
KILLS = (*FIRST, *PLACES, failpoints.DURING_COMPACTION)


class FedConnector:
    """A connector whose lake tables all have a feed, and writers."""

    def __init__(self, pg: Cluster, program: Program, folder: Path) -> None:
        self.pg, self.program, self.chance = pg, program, random.Random(SEED)
        self.database = pg.database("fed")
        self.work = Work(pg, self.database, SEED, KEYED, publication=self.database)
        self.file = write_properties(folder / "fed.properties", self._properties(folder))
        self.work.setup()
        pg.execute(self.database, f"create table {KEYLESS} (n int, what text)")
        pg.execute(self.database, f"alter table {KEYLESS} replica identity full")
        self.places = list(FIRST)
        self.run("snapshot")

    def _properties(self, folder: Path) -> dict[str, Any]:
        return self.pg.properties(
            self.database,
            **{
                "table.include.list": "public.t_.*",
                "publication.autocreate.mode": "all_tables",
                "signal.enabled.channels": "lake",
                "incremental.snapshot.chunk.size": "20",
                "wal2lake.lake.path": str(folder / "lake"),
                "wal2lake.state.path": str(folder / "state"),
                "wal2lake.freshness.seconds": "0",
                "wal2lake.batch.max.rows": "20",
                "wal2lake.lake.history.minutes": "1000",
                "wal2lake.lake.delete.mode.soft": "public.t_soft",
                "wal2lake.lake.delete.mode.history": "public.t_history",
                "wal2lake.lake.change.feed.tables": ".*",
                "wal2lake.lake.row.tracking.tables": ".*",
                "wal2lake.merge.rewrite.max.bytes": self.chance.choice(("67108864", "1")),
                "wal2lake.merge.part.max.bytes": self.chance.choice(("67108864", "2000")),
                **{f"wal2lake.quality.rule.{table}": f"public.{table}: after.{REFUSED}" for table in KEYED},
            },
        )

    def run(self, command: str, *arguments: str, place: str = "") -> None:
        """A command, which may be killed at a place that it may not reach."""
        armed = {"WAL2LAKE_FAILPOINT": place} if place else {}
        if command == "run":
            done = self.program.stream(self.file, place or None)
        else:
            done = self.program.run(command, self.file, *arguments, **armed)
        self.work.log.append(f"-- {command} {' '.join(arguments)} {place}: {done.returncode}")
        said = done.stdout[-1500:] + done.stderr[-1500:]
        assert done.returncode in ((0, -signal.SIGKILL) if place else (0,)), self.told(said)

    def step(self) -> None:
        """Something that users do, and a run beside writers that may be killed."""
        what = self.chance.choice(("stream", "stream", "stream", "chunks", "read again", "replay", "maintain"))
        place = ""
        if self.chance.random() < 0.4:
            place = self.places.pop() if self.places else f"{self.chance.choice(KILLS)}:{self.chance.randint(1, 3)}"
        self._change(4)
        if what == "chunks":
            data = json.dumps({"data-collections": [f"public.{self.chance.choice(KEYED)}"], "type": "incremental"})
            self.run("signal", "execute-snapshot", "--data", data)
        elif what == "read again":
            self.run("snapshot", place=place)
        elif what == "replay":
            self.run("replay", f"public.{self.chance.choice(KEYED)}", "--accept-all", place=place)
        elif what == "maintain":
            self.run("maintain", place=place)
        writer = threading.Thread(target=self._change, args=(12,))
        writer.start()
        try:
            self.run("run", place=place if what in ("stream", "chunks") else "")
        finally:
            writer.join(patient(60))

    def _change(self, steps: int) -> None:
        for _ in range(steps):
            self.work.run(1)
            n = self.chance.randrange(9)
            self.work._try(
                self.chance.choice(
                    (
                        f"insert into {KEYLESS} select {n}, md5(g::text) from generate_series(1, 3) g",
                        f"update {KEYLESS} set what = 'x{n}' where n = {n}",
                        f"delete from {KEYLESS} where n = {n}",
                    )
                )
            )

    def path(self, table: str) -> str:
        """Where a lake table is."""
        return str(lake_path(load(self.file), TableId("public", table)))

    def least_versions(self) -> int:
        """The version of the table that has the fewest."""
        return min(lake.version for table in TABLES if (lake := DeltaTable.open(self.path(table))) is not None)

    def events(self, table: str) -> list[dict[str, Any]]:
        """The changelog in the order of the stream."""
        path = changelog_path(load(self.file), TableId("public", table))
        return sorted(rows(path), key=lambda row: (row["__commit_lsn"], row["__tx_index"]))

    def told(self, said: str = "") -> str:
        return f"{said}\nWAL2LAKE_FEED_SEED={SEED}\n" + "\n".join(self.work.log)


def test_each_version_s_feed_is_what_it_changed(pg: Cluster, program: Program, spark: Any, tmp_path: Path) -> None:
    print(f"WAL2LAKE_FEED_SEED={SEED}")
    fed = FedConnector(pg, program, tmp_path)
    while fed.least_versions() < VERSIONS:
        fed.step()
    fed.run("run")
    seen = Counter[str]()
    for table in TABLES:
        log = Log(fed.path(table))
        feed = by_version(batch(spark, log))
        for version in range(log.fed_since, log.last + 1):
            is_evolved = log.kind(version) == "all rows"
            assert_difference(log.path, version, feed.get(version, []), is_evolved=is_evolved)
            if log.kind(version) == "read again":
                assert_differs(log.path, feed.get(version, []), has_key=table != KEYLESS)
            seen[log.kind(version)] += 1
        if table == "t_hard":
            seen["event"] += assert_as_changelog(log, feed, fed.events(table), fed.told())
            told = streamed(spark, log, tmp_path)
            assert texts_by_version(log.names, told) == texts_by_version(log.names, batch(spark, log))
        if table == KEYLESS:
            read = pa.table(deltalake.DeltaTable(log.path).load_cdf(starting_version=log.fed_since).read_all())
            assert texts_by_version(log.names, read.to_pylist()) == texts_by_version(log.names, batch(spark, log))
        net = by_version(changes(spark, log))
        for version in range(log.fed_since + 1, log.last + 1):
            if log.kind(version) != "all rows":
                assert_difference(log.path, version, net.get(version, []))
    print(dict(seen))
    assert seen["merge"] >= VERSIONS and seen["event"] >= VERSIONS, seen
    pg.drop_database(fed.database)


class Log:
    """The entries of a Delta log that is complete."""

    def __init__(self, path: str) -> None:
        self.path = path
        entries = sorted((Path(path) / "_delta_log").glob("*.json"))
        self.entries = [[json.loads(line) for line in entry.read_text().splitlines()] for entry in entries]
        self.last = len(self.entries) - 1
        self.fed_since = next(n for n in range(len(self.entries)) if "enableChangeDataFeed" in str(self.entries[n])) + 1

    @property
    def names(self) -> list[str]:
        """The columns of the newest version."""
        table = DeltaTable.open(self.path)
        assert table is not None
        return table.schema.names

    def info(self, version: int) -> dict[str, Any]:
        return dict(self.entries[version][0]["commitInfo"])

    def kind(self, version: int) -> str:
        """What a commit did."""
        info, kinds = self.info(version), {kind for action in self.entries[version] for kind in action}
        apps = {action["txn"]["appId"].rpartition(":")[2] for action in self.entries[version] if "txn" in action}
        if not kinds & {"add", "remove"}:
            return "columns" if "metaData" in kinds else "position"
        if "snapshot" in apps:
            return "read again"
        if "lsn" not in info:
            return "all rows" if "schemaVersion" in info else "maintenance"
        return "merge" if len(apps) == 1 else "chunks"

    def position(self, version: int) -> int:
        """The LSN that a commit reaches, 0 if it changes none."""
        return int(Lsn.parse(self.info(version).get("lsn", "0/0")))

    def segments(self) -> Iterator[tuple[int, int]]:
        """The versions that have a feed, divided where the columns change."""
        schemas = [
            next((a["metaData"]["schemaString"] for a in entry if "metaData" in a), None) for entry in self.entries
        ]
        starts = [self.fed_since, *(n for n in range(self.fed_since + 1, len(schemas)) if schemas[n]), self.last + 1]
        return ((first, end - 1) for first, end in pairwise(starts))


def batch(spark: Any, log: Log) -> list[dict[str, Any]]:
    """The feed as Spark reads it: with the columns of the newest version, unless another one is asked for."""
    spark.conf.set("spark.databricks.delta.changeDataFeed.allowTimeTravelOptionsForSchema", "true")
    told = list[dict[str, Any]]()
    for first, last in log.segments():
        reader = spark.read.format("delta").option("readChangeFeed", "true").option("versionAsOf", last)
        rows = reader.option("startingVersion", first).option("endingVersion", last).load(log.path).toArrow()
        told += pa.table(rows).to_pylist()
    return told


def changes(spark: Any, log: Log) -> list[dict[str, Any]]:
    """The changes as Spark derives them from data files and row ids."""
    spark.conf.set("spark.databricks.delta.changelogV2.enabled", "true")
    told = list[dict[str, Any]]()
    for first, last in log.segments():
        query = f"select * from delta.`{log.path}` changes from version {first} to version {last}"
        told += pa.table(spark.sql(query).toArrow()).to_pylist()
    return told


def streamed(spark: Any, log: Log, folder: Path) -> list[dict[str, Any]]:
    """The same by a stream that is started again, with its checkpoint, each time that the columns have changed."""
    told = list[dict[str, Any]]()

    def note(rows: Any, number: int) -> None:
        told.extend(pa.table(rows.toArrow()).to_pylist())

    for first, last in log.segments():
        path = as_of(log, last, folder / f"{Path(log.path).name}-{last}")
        reader = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
        writer = reader.load(path).writeStream.foreachBatch(note).trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{path}.checkpoint").start()
        try:
            assert query.awaitTermination(patient(120))
        finally:
            query.stop()
    return told


def as_of(log: Log, version: int, path: Path) -> str:
    """The table as it was when it had this version: files are links."""
    if not path.exists():
        shutil.copytree(log.path, path, copy_function=os.link)
        for entry in (path / "_delta_log").iterdir():
            if entry.name.startswith("_last") or (entry.is_file() and int(entry.name.split(".")[0]) > version):
                entry.unlink()
    return str(path)


def by_version(told: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    feed: dict[int, list[dict[str, Any]]] = {}
    for row in told:
        feed.setdefault(row["_commit_version"], []).append(row)
    return feed


def assert_as_changelog(
    log: Log, feed: dict[int, list[dict[str, Any]]], events: list[dict[str, Any]], told: str
) -> int:
    """A merge's feed has the last states of the keys that its events touch; returns the number of events.

    ``events`` are those that no rule refuses, of a table that keeps no rows.
    """
    rows, at, seen, was_read = dict[int, tuple[int, int]](), 0, 0, False
    for version in range(log.fed_since, log.last + 1):
        before = dict(rows)
        mine = [row for row in feed.get(version, []) if row["id"] % 100000 % 17 != 3]
        for row in sorted(mine, key=lambda row: row["_change_type"] in _NEW):
            if row["_change_type"] in _NEW:
                rows[row["id"]] = row["__commit_lsn"], row["__tx_index"]
            else:
                rows.pop(row["id"], None)
        if log.kind(version) == "merge":
            made = [event for event in events if at < event["__commit_lsn"] <= log.position(version)]
            before = applied(before, made)
            seen += len(made)
            # The commit of a transaction that a snapshot does not show may precede the snapshot's LSN (decision 3): it
            # is merged after it.
            every = [event for event in events if event["__commit_lsn"] <= log.position(version)] if was_read else []
            again = applied({}, every)
            assert rows.keys() == before.keys(), f"version {version}\n{told}"
            differing = {key for key, place in rows.items() if place not in (before[key], again.get(key))}
            assert not differing, f"version {version}\n{told}"
        was_read = log.kind(version) == "read again" or (was_read and log.kind(version) != "merge")
        at = max(at, log.position(version))
    return seen


def applied(rows: dict[int, tuple[int, int]], events: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    """The position of each key's last event."""
    rows = dict(rows)
    for event in events:
        sides = [event[side] for side in ("before", "after") if event[side] is not None]
        if event["__op"] == "t":
            rows.clear()
        elif sides[0]["id"] % 100000 % 17 != 3:
            rows.pop(sides[0]["id"], None)
            if event["__op"] != "d":
                rows[event["after"]["id"]] = event["__commit_lsn"], event["__tx_index"]
    return rows


def assert_differs(path: str, told: list[dict[str, Any]], *, has_key: bool) -> None:
    """No row of a re-read's feed has the values that it had."""
    own = {"__commit_lsn", "__tx_index", "__commit_ts", "_change_type", "_commit_version", "_commit_timestamp"}
    own |= {name for name in (told[0] if told else ()) if name.startswith("__valid")}
    names = [name for name in (told[0] if told else ()) if name not in own]
    lost, new = (rows_as_texts(names, (row for row in told if row["_change_type"] in kinds)) for kinds in (_LOST, _NEW))
    assert not lost & new


def texts_by_version(names: list[str], told: list[dict[str, Any]]) -> Counter[str]:
    every = [*names, "_change_type", "_commit_version"]
    return rows_as_texts(every, ({name: row.get(name) for name in every} for row in told))

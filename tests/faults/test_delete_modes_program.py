"""Random transactions on three tables, one a delete mode, through runs killed at random places.

Changes of rows, keys and tables, large values that updates leave out, truncates, and rows that a rule refuses. At the
end the rows in force are the source's in each mode. The rows that the modes soft and history keep are those of a model
that is built from the changelog's events; after a replay the history table also has those of the refused rows; and
reading the tables again adds and loses none. Of a table that had to be read again on the way, events do not tell when,
so only what holds for any history is looked at.

``WAL2LAKE_KILLS_SEED`` sets the seed, ``WAL2LAKE_KILLS_SECONDS`` how long new rounds are begun (default 30). Of an odd
seed Spark merges, of an even one Arrow.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import ConnectorConfig, load
from cdc_core.schema.table import TableId
from cdc_core.sink.delta.positions import lake_position
from cdc_core.sink.delta.table import DeltaTable
from tests.delta.kept_model import KeptModel
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, lake_path, rows, write_properties
from tests.support.program import Program
from tests.support.random_ddl import CONSTANTS, TYPES, RandomDdl, columns_of, difference

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

HARD, SOFT, HISTORY = TABLES = ("t_hard", "t_soft", "t_history")
LIVE = {HARD: "true", SOFT: "not __deleted", HISTORY: "__current"}
SECONDS = float(os.environ.get("WAL2LAKE_KILLS_SECONDS", "30"))
SEED = int(os.environ.get("WAL2LAKE_KILLS_SEED") or time.time_ns() % 1_000_000)
# Keys move by 100000, so that a row which a rule refused is refused wherever it goes.
REFUSED = "id % 100000 % 17 <> 3"
PLACES = (
    *(failpoints.BETWEEN_APPENDS, failpoints.DURING_APPEND, failpoints.AFTER_APPEND, failpoints.BEFORE_CONFIRM),
    *(failpoints.BETWEEN_MERGES, failpoints.DURING_MERGE, failpoints.AFTER_APPLY, failpoints.AFTER_QUARANTINE),
    *(failpoints.DURING_EVOLUTION, failpoints.AFTER_EVOLUTION, failpoints.BEFORE_ROUND_RECORD),
)
SPARK_PLACES = (failpoints.BEFORE_SPARK_MERGE, failpoints.AFTER_SPARK_MERGE)
VERBS = ("insert", "update", "update all", "delete", "move", "many", "large", "large", "twice", "again")


class Work(RandomDdl):
    """Changes that the stream carries: no table has to be read again, and the columns id and c stay what they are."""

    def _rows(self, count: int) -> list[str]:
        return [self.random.choice(VERBS) for _ in range(count)]

    def _ddl(self, count: int) -> list[str]:
        verbs = ("add", "add constant", "drop", "rename", "truncate", "identity full", "identity default")
        return [self.random.choice(verbs) for _ in range(count)]

    def _statements(self, verb: str, table: str) -> list[str]:
        chosen, how = self.random, self.random.randrange(10)
        where = f"where id::text like '%{how}'"
        self.next_id += 10
        new, kind = f"n{self.next_id}", chosen.choice(TYPES)
        names = [name for name, _, _ in columns_of(self.session, table) if name not in ("id", "c")]
        constant = chosen.choice(CONSTANTS.get(kind.split("(")[0], ("null",)))
        large = f"repeat(md5('{self.next_id}'), 100)"
        own = {
            "large": [f"update {table} set c = {large} {where}"],
            "many": [f"insert into {table} (id, c) select {self.next_id} + g, {large} from generate_series(1, 5) g"],
            "twice": [f"update {table} set id = id {where}", f"update {table} set id = id {where}"],
            "again": [f"delete from {table} where id = {how}", f"insert into {table} (id) values ({how})"],
            "add": [f"alter table {table} add {new} {kind}"],
            "add constant": [f"alter table {table} add {new} {kind} default {constant}"],
            "drop": [f"alter table {table} drop {chosen.choice(names)}"] if names else [],
            "rename": [f"alter table {table} rename {chosen.choice(names)} to {new}"] if names else [],
        }
        return own[verb] if verb in own else super()._statements(verb, table)


def test_each_mode_keeps_what_it_says_through_kills(pg: Cluster, program: Program, tmp_path: Path) -> None:
    print(f"WAL2LAKE_KILLS_SEED={SEED}")
    database = pg.database("modes")
    work = Work(pg, database, SEED, TABLES, publication=database)
    file = write_properties(tmp_path / "modes.properties", _properties(pg, database, tmp_path))
    config = load(file)
    try:
        work.setup()
        assert program.run("snapshot", file).returncode == 0
        models = {table: _begun(config, table) for table in (SOFT, HISTORY)}
        whole = _begun(config, HISTORY, "true")
        tokens = {table: _token(config, table) for table in models}
        killed = _run_and_kill(work, program, file)
        done = program.stream(file)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        told = f"seed {SEED}, killed at {killed}\n" + "\n".join(work.log)
        _assert_rows_in_force(work, config, told)
        read_again = {table for table in models if _token(config, table) != tokens[table]}
        for table, model in models.items():
            if table in read_again:
                _assert_no_overlap(config, table, told)
            else:
                _assert_kept(config, table, model, told)
        assert killed, told
        if HISTORY not in read_again:
            _replay_and_kill(program, file)
            _assert_kept(config, HISTORY, whole, told, "true")
        before = _versions(config)
        again = program.run("snapshot", file)
        assert again.returncode == 0, again.stderr[-2000:]
        _assert_rows_in_force(work, config, told)
        assert _versions(config) == before, told
        program.run("status", file)
    finally:
        work.close()
        pg.drop_database(database)


def _properties(pg: Cluster, database: str, folder: Path) -> dict[str, Any]:
    rules = {f"wal2lake.quality.rule.{table}": f"public.{table}: after.{REFUSED}" for table in TABLES}
    return pg.properties(
        database,
        **{
            "table.include.list": "public.t_.*",
            "publication.autocreate.mode": "all_tables",
            "wal2lake.lake.path": str(folder / "lake"),
            "wal2lake.state.path": str(folder / "state"),
            "wal2lake.freshness.seconds": "0",
            "wal2lake.lake.delete.mode": "history",
            "wal2lake.lake.delete.mode.soft": "public.t_soft",
            "wal2lake.lake.delete.mode.hard": "public.t_hard",
            "wal2lake.merge.engine": "spark" if SEED % 2 else "arrow",
            **rules,
        },
    )


def _run_and_kill(work: Work, program: Program, file: Path) -> Counter[str]:
    """Runs amid changes until the time is up; where they were killed, how often."""
    killed: Counter[str] = Counter()
    chance, end = work.random, time.monotonic() + SECONDS
    places = [*PLACES, *(SPARK_PLACES * 2 if SEED % 2 else ())]
    while time.monotonic() < end or (sum(killed.values()) < 2 and time.monotonic() < end + 120):
        place = chance.choice(places)
        work.run(chance.randrange(6, 16))
        beside = threading.Thread(target=work.run, args=(chance.randrange(1, 12),))
        beside.start()
        try:
            done = program.stream(file, f"{place}:{chance.choice((1, 1, 2))}")
        finally:
            beside.join(60)
        assert done.returncode in (0, -signal.SIGKILL), f"{place}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        killed[place] += done.returncode == -signal.SIGKILL
        work.log += [f"-- {line}" for line in done.stderr.splitlines() if "is re-read" in line]
    return +killed


def _replay_and_kill(program: Program, file: Path) -> None:
    """Let all refused changes of the history table in, by a replay that is killed and another one."""
    arguments = ("replay", file, f"public.{HISTORY}", "--accept-all")
    places = (failpoints.AFTER_QUARANTINE, failpoints.DURING_MERGE, failpoints.AFTER_APPLY)
    killed = program.run(*arguments, WAL2LAKE_FAILPOINT=places[SEED % len(places)])
    assert killed.returncode in (0, -signal.SIGKILL), killed.stderr[-2000:]
    done = program.run(*arguments)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def _assert_rows_in_force(work: Work, config: ConnectorConfig, told: str) -> None:
    for table in TABLES:
        path = lake_path(config, TableId("public", table))
        found = difference(work.session, table, path, REFUSED, live=f"{LIVE[table]} and {REFUSED}")
        assert not found, f"{table}: {found}\n{told}"


def _token(config: ConnectorConfig, table: str) -> int | None:
    """The snapshot in force."""
    name = TableId("public", table)
    return lake_position(DeltaTable.open(str(lake_path(config, name))), config.postgres.slot_name, name).token


def _assert_no_overlap(config: ConnectorConfig, table: str, told: str) -> None:
    """Versions of one key follow one another; in soft mode a key has one row."""
    held: dict[int, list[tuple[Any, Any]]] = {}
    for row in rows(lake_path(config, TableId("public", table))):
        place = None if table == SOFT else _version(row)[2:]
        held.setdefault(row["id"], []).append((None, None) if place is None else place)
    for key, places in held.items():
        assert table != SOFT or len(places) == 1, f"{key} of {table}\n{told}"
        ordered = sorted(places, key=lambda place: place[0] or ())
        for (_, ended), (began, _) in itertools.pairwise(ordered):
            assert ended is not None and ended <= began, f"{key} of {table}\n{told}"


def _begun(config: ConnectorConfig, table: str, where: str = REFUSED) -> KeptModel:
    """The model as of the first snapshot, whose rows the lake has, for the rows that ``where`` tells."""
    model = KeptModel(("id",))
    found = rows(lake_path(config, TableId("public", table)), f"select * from t where {where}")
    model.take([{"id": row["id"], "c": row["c"]} for row in found], (found[0]["__commit_lsn"], -1, None))
    return model


def _assert_kept(config: ConnectorConfig, table: str, model: KeptModel, told: str, where: str = REFUSED) -> None:
    """The model brought on by the changelog's events, against the lake's rows: keys, the large column, positions."""
    name = TableId("public", table)
    for event in sorted(rows(changelog_path(config, name)), key=lambda row: (row["__commit_lsn"], row["__tx_index"])):
        sides = {side: _part(event[side]) for side in ("before", "after")}
        key = (sides["after"] or sides["before"] or {"id": 0})["id"]
        if where != REFUSED or key % 100000 % 17 != 3:
            model.apply({**event, **sides, "__unchanged": [each for each in event["__unchanged"] if each == "c"]})
    held = rows(lake_path(config, name), f"select * from t where {where}")
    if table == SOFT:
        shown: Any = {(r["id"],): (r["c"], r["__deleted"], (r["__commit_lsn"], r["__tx_index"])) for r in held}
        wanted: Any = {key: (values["c"], gone, at) for key, (values, gone, at) in model.soft.items()}
        assert len(shown) == len(held) and any(gone for _, gone, _ in wanted.values()), told
    else:
        shown = Counter(_version(row) for row in held)
        wanted = Counter(
            (v.values["id"], v.values["c"], v.began[:2], None if v.ended is None else v.ended[:2])
            for v in model.versions
        )
    assert shown == wanted, f"{table}\n{told}"


def _part(side: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if side is None else {"id": side["id"], "c": side.get("c")}


def _version(row: dict[str, Any]) -> tuple[Any, ...]:
    assert row["__current"] is (row["__valid_to_lsn"] is None) is (row["__valid_to"] is None)
    ended = None if row["__valid_to_lsn"] is None else (row["__valid_to_lsn"], row["__valid_to_index"])
    return row["id"], row["c"], (row["__valid_from_lsn"], row["__tx_index"]), ended


def _versions(config: ConnectorConfig) -> tuple[Counter[Any], Counter[Any]]:
    """What the modes keep: versions of untainted keys, and marked rows."""
    history = rows(lake_path(config, TableId("public", HISTORY)), f"select * from t where {REFUSED}")
    soft = rows(lake_path(config, TableId("public", SOFT)), f"select * from t where {REFUSED} and __deleted")
    return Counter(map(_version, history)), Counter((row["id"], row["c"], row["__commit_lsn"]) for row in soft)

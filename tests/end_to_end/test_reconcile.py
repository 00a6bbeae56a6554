"""``wal2lake reconcile``: names the rows that differ, all of them and no other, and makes them equal."""

import json
import os
import random
import signal
import threading
import time

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from cdc_core.assemble import Connector
from cdc_core.config.connector import load
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.stores.reconciliations import read_reconciliations
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, lake_settings, rows, write_properties
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
create table hard (id int primary key, v text, n numeric(10, 2), at timestamptz default now(), d date);
create table soft (id int primary key, v text);
create table history (id int primary key, v text);
create table pair (a text collate "und-x-icu", b uuid, v text, primary key (a, b));
create table bare (v text, n int);
alter table bare replica identity full;
create table parts (id int, v text, primary key (id)) partition by range (id);
create table parts_low partition of parts for values from (0) to (50);
create table parts_high partition of parts for values from (50) to (1000);
create table masked (id int primary key, v text, secret text, long text);
create table hidden (id text primary key, v text);
create table stamped (at timestamptz primary key, v text);
insert into hard select g, 'v' || g, g / 3.0, now(), case when g % 7 = 0 then 'infinity' else date '2024-02-29' end
    from generate_series(1, 60) g;
insert into soft select g, 'v' from generate_series(1, 40) g;
insert into history select g, 'v' from generate_series(1, 40) g;
insert into pair select chr(96 + g) || 'é', md5(g::text)::uuid, repeat('x', g * 400) from generate_series(1, 20) g;
insert into bare select 'v' || g % 4, g % 3 from generate_series(1, 40) g;
insert into parts select g, 'v' from generate_series(1, 90) g;
insert into masked select g, 'v', 'secret', repeat('long', g) from generate_series(1, 20) g;
insert into hidden select 'key' || g, 'v' || g from generate_series(1, 20) g;
insert into stamped select timestamptz '2024-01-01 00:00:00.5Z' + g * interval '1 hour', 'v'
    from generate_series(1, 9) g;
"""
MODES = ("hard", "soft", "history")
TABLES = ("hard", "soft", "history", "pair", "bare", "parts", "masked", "hidden", "stamped")


def connector(pg, database, folder, name="reconcile", **more):
    return write_properties(
        folder / f"{name}.properties",
        pg.properties(
            database,
            **{
                "schema.include.list": "public",
                "publication.autocreate.mode": "filtered",
                "publish.via.partition.root": "true",
                "wal2lake.lake.delete.mode.soft": "public.soft",
                "wal2lake.lake.delete.mode.history": "public.history",
                "column.mask.hash.SHA-256.with.salt.pepper": "public.masked.secret,public.hidden.id",
                "column.truncate.to.5.chars": "public.masked.long",
                **lake_settings(folder),
                **more,
            },
        ),
    )


def reconciled(program, file, *arguments, code=None, **more):
    done = program.run("reconcile", file, "--json", *arguments, **more)
    assert code is None or done.returncode == code, f"{done.stdout}{done.stderr[-3000:]}"
    assert done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout)


def lake_table(file, name):
    return DeltaTable(str(lake_path(load(file), TableId("public", name))))


def invented(file, name, predicate, **values):
    """Add a copy of a row, with other values."""
    path = lake_path(load(file), TableId("public", name))
    row = rows(path, f"select * from t where {predicate} limit 1")[0] | values
    schema = pa.schema(DeltaTable(str(path)).schema().to_arrow())
    write_deltalake(str(path), pa.Table.from_pylist([row], schema=pa.schema(schema)), mode="append")


def of(report, name):
    return report["tables"][f"public.{name}"]


def keys(report, name):
    found = of(report, name)
    return {kind: found[kind] for kind in ("missing", "extra", "changed") if found[kind]}


def test_what_differs_is_named(pg, program, tmp_path):
    database = pg.database("reconcile")
    pg.execute(database, SCHEMA)
    file = connector(pg, database, tmp_path)
    assert program.stream(file).returncode == 0
    pg.execute(database, "update hard set v = 'later' where id < 10; update history set v = 'later' where id < 5")
    pg.execute(
        database, "delete from soft where id < 4; delete from history where id = 6; delete from bare where n = 1"
    )
    assert program.stream(file).returncode == 0

    clean = reconciled(program, file, code=0)
    assert {name: of(clean, name)["state"] for name in TABLES} == dict.fromkeys(TABLES, "equal")
    assert of(clean, "hard")["rows"] == 60
    assert of(clean, "soft")["rows"] == 37

    # Changes that no run has read yet are no differences, whatever they do.
    pg.execute(
        database,
        "update hard set v = 'waits' where id in (20, 21); delete from hard where id = 22; "
        "insert into hard values (1000, 'new'); update hard set id = 2000 where id = 23; "
        "insert into bare values ('waits', 9); delete from bare where n = 2; "
        "truncate soft; insert into soft values (1, 'after the truncate'); "
        "update pair set v = 'short' where a like 'c%'",
    )
    pending = reconciled(program, file, code=0)
    assert {name: of(pending, name)["state"] for name in TABLES} == dict.fromkeys(TABLES, "equal")

    lake_table(file, "hard").delete("id in (30, 31)")
    lake_table(file, "hard").update(updates={"n": "0.5"}, predicate="id = 32")
    lake_table(file, "hard").update(updates={"v": "'wrong, and overwritten by what waits'"}, predicate="id = 20")
    invented(file, "hard", "id = 33", id=3000)
    invented(file, "hard", "id = 34")
    lake_table(file, "history").update(updates={"v": "'wrong'"}, predicate="id = 7 and __current")
    lake_table(file, "history").delete("id = 8 and __current")
    past = "id = 3 and not __current"
    lake_table(file, "history").update(updates={"__valid_to_lsn": "__valid_to_lsn - 1"}, predicate=past)
    lake_table(file, "pair").delete("a = 'dé'")
    lake_table(file, "hidden").update(updates={"v": "'wrong'"}, predicate="v = 'v3'")
    lake_table(file, "bare").delete("v = 'v3' and n = 0")
    lake_table(file, "parts").update(updates={"v": "'wrong'"}, predicate="id = 70")
    lake_table(file, "masked").update(updates={"secret": "'clear'"}, predicate="id = 3")
    # Spark's tasks read the lake tables of any size.
    by_spark = connector(pg, database, tmp_path, name="by_spark", **{"wal2lake.reconcile.spark.bytes": "0"})
    found = reconciled(program, by_spark, code=1)
    assert keys(found, "hard") == {"missing": [["30"], ["31"]], "extra": [["34"], ["3000"]], "changed": [["32"]]}
    assert keys(found, "soft") == {}
    assert keys(found, "history") == {"missing": [["8"]], "changed": [["7"]]}
    assert of(found, "history")["changelog"]["versions"] == {"count": 1, "keys": [["3"]], "removed": 0}
    lake_table(file, "history").update(updates={"__valid_to_lsn": "__valid_to_lsn + 1"}, predicate=past)
    uuid = pg.execute(database, "select b::text from pair where a = 'dé'")[0][0]
    assert keys(found, "pair") == {"missing": [["dé", uuid]]}
    gone = pg.execute(database, "select count(*) from bare where v = 'v3' and n = 0")[0][0]
    assert of(found, "bare")["counts"]["missing"] == gone > 0
    assert keys(found, "parts") == {"changed": [["70"]]}
    assert keys(found, "masked") == {"changed": [["3"]]}
    assert len(of(found, "hidden")["changed"]) == 1
    assert "key" not in of(found, "hidden")["changed"][0][0]
    assert of(found, "stamped")["state"] == "equal"

    assert program.stream(file).returncode == 0
    invented(file, "bare", "n = 0")
    invented(file, "bare", "n = 0", v="nowhere")
    invented(file, "soft", "id = 1", id=77)
    invented(file, "soft", "id = 1")
    invented(file, "history", "id = 9 and __current")
    versions = len(rows(lake_path(load(file), TableId("public", "history"))))
    later = reconciled(program, file, "--repair", "--dry-run", code=1)
    assert keys(later, "hard") == keys(found, "hard")
    assert keys(later, "soft") == {"extra": [["1"], ["77"]]}
    assert keys(later, "history") == keys(found, "history") | {"extra": [["9"]]}

    assert of(later, "bare")["counts"]["extra"] == 2
    repaired = reconciled(program, file, "--repair", code=0)
    assert {name: of(repaired, name)["state"] for name in TABLES} == dict.fromkeys(TABLES, "equal")
    assert of(repaired, "hard")["repaired"] == 5
    assert of(repaired, "bare")["repaired"] == gone + 2
    # History keeps what it had: the wrong version has ended, and the right one began after it.
    assert len(rows(lake_path(load(file), TableId("public", "history")))) == versions + 3
    assert reconciled(program, file, code=0)

    # The stream goes on from the same positions.
    pg.execute(database, "update hard set v = 'after the repair'; delete from hard where id < 40; delete from soft")
    pg.execute(database, "update history set v = 'after the repair' where id < 20")
    assert program.stream(file).returncode == 0
    assert reconciled(program, file, code=0)

    # Parts: what changed since the last comparison, and a sample of both sides.
    pg.execute(database, "update hard set v = 'since' where id in (41, 42); insert into hard values (43000, 'since')")
    assert program.stream(file).returncode == 0
    lake_table(file, "hard").update(updates={"v": "'wrong'"}, predicate="id in (42, 50)")
    since = reconciled(program, file, "public.hard", "--since", "last", code=1)
    assert keys(since, "hard") == {"changed": [["42"]]}
    assert of(since, "hard")["rows"] == 3
    sample = reconciled(program, file, "public.hard", "--sample", "2", code=1)
    assert keys(sample, "hard") == {"changed": [["42"], ["50"]]}
    assert reconciled(program, file, "public.hard", "--repair", code=0)

    paths = LakePaths(str(tmp_path / "lake"), load(file).schema.topic_prefix)
    log = read_reconciliations(paths.reconciliations)
    last = [each for each in log if each.table == TableId("public", "hard")][-4:]
    assert [(each.kind, each.state, each.counts["changed"]) for each in last] == [
        ("since", "different", 1),
        ("sample", "different", 2),
        ("all", "different", 2),
        ("all", "equal", 0),
    ]
    assert last[-1].counts["repaired"] == 2
    assert last[0].keys["changed"] == [["42"]]

    # Killed, and continued: what was compared before is not compared again.
    slow = connector(pg, database, tmp_path, name="slow", **{"wal2lake.reconcile.rows.per.second": "10"})
    with program.started("reconcile", slow, "--json") as running:
        wait_until(lambda: list((tmp_path / "state").glob("reconcile-*.json")), 60, "the first result")
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
    assert set(reconciled(program, file, "--resume", code=0)["tables"]) == {f"public.{name}" for name in TABLES}
    log = read_reconciliations(paths.reconciliations)
    run = [each.table.table for each in log if each.run == log[-1].run]
    assert sorted(run) == sorted(TABLES)
    assert len({each.lsn for each in log if each.run == log[-1].run}) == 2

    pg.execute(database, "drop table stamped")
    dropped = reconciled(program, file, "public.stamped", code=0)
    assert of(dropped, "stamped")["state"] == "left out"
    assert "no such table" in of(dropped, "stamped")["reason"]


def test_beside_a_stream_nothing_is_named_wrongly(pg, program, tmp_path):
    database = pg.database("reconcile")
    pg.execute(database, SCHEMA)
    for name in MODES:
        pg.execute(database, f"insert into {name} (id, v) select g, 'quiet' from generate_series(101, 140) g")
    # The writers never pause, so rounds would not either.
    file = connector(pg, database, tmp_path, **{"wal2lake.freshness.seconds": "1"})
    assert program.stream(file).returncode == 0
    stop, chance = threading.Event(), random.Random(os.environ.get("WAL2LAKE_SEED", "7"))

    def write(seed):
        own = random.Random(seed)
        with pg.connect(database) as connection:
            connection.autocommit = True
            # Some hundred transactions a second of all three: more only make the run's rounds larger.
            while not stop.wait(0.01):
                connection.execute(statement(own))

    with program.started("run", file, "--verbose") as running:
        writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
        for writer in writers:
            writer.start()
        try:
            running.wait_for("changes into", 120)
            compared, begun = Connector.from_file(file), running.said().count("changes into")
            for number in range(12):
                # Some of them beside rounds, whatever the speed of either.
                if number >= 5 and running.said().count("changes into") >= begun + 3:
                    break
                found = compared.reconcile().to_plain()
                assert {name: keys(found, name) for name in TABLES} == {name: {} for name in TABLES}
                assert {of(found, name)["state"] for name in TABLES} == {"equal"}
            wrong = {name: corrupted(file, name, chance) for name in MODES}
            found = compared.reconcile().to_plain()
            assert {name: keys(found, name) for name in TABLES} == {name: wrong.get(name, {}) for name in TABLES}
        finally:
            stop.set()
            for writer in writers:
                writer.join(patient(60))
        repaired = compared.reconcile(repair=True).to_plain()
        assert {name: keys(repaired, name) for name in TABLES} == {name: {} for name in TABLES}
        assert {of(repaired, name)["repaired"] for name in MODES} == {4}
        assert running.end(signal.SIGTERM) == 0, running.said()[-3000:]
    assert program.stream(file).returncode == 0
    assert reconciled(program, file, code=0)


def corrupted(file, name, chance):
    """Damage four rows that nobody writes, each in its own way; what must be named."""
    gone, wrong, twice, like = chance.sample(range(101, 141), 4)
    new, current = chance.randint(5000, 9999), {"history": " and __current", "soft": " and not __deleted"}.get(name, "")
    for damage in (
        lambda: lake_table(file, name).delete(f"id = {gone}{current}"),
        lambda: lake_table(file, name).update(updates={"v": "'wrong'"}, predicate=f"id = {wrong}{current}"),
        lambda: invented(file, name, f"id = {twice}{current}"),
        lambda: invented(file, name, f"id = {like}{current}", id=new),
    ):
        retried(damage)
    return {"missing": [[str(gone)]], "extra": [[str(twice)], [str(new)]], "changed": [[str(wrong)]]}


def retried(damage):
    """Do what may conflict with a commit of the run."""
    for _ in range(20):
        try:
            return damage()
        except DeltaError:
            time.sleep(0.05)
    raise AssertionError("twenty conflicts")


def statement(chance):
    table = chance.choice(["hard", "soft", "history"])
    one = chance.randint(1, 60)
    return chance.choice(
        [
            f"update {table} set v = '{chance.random()}' where id = {one}",
            f"delete from {table} where id = {one}",
            f"insert into {table} (id, v) values ({one}, '{chance.random()}') on conflict do nothing",
            f"update {table} set id = {one + 1000} where id = {one} and not exists "
            f"(select from {table} where id = {one + 1000})",
            f"insert into bare values ('{one % 4}', {one % 3})",
            f"delete from bare where n = {one % 3} and v = '{one % 4}'",
            f"update pair set v = repeat('y', {one} * 100) where v < chr({97 + one % 20})",
        ]
    )

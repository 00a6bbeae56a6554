"""Rows that somebody removed from lake tables, or gave another key: told at the row's next change, and re-read."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_path, lake_settings, rows, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

KEEPS = ("hard", "soft", "history")
NAMES = (*KEEPS, "keyless", "parts", "fine")
# Of the rows 3 to 10 two are removed, two get another key, for each of four kinds of change.
DAMAGE = (("delete", "id in (3, 5, 7, 9)"), ("update", "id in (4, 6, 8, 10)"))
CHANGES = (
    "update {t} set v = 'new' where id in (3, 4);"
    "update {t} set id = id + 100 where id in (5, 6);"
    "delete from {t} where id in (7, 8);"
    "update {t} set v = 'kept' where id in (9, 10)"
)
LONG = "(select string_agg(md5(g::text || i::text), '') from generate_series(1, 200) i)"


def table(name: str) -> TableId:
    return TableId("public", name)


def connector(pg: Cluster, folder: Path, name: str, names: tuple[str, ...], **more: str) -> tuple[str, Path]:
    """A database with tables of twenty rows, whose column t is stored out of line, and its connector file."""
    database = pg.database(name)
    for each in names:
        key = "" if each == "keyless" else ", primary key (id)"
        parted = " partition by range (id)" if each == "parts" else ""
        pg.execute(
            database,
            f"create table {each} (id int not null, v text, t text{key}){parted};"
            + ("create table low partition of parts for values from (0) to (6);" if parted else "")
            + ("create table high partition of parts for values from (6) to (1000);" if parted else "")
            + "".join(
                f"alter table {one} alter t set storage external;" for one in (("low", "high") if parted else (each,))
            )
            + ("alter table keyless replica identity full;" if not key else "")
            + f"insert into {each} select g, 'v', {LONG} from generate_series(1, 20) g",
        )
    settings = {
        "schema.include.list": "public",
        "publish.via.partition.root": "true",
        "wal2lake.lake.delete.mode.soft": "public.soft",
        "wal2lake.lake.delete.mode.history": "public.history",
        **lake_settings(folder),
        **more,
    }
    return database, write_properties(folder / f"{name}.properties", pg.properties(database, **settings))


def damage(path: Path) -> None:
    lake = DeltaTable(str(path))
    for what, where in DAMAGE:
        if what == "delete":
            lake.delete(where)
        else:
            lake.update({"id": "id + 1000"}, predicate=where)


def live(path: Path, name: str) -> list[dict[str, Any]]:
    where = {"soft": "where not __deleted", "history": "where __current"}.get(name, "")
    return rows(path, f"select id, v, t from t {where} order by id, v")


def test_every_mode_says_what_is_missing_and_is_read_again(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database, file = connector(pg, tmp_path, "missing", NAMES)
    assert program.stream(file).returncode == 0
    paths = {name: lake_path(load(file), table(name)) for name in NAMES}
    for name in NAMES[:-1]:
        damage(paths[name])
    for name in NAMES:
        pg.execute(database, CHANGES.format(t=name))
    # Nothing is recorded yet when this run ends; the next one finds the same.
    program.killed_at("before-confirm", file)
    assert len(live(paths["hard"], "hard")) == 16
    # This one ends when all is recorded, before a table is read again; status says what is to be done.
    done = program.stream(file, "before-round-record")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == -signal.SIGKILL, said[-3000:]
    for name in NAMES[:-1]:
        absent = f"8 rows that changes update or delete are not in the lake table of public.{name};"
        told = f"public.{name} is re-read: {absent}"
        assert said.count(told) == 1, said
    assert "public.fine" not in said, said
    listed = json.loads(program.run("status", file, "--json").stdout)["tables"]
    assert [one["table"] for one in listed if "8 rows" in one["reread"]] == sorted(f"public.{n}" for n in NAMES[:-1])
    assert program.stream(file).returncode == 0
    source = pg.execute(database, "select id, v, t from fine order by id, v")
    for name in NAMES:
        assert [tuple(one.values()) for one in live(paths[name], name)] == source, name
    # A value that the change omitted is the source's, and only that of the row.
    assert all(one["t"] for one in live(paths["hard"], "hard"))
    assert difference(file, [table(name) for name in ("hard", "keyless", "parts", "fine")]) == []
    # What is right now stays so, and is not told again.
    for name in NAMES:
        pg.execute(database, f"update {name} set v = 'last'; delete from {name} where id = 1")
    done = program.stream(file)
    assert done.returncode == 0 and "not in the lake table" not in done.stdout + done.stderr, done.stderr[-3000:]
    assert difference(file, [table(name) for name in ("hard", "keyless", "parts", "fine")]) == []


def test_where_schema_changes_pause_a_table_missing_rows_do_too(pg: Cluster, program: Program, tmp_path: Path) -> None:
    more = {"wal2lake.lake.schema.changes": "pause"}
    database, file = connector(pg, tmp_path, "missing_paused", ("hard", "fine"), **more)
    assert program.stream(file).returncode == 0
    path = lake_path(load(file), table("hard"))
    damage(path)
    for name in ("hard", "fine"):
        pg.execute(database, CHANGES.format(t=name))
    assert program.stream(file).returncode == 1
    paused = program.paused(file)
    assert set(paused) == {"public.hard"} and "8 rows that changes update or delete" in paused["public.hard"]["reason"]
    assert len(live(path, "hard")) == 16
    done = program.run("replay", file, "public.hard")
    assert done.returncode == 0, done.stderr[-3000:]
    assert not program.paused(file)
    assert difference(file, [table("hard"), table("fine")]) == []


def test_a_lake_that_has_only_a_part_of_the_rows_is_left_alone(pg: Cluster, program: Program, tmp_path: Path) -> None:
    """By configuration: no snapshot, or one of a statement of the user's."""
    cases = {
        "missing_no_data": {"snapshot.mode": "no_data"},
        "missing_statement": {
            "snapshot.select.statement.overrides": "public.hard",
            "snapshot.select.statement.overrides.public.hard": "select * from hard where id > 10",
        },
    }
    for name, more in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        database, file = connector(pg, folder, name, ("hard",), **more)
        assert program.stream(file).returncode == 0
        pg.execute(database, CHANGES.format(t="hard"))
        done = program.stream(file)
        assert done.returncode == 0 and "re-read" not in done.stdout + done.stderr, done.stderr[-3000:]
        found = {one["id"] for one in live(lake_path(load(file), table("hard")), "hard")}
        assert {3, 4, 105, 106, 9, 10} <= found and not {1, 2, 7, 8} & found

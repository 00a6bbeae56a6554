"""Old minor versions with known faults: what their stream does not have, or has wrongly, is right in the lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ANEW = "The stream is begun anew at"
TABLES = [TableId("public", name) for name in ("first", "again", "moods", "places", "joined")]
SCHEMA = """
create type mood as enum ('good', 'bad');
create type place as (x int);
create table first (id int primary key, v text);
create table again (id int primary key, v text);
create table moods (id int primary key, m mood);
create table places (id int primary key, p place);
create table joined (id int primary key, v text);
insert into first values (1, 'a');
insert into again values (1, 'a');
insert into moods values (1, 'good'), (2, 'bad');
insert into places values (1, row(1));
"""


def written(number: int, mood: str, place: str) -> str:
    """A row of each table."""
    return f"""
    insert into first values ({number}, 'a'); insert into again values ({number}, 'a');
    insert into moods values ({number}, '{mood}'); insert into places values ({number}, row({place}));
    insert into joined values ({number}, 'a')
    """


def by_others(cluster: Cluster, database: str, folder: Path) -> Path:
    """A connector whose publication others manage."""
    settings = {"schema.include.list": "public", "publication.autocreate.mode": "disabled", **lake_settings(folder)}
    return write_properties(folder / "by_others.properties", cluster.properties(database, **settings))


def altered(cluster: Cluster, database: str) -> None:
    """Every change that a walsender of these versions does not take note of beside an open transaction."""
    for statement in (
        f'alter publication "{database}" drop table again',
        f'alter publication "{database}" add table again',
        "alter type mood rename value 'good' to 'fine'",
        "alter type place add attribute y int",
        f'alter publication "{database}" add table joined',
    ):
        cluster.execute(database, statement)


@pytest.mark.parametrize("flavour", ["released15_4", "released15_12"])
def test_changes_of_the_catalogue_beside_an_open_transaction(
    request: pytest.FixtureRequest, program: Program, tmp_path: Path, flavour: str
) -> None:
    cluster: Cluster = request.getfixturevalue(flavour)
    database = cluster.database("beside")
    cluster.execute(database, SCHEMA)
    cluster.execute(database, f'create publication "{database}" for table first, again, moods, places')
    file = by_others(cluster, database, tmp_path)
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]

    with program.started("run", file, "--max-seconds", "1500") as run:
        cluster.execute(database, "insert into first values (2, 'a')")
        wait_until(lambda: not difference(file, TABLES[:1]), 60, "the stream")
        with cluster.connect(database) as older:
            older.execute("begin")
            older.execute(written(10, "good", "1"))
            altered(cluster, database)
            older.execute(written(11, "fine", "2, 3"))
            older.execute("commit")
        # By another walsender: the table that joined, whose changes were not sent, is not in the stream before that.
        wait_until(lambda: not difference(file, TABLES[:4]), 60, "the tables that are known")
        cluster.execute(database, written(20, "fine", "2, 3") + "; delete from again where id = 10")
        wait_until(lambda: not difference(file, TABLES), 60, "the tables as they are")
        cluster.execute(database, written(21, "fine", "2, 3") + "; delete from joined where id = 11")
        wait_until(lambda: not difference(file, TABLES), 60, "what came after")
        run.end(2)

    # While down: another label, a table that left and came back, and a transaction that ends beside the next run.
    with cluster.connect(database) as older:
        older.execute("begin")
        older.execute(written(30, "fine", "2, 3"))
        cluster.execute(database, f'alter publication "{database}" drop table again')
        cluster.execute(database, f'alter publication "{database}" add table again')
        cluster.execute(database, "alter type mood rename value 'fine' to 'good'")
        with program.started("run", file, "--max-seconds", "1500") as run:
            run.wait_for("public.moods could not be re-read")
            older.execute(written(31, "good", "2, 3"))
            older.execute("commit")
            wait_until(lambda: not difference(file, TABLES), 60, "the tables as they were left")
            assert ANEW in run.said()
            cluster.execute(database, written(40, "good", "2, 3"))
            wait_until(lambda: not difference(file, TABLES), 60, "the tables as they are")
            cluster.execute(database, written(41, "good", "2, 3") + "; delete from again where id = 30")
            wait_until(lambda: not difference(file, TABLES), 60, "what came after")
            run.end(2)


OLD_ROWS = """
create table bare (a int, v text);
alter table bare replica identity full;
create table added (a int, v text);
alter table added replica identity full;
create table keyed (id int primary key, v text);
alter table keyed replica identity full;
create table parted (a int, v text) partition by range (a);
create table parted_1 partition of parted for values from (0) to (100);
alter table parted replica identity full; alter table parted_1 replica identity full;
insert into bare select g, 'v' from generate_series(1, 5) g;
insert into added select g, 'v' from generate_series(1, 5) g;
insert into keyed select g, 'v' from generate_series(1, 5) g;
insert into parted select g, 'v' from generate_series(1, 5) g;
alter table added add column b int default 7;
alter table parted add column b int default 7;
"""


def test_old_rows_without_the_default_of_an_added_column(
    released15_4: Cluster, program: Program, tmp_path: Path
) -> None:
    cluster, database = released15_4, released15_4.database("old_rows")
    bare, added, keyed = (TableId("public", name) for name in ("bare", "added", "keyed"))
    cluster.execute(database, OLD_ROWS)

    def connector(*excluded: str) -> Path:
        settings = {
            "schema.include.list": "public",
            "table.exclude.list": ",".join(f"public.{name}" for name in excluded),
            "publish.via.partition.root": "true",
            **lake_settings(tmp_path),
        }
        return write_properties(tmp_path / "old_rows.properties", cluster.properties(database, **settings))

    # A table that would lose deletes is refused before anything is read, and named by the check.
    file = connector()
    for command in ("check", "run"):
        done = program.run(command, file, *(("--until-idle", "0.2") if command == "run" else ()))
        said = done.stdout + done.stderr
        assert done.returncode != 0, said
        assert "sends NULL in place of the default" in said and "PostgreSQL 15.6" in said, said
        assert "public.added" in said or "public.parted" in said, said
    assert "PostgreSQL 15.13" in program.run("check", file).stdout

    file = connector("added", "parted.*")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    with program.started("run", file, "--max-seconds", "1500") as run:
        cluster.execute(database, "alter table keyed add column b int default 7")
        cluster.execute(database, "update keyed set v = 'w' where id = 1; delete from keyed where id = 2")
        cluster.execute(database, "alter table bare add column b int default 7")
        cluster.execute(database, "delete from bare where a = 2; insert into bare values (6, 'v', null)")
        run.wait_for("public.bare is paused")
        wait_until(lambda: not difference(file, [keyed]), 60, "the table with a key")
        # What ends it: the rows are written again, with all columns.
        cluster.execute(database, "vacuum full bare")
        wait_until(lambda: not difference(file, [bare]), 90, "the table without a key")
        cluster.execute(database, "delete from bare where a = 3; update bare set v = 'w' where a = 4")
        wait_until(lambda: not difference(file, [bare]), 60, "changes of the rewritten table")
        run.end(2)
    # Rewritten, it is captured like any other table.
    cluster.execute(database, "vacuum full added")
    file = connector("parted.*")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    cluster.execute(database, "delete from added where a = 2")
    assert program.stream(file).returncode == 0
    assert difference(file, [bare, added, keyed]) == []


def test_values_that_a_plug_in_does_not_send_as_they_are(debian15: Cluster, program: Program, tmp_path: Path) -> None:
    """The two plug-ins at their tables: refused where rows are identified by such values, said where not."""
    cluster, database = debian15, debian15.database("plugin_faults")
    growing = TableId("public", "growing")
    cluster.execute(
        database,
        """
        create table plain (id int primary key, r real, f float8 not null, n numeric(6, 2), z timetz);
        create table growing (a int);
        create table floats (a int, f float8);
        create table by_number (n numeric primary key);
        create table by_zone (z timetz primary key, n numeric);
        create table zones (a int, z timetz);
        alter table growing replica identity full; alter table floats replica identity full;
        alter table zones replica identity full;
        insert into plain values (1, 1.5, 2.5, 3.5, '10:00+02');
        insert into growing values (1), (2);
        """,
    )
    told = {"wal2json": "NaN and infinity", "decoderbufs": "in UTC, without the zone"}
    refused = {"wal2json": ("floats", "by_number"), "decoderbufs": ("by_zone", "zones")}
    others = {"wal2json": "real", "decoderbufs": "timetz"}

    for name, said in told.items():

        def connector(*excluded: str, name: str = name) -> Path:
            settings = {
                "plugin.name": name,
                "slot.name": f"{database}_{name}",
                "topic.prefix": name,
                "schema.include.list": "public",
                "table.exclude.list": ",".join(f"public.{each}" for each in excluded),
                **lake_settings(tmp_path / name),
            }
            return write_properties(tmp_path / f"{name}.properties", cluster.properties(database, **settings))

        checked = program.run("check", connector())
        assert checked.returncode != 0, checked.stdout
        for table in refused[name]:
            assert f"public.{table}" in checked.stdout, checked.stdout
        run = program.stream(connector())
        assert run.returncode != 0 and said in run.stderr + run.stdout, run.stdout + run.stderr

        file = connector(*refused[name])
        done = program.stream(file)
        # Columns that identify no rows are named.
        assert done.returncode == 0, done.stderr[-3000:]
        assert said in done.stderr + done.stdout and "public.plain" in done.stderr + done.stdout, done.stderr
        cluster.execute(database, f"alter table growing add column c_{name} {others[name]}")
        cluster.execute(database, "insert into growing values (3); delete from growing where a = 1")
        done = program.stream(file)
        assert "public.growing is paused" in done.stderr + done.stdout, done.stdout + done.stderr
        cluster.execute(database, f"alter table growing drop column c_{name}; insert into growing values (1)")
        done = program.stream(file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert difference(file, [growing]) == [], name
        cluster.drop_slots([database])


def test_events_of_a_table_that_joins_beside_an_open_transaction(
    released15_4: Cluster, program: Program, tmp_path: Path
) -> None:
    """Of events only those are missing that the first walsender did not send: the stream of them is begun anew, too."""
    cluster, database = released15_4, released15_4.database("events")
    cluster.execute(database, SCHEMA)
    cluster.execute(database, f'create publication "{database}" for table first')
    settings = {
        "schema.include.list": "public",
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "wal2lake.sinks": "noop",
        "wal2lake.state.path": str(tmp_path / "state"),
    }
    file = write_properties(tmp_path / "events.properties", cluster.properties(database, **settings))
    output = tmp_path / "events.jsonl"

    def has(name: str, number: int) -> bool:
        lines = output.read_text().splitlines()
        return any(f'"table":"{name}"' in line and f'"after":{{"id":{number},' in line for line in lines)

    cluster.execute(database, "select pg_create_logical_replication_slot(%s, 'pgoutput')", [database])
    with program.started("envelopes", file, "--output", str(output), own_java=True) as run:
        cluster.execute(database, "insert into first values (2, 'a')")
        wait_until(lambda: has("first", 2), 60, "the stream")
        with cluster.connect(database) as older:
            older.execute("begin; insert into joined values (10, 'a')")
            cluster.execute(database, f'alter publication "{database}" add table joined')
            older.execute("insert into joined values (11, 'a')")
            # Until the change of the publication was seen no other walsender is asked for.
            begun = run.said().count(ANEW)
            older.execute("commit")
        wait_until(lambda: run.said().count(ANEW) > begun, 60, "another walsender")
        cluster.execute(database, "insert into joined values (20, 'a')")
        wait_until(lambda: has("joined", 20), 60, "its events")
        run.end(2)

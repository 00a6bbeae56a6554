"""A partitioned table is in the lake under the names that the stream has for its rows, and a snapshot has one point."""

import json

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PLAIN, ROOT = TableId("app", "plain"), TableId("app", "root")
LEAVES = [TableId("app", f"root_{name}") for name in ("a", "b1", "b2", "c")]
SCHEMA = """
create schema app;
create table app.plain (id int primary key, v text);
create table app.root (id int, v text, primary key (id)) partition by range (id);
create table app.root_a partition of app.root for values from (0) to (100);
create table app.root_b partition of app.root for values from (100) to (300) partition by range (id);
create table app.root_b1 partition of app.root_b for values from (100) to (200);
create table app.root_b2 partition of app.root_b for values from (200) to (300);
create table app.root_c partition of app.root default;
insert into app.plain select g, 'v' from generate_series(1, 20) g;
insert into app.root select g, 'v' from generate_series(1, 400, 7) g;
"""


def statuses(program, file):
    done = program.run("status", file, "--json")
    assert done.returncode == 0, done.stderr
    return {one["table"]: one for one in json.loads(done.stdout)["tables"]}


def connector(pg, database, folder, **more):
    settings = {"schema.include.list": "app", "publication.autocreate.mode": "disabled", **lake_settings(folder)}
    return write_properties(folder / "parted.properties", pg.properties(database, **{**settings, **more}))


def test_all_tables_of_a_snapshot_show_one_point_and_roots_are_not_listed(pg, program, tmp_path):
    database = pg.database("one_point")
    pg.execute(database, SCHEMA)
    pg.execute(database, f'create publication "{database}" for tables in schema app')
    file = connector(pg, database, tmp_path)
    divided = (
        "app.root is partitioned and is captured as its partitions: app.root_a, app.root_b1, app.root_b2, app.root_c. "
        "There is no table of its own name."
    )
    checked = program.run("check", file).stdout
    assert f"warn captured tables: {divided}" in checked, checked
    assert "5 of 7 tables are captured: app.plain, app.root_a, app.root_b1, app.root_b2, app.root_c." in checked, (
        checked
    )
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count(divided) == 1, done.stderr
    assert difference(file, [PLAIN, *LEAVES]) == []
    found = statuses(program, file)
    assert sorted(found) == sorted(map(str, [PLAIN, *LEAVES]))
    assert len({one["snapshot_lsn"] for one in found.values()}) == 1, found
    # A partition that is made later; and nothing is read again only because the server lists facts in another order.
    with program.started("run", file, "--max-seconds", "1500") as run:
        pg.execute(database, "create table app.root_d partition of app.root for values from (1000) to (2000)")
        pg.execute(database, "insert into app.root values (1001, 'new'), (5, 'new'), (250, 'new')")
        new = TableId("app", "root_d")
        wait_until(lambda: not difference(file, [PLAIN, *LEAVES, new]), 60, "the new partition")
        # The names change: partitions stop, their table begins.
        pg.execute(database, f'alter publication "{database}" set (publish_via_partition_root = true)')
        pg.execute(database, "insert into app.root values (6, 'by the root')")
        wait_until(lambda: not difference(file, [PLAIN, ROOT]), 60, "the partitioned table")
        run.wait_for("app.root_a is paused")
        assert "app.plain is paused" not in run.said()
        run.end(2)
    paused = program.paused(file)
    assert sorted(paused) == sorted(map(str, [*LEAVES, new]))
    assert "publish_via_partition_root" in paused["app.root_a"]["remedy"]
    # And back, while nobody streams: the partitions are read again by themselves.
    pg.execute(database, f'alter publication "{database}" set (publish_via_partition_root = false)')
    pg.execute(database, "insert into app.root values (7, 'by the leaf'); update app.root set v = 'x' where id > 200")
    done = program.stream(file)
    assert "app.root is not merged: The publication now sends the changes" in done.stderr
    assert difference(file, [PLAIN, *LEAVES, new]) == []
    assert list(program.paused(file)) == [str(ROOT)]


@pytest.mark.parametrize("mode", ["filtered", "all_tables"])
def test_under_which_names_a_partitioned_table_is_captured(pg, program, tmp_path, mode):
    database = pg.database(f"names_{mode}")
    pg.execute(database, SCHEMA)
    by_root = {"publication.autocreate.mode": mode, "publish.via.partition.root": "true"}
    file = connector(pg, database, tmp_path, **by_root)
    assert program.stream(file).returncode == 0
    assert sorted(statuses(program, file)) == ["app.plain", "app.root"]
    assert difference(file, [PLAIN, ROOT]) == []

    # Only the root is included, and changes come under the partitions' names: the others are captured, and it is said.
    other = pg.database(f"named_{mode}")
    pg.execute(other, SCHEMA)
    (tmp_path / "other").mkdir()
    by_leaves = {"publication.autocreate.mode": mode, "table.include.list": "app.root,app.plain"}
    file = connector(pg, other, tmp_path / "other", **{**by_leaves, "schema.include.list": None})
    checked = program.run("check", file)
    assert "app.root is not captured" in checked.stdout
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "app.root is not captured" in done.stderr
    assert list(statuses(program, file)) == ["app.plain"]

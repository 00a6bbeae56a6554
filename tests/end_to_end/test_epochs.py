"""A lake whose connector is pointed at another server: nothing of the old one is compared or merged with it."""

import json

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.lake.paths import LakePaths
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, lake_path, lake_settings, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

TABLES = ("hard", "soft", "past")
RULES = "rules:\n  - name: positive\n    condition: n >= 0\n    description: n is not negative\n"
LIVE = {"hard": "true", "soft": "not __deleted", "past": "__current"}


def schema(rows_from, rows_to):
    return "".join(
        f"create table {name} (id int primary key, n int, note text); alter table {name} replica identity full;"
        f"insert into {name} select g, g, 'start' from generate_series({rows_from}, {rows_to}) g;"
        for name in TABLES
    )


class Moved:
    """Two servers with one database and slot name, and one connector file that is pointed at one of them."""

    def __init__(self, old, new, program, folder, **more):
        self.program, self.folder, self.more = program, folder, more
        self.old, self.new = old, new
        self.database = old.database("moved")
        new.database(name=self.database)
        (folder / "rules").mkdir()
        (folder / "rules" / "public.hard.yaml").write_text(RULES)
        self.server = old
        self.point(old)

    def point(self, server):
        self.server = server
        settings = {
            **lake_settings(self.folder),
            "schema.include.list": "public",
            "wal2lake.lake.delete.mode.soft": "public.soft",
            "wal2lake.lake.delete.mode.history": "public.past",
            "wal2lake.quality.rules.path": str(self.folder / "rules"),
            **self.more,
        }
        self.file = write_properties(self.folder / "m.properties", server.properties(self.database, **settings))
        self.config = load(self.file)
        self.paths = LakePaths(self.config.lake.lake_path, self.config.schema.topic_prefix)

    def execute(self, sql):
        self.server.execute(self.database, sql)

    def everywhere(self, sql):
        self.execute("".join(sql.format(table=name) for name in TABLES))

    def run(self, *sql):
        for statement in sql:
            self.everywhere(statement)
        done = self.program.stream(self.file)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        return done

    def command(self, name, *arguments):
        done = self.program.run(name, self.file, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        return done.stdout

    def lake(self, table, sql="select * from t"):
        return rows(lake_path(self.config, TableId("public", table)), sql)

    def different(self):
        """The tables whose live rows in the lake are not the source's."""
        found = []
        for name in TABLES:
            source = [tuple(row) for row in self.server.execute(self.database, f"select id, n, note from {name}")]
            lake = self.lake(name, f"select id, n, note from t where {LIVE[name]}")
            if sorted(source) != sorted(tuple(row.values()) for row in lake):
                found.append((name, sorted(source), lake))
        return found


@pytest.fixture(scope="module")
def servers():
    """One whose WAL and transaction ids are far, and one that is new."""
    old, new = Cluster.start("debian15"), Cluster.start("debian15")
    for _ in range(8):
        old.execute("postgres", "select pg_switch_wal(); create table x (a int); drop table x")
    with old.connect() as connection:
        for _ in range(3000):
            connection.execute("select pg_current_xact_id()")
    assert old.execute("postgres", "select pg_current_wal_lsn() - '0/6000000'")[0][0] > 0
    yield old, new
    for server in (old, new):
        server.stop()


@pytest.fixture
def moved(servers, program, tmp_path):
    made = Moved(*servers, program, tmp_path)
    yield made
    for server in servers:
        server.drop_database(made.database)


def filled(moved):
    """Fill the lake from the old server: deleted rows, past versions, changes in quarantine and not merged."""
    moved.execute(schema(1, 6))
    moved.run()
    moved.run(
        "update {table} set n = 20 where id = 2;",
        "delete from {table} where id = 3;",
        "insert into {table} values (7, 7, 'old');",
    )
    moved.execute("update hard set n = -1 where id = 1;")
    moved.run()
    moved.everywhere("insert into {table} values (8, 8, 'old'); delete from {table} where id = 4;")
    moved.program.killed_at(failpoints.AFTER_APPEND, moved.file)


def test_nothing_of_the_old_server_is_merged_with_the_new_one(moved):
    filled(moved)
    ends = {name: max(row["__commit_lsn"] for row in moved.lake(name)) for name in TABLES}
    before = json.loads(moved.command("versions", "--json"))
    moved.point(moved.new)
    moved.execute(schema(3, 5))
    moved.command("snapshot")
    assert moved.different() == []
    moved.run(
        "update {table} set n = 50, note = 'new' where id = 5;",
        "delete from {table} where id = 4;",
        "insert into {table} values (7, 70, 'new');",  # its key was the old server's, and in soft mode kept
    )
    assert moved.different() == []
    positions = [row["__commit_lsn"] for name in TABLES for row in moved.lake(name)]
    assert max(positions) < min(ends.values())
    # Rows of the old server are kept by their modes, before everything of the new one.
    kept = moved.lake("soft", "select id, n, note, __deleted from t where id in (1, 2, 6) order by id")
    assert [tuple(row.values()) for row in kept] == [
        (1, 1, "start", True),
        (2, 20, "start", True),
        (6, 6, "start", True),
    ]
    spans = moved.lake(
        "past", "select __valid_from_lsn as a, __valid_to_lsn as b, __valid_from as c, __valid_to as d from t"
    )
    assert all(row["b"] is None or row["a"] <= row["b"] for row in spans)
    assert all(row["d"] is None or row["c"] <= row["d"] for row in spans)
    assert min(row["a"] for row in spans) < 0
    # What waited in quarantine is superseded by the read; a replay finds nothing and merges nothing.
    moved.command("replay", "public.hard", "--accept-all")
    assert moved.different() == []
    moved.execute("insert into hard values (9, -9, 'refused')")
    moved.run()
    aside = rows(moved.paths.quarantine(TableId("public", "hard")), "select key, status from t order by key")
    assert [tuple(row.values()) for row in aside] == [('{"id":1}', "superseded"), ('{"id":9}', "waiting")]
    # Both servers' events stay in the changelog and are told apart.
    events = rows(changelog_path(moved.config, TableId("public", "soft")))
    assert {row["__epoch"] for row in events} == {None, 1}
    assert {row["after"]["note"] for row in events if row["__epoch"] == 1 and row["after"]} == {"new"}
    assert before["lsn"] != json.loads(moved.command("versions", "--json"))["lsn"]
    moved.command("replay", "public.hard", "--accept-all")
    assert moved.different() == []


def test_a_snapshot_of_some_tables_does_not_leave_the_others_to_be_merged_onto_rows_of_the_old_server(moved):
    moved.execute(schema(1, 3))
    moved.run()
    moved.more = {"snapshot.mode": "no_data"}  # the next runs read nothing by themselves
    moved.point(moved.new)
    moved.execute(schema(2, 5))
    before = sorted(row["id"] for row in moved.lake("hard"))
    refused = moved.program.run("snapshot", moved.file, "public.hard")
    assert refused.returncode != 0
    assert sorted(row["id"] for row in moved.lake("hard")) == before
    moved.command("snapshot")
    moved.run("update {table} set n = n + 100 where id = 3;", "delete from {table} where id = 5;")
    assert moved.different() == []
    moved.run("insert into {table} values (9, 9, 'later');")
    assert moved.different() == []

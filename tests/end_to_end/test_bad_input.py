"""What is wrong is said in one sentence, what to do in another, and nothing is made before all of it is right."""

import re
from contextlib import closing, contextmanager

import psycopg
import pytest

from tests.support.cluster import PASSWORD, Cluster
from tests.support.lake import write_properties

pytestmark = pytest.mark.postgres

SECRET = "a-secret-that-nobody-may-see"
# With no Java to be found, a run that started Spark before its checks would complain of that instead.
NO_JAVA = {"JAVA_HOME": "/nonexistent"}


@pytest.fixture(scope="module")
def shop(pg):
    database = pg.database("bad_input")
    pg.execute(
        database, "create table orders (id int primary key, total numeric(10, 2)); insert into orders values (1, 2)"
    )
    return database


def things(pg, database):
    """What a run could have made in the server."""
    slots = pg.execute(database, "select slot_name from pg_replication_slots order by 1")
    return slots, pg.execute(database, "select pubname from pg_publication order by 1")


def refusal(program, pg, database, folder, *, command="run", **changed):
    """Run with changed properties, and return what was found and what to do, once all else is as it must be."""
    lake = folder / "lake"
    before = things(pg, database)
    file = write_properties(
        folder / "bad.properties",
        pg.properties(
            database,
            **{
                "table.include.list": "public.orders",
                "slot.max.retries": "0",
                "wal2lake.lake.path": str(lake),
                "wal2lake.state.path": str(folder / "state"),
                **changed,
            },
        ),
    )
    done = program.run(command, file, own_java=True, **NO_JAVA)
    said = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert done.returncode == 1, done.stderr
    said = [line for line in said if "spark-class" not in line]  # which names the place where it looked for Java
    if len(said) == 1:  # of the connector file, where a second sentence may follow on the line
        said = re.split(r"(?<=\.) (?=[A-Z])", said[0], maxsplit=1)
    assert 1 <= len(said) <= 2, done.stderr
    assert said[0].startswith("wal2lake: ")
    found, remedy = said[0].removeprefix("wal2lake: "), said[1].removeprefix("  → ") if len(said) == 2 else ""
    for sentence in (found, remedy) if remedy else (found,):
        assert re.fullmatch(r"\S.*[.?]", sentence), sentence
        assert not re.search(r"[.!?]\s+[A-Z]", sentence), f"more than one sentence: {sentence}"
    for secret in (PASSWORD, SECRET):
        assert secret not in done.stdout + done.stderr
    assert things(pg, database) == before
    assert not lake.exists()
    assert not (folder / "state").exists()
    return found, remedy


@pytest.mark.parametrize(
    ("changed", "found", "remedy"),
    [
        ({"database.password": SECRET}, "password", "database.password"),
        ({"database.user": "nobody_here"}, "nobody_here", "database."),
        ({"database.hostname": "no-such-host.invalid"}, "no-such-host.invalid", "database.hostname"),
        ({"database.port": "1"}, "127.0.0.1:1", "database."),
        ({"database.dbname": "no_such_database"}, "no_such_database", "database.dbname"),
        (
            {"publication.autocreate.mode": "disabled", "publication.name": "not_there"},
            'publication "not_there"',
            "CREATE PUBLICATION",
        ),
        ({"tabel.include.list": "public.orders"}, "tabel.include.list", "table.include.list"),
        ({"decimal.handling.mode": "exact"}, "exact", "precise"),
        ({"database.password": "${env:WAL2LAKE_NOT_SET}"}, "WAL2LAKE_NOT_SET", ""),
        ({"database.password": "${file:/nonexistent/secret}"}, "/nonexistent/secret", ""),
        ({"wal2lake.lake.path": None}, "wal2lake.lake.path", "wal2lake.sinks=noop"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_property_is_named_with_its_remedy(program, pg, shop, tmp_path, changed, found, remedy):
    said = refusal(program, pg, shop, tmp_path, **changed)
    assert found in said[0]
    # Where the file itself is wrong, one sentence says both.
    assert remedy in (said[1] or said[0])


def test_a_lake_that_cannot_be_written_is_refused(program, pg, shop, tmp_path):
    (tmp_path / "file").write_text("in the way")
    said = refusal(program, pg, shop, tmp_path, **{"wal2lake.lake.path": str(tmp_path / "file" / "lake")})
    assert "wal2lake.lake.path" in said[0]
    assert "is not a folder" in said[0]
    said = refusal(program, pg, shop, tmp_path, **{"wal2lake.state.path": str(tmp_path / "file" / "state")})
    assert "wal2lake.state.path" in said[0]


def test_a_slot_that_another_consumer_reads_is_left_alone(program, pg, shop, tmp_path):
    pg.execute(shop, "create publication for_reader for table orders")
    with (
        slot(pg, shop, "busy", "pgoutput"),
        closing(psycopg.connect(**pg.dsn(shop, replication="database"), autocommit=True)) as reader,
    ):
        reader.pgconn.exec_(
            b"START_REPLICATION SLOT busy LOGICAL 0/0 (proto_version '1', publication_names 'for_reader')"
        )
        found, remedy = refusal(program, pg, shop, tmp_path, **{"slot.name": "busy"})
    assert re.match(r"Slot busy is in use by the server process with PID \d+\.", found)
    assert "slot.name" in remedy


def test_a_slot_of_another_plug_in_or_database_is_left_alone(program, pg, shop, tmp_path):
    with slot(pg, shop, "foreign_plugin", "test_decoding"):
        found, _ = refusal(program, pg, shop, tmp_path, **{"slot.name": "foreign_plugin"})
    assert "test_decoding" in found
    with slot(pg, pg.database("other"), "foreign_database", "pgoutput"):
        found, _ = refusal(program, pg, shop, tmp_path, **{"slot.name": "foreign_database"})
    assert "other" in found


def test_two_runs_on_one_slot_are_refused(program, pg, shop, tmp_path):
    with pg.connect(shop) as other:
        other.execute("select pg_advisory_lock(hashtextextended('wal2lake:' || %s, 0))", [shop])
        found, _ = refusal(program, pg, shop, tmp_path)
    assert found.startswith("Another run of wal2lake is using slot")


def test_streaming_without_the_server_s_consent_is_refused(program, tmp_path):
    server = Cluster.start("debian15", settings={"wal_level": "replica"})
    try:
        database = server.database("replica")
        server.execute(database, "create table orders (id int primary key)")
        found, remedy = refusal(program, server, database, tmp_path)
        assert found == "The server's wal_level is replica, and logical replication needs logical."
        assert "restart" in remedy
    finally:
        server.stop()


@pytest.mark.parametrize("command", ["run", "snapshot"])
def test_without_java_the_remedy_is_java_and_no_slot_is_left(program, pg, shop, tmp_path, command):
    found, remedy = refusal(program, pg, shop, tmp_path, command=command)
    assert found == "Spark's Java process did not start."
    assert "Java 17 or 21" in remedy


@contextmanager
def slot(pg, database, name, plugin):
    pg.execute(database, "select pg_create_logical_replication_slot(%s, %s)", [name, plugin])
    try:
        yield
    finally:
        with pg.connect() as connection:
            connection.execute(
                "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s", [name]
            )
        for _ in range(100):
            try:
                pg.execute(database, "select pg_drop_replication_slot(%s)", [name])
                break
            except psycopg.errors.ObjectInUse:
                continue

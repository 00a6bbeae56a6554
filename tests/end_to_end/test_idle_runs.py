"""``--until-idle``: silence of the server is not the end, and only captured changes keep a run going."""

import os
import signal
import threading
import time

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

KEPT = TableId("public", "kept")
SCHEMA = """
create table kept (id int primary key, v text);
create table other (id int, v text);
insert into kept select g, 'v' from generate_series(1, 20) g;
"""
_PATIENCE = 2.0


def connector(pg, database, folder):
    """One table captured of a publication of all tables that somebody else manages."""
    return write_properties(
        folder / "idle.properties",
        pg.properties(
            database,
            **{
                "table.include.list": "public.kept",
                "publication.autocreate.mode": "disabled",
                **lake_settings(folder),
            },
        ),
    )


def prepared(pg, name):
    database = pg.database(name)
    pg.execute(database, SCHEMA)
    pg.execute(database, f"create publication {pg.properties(database)['publication.name']} for all tables")
    return database


def walsender(pg, database):
    """The process that sends the slot's changes, 0 while there is none."""
    found = pg.execute("postgres", f"select active_pid from pg_replication_slots where database = '{database}'")
    return (found and found[0][0]) or 0


@pytest.mark.parametrize("command", ["run", "envelopes"])
def test_a_server_that_is_silent_with_changes_to_send_is_waited_for(each_pg, program, tmp_path, command):
    database = prepared(each_pg, "silent")
    file, lines = connector(each_pg, database, tmp_path), tmp_path / "lines.jsonl"
    arguments = ["--until-idle", str(_PATIENCE)] + (["--output", str(lines)] if command == "envelopes" else [])
    assert program.run(command, file, *arguments).returncode == 0
    with program.started(command, file, *arguments) as running:
        wait_until(lambda: walsender(each_pg, database), 60, "the walsender")
        process = walsender(each_pg, database)
        # A walsender that decodes a large transaction is as silent as one that is stopped.
        os.kill(process, signal.SIGSTOP)
        try:
            each_pg.execute(database, "insert into kept select g, 'while silent' from generate_series(100, 150) g")
            time.sleep(_PATIENCE * 3)
            assert running.process.poll() is None, running.said()
        finally:
            os.kill(process, signal.SIGCONT)
        assert running.end() == 0, running.said()
    if command == "run":
        assert difference(file, [KEPT]) == []
    else:
        assert lines.read_text().count("while silent") == 51


def test_what_is_not_captured_keeps_no_run_from_ending(each_pg, program, tmp_path):
    database, neighbour = prepared(each_pg, "calm"), each_pg.database("busy")
    each_pg.execute(neighbour, "create table other (id int, v text)")
    file, lines = connector(each_pg, database, tmp_path), tmp_path / "lines.jsonl"
    assert program.stream(file).returncode == 0
    # Never committed before the run ends: WAL that is behind the last flush must not be waited for.
    open_one = each_pg.connect(database)
    open_one.execute("begin")
    open_one.execute("insert into other select g, 'never committed' from generate_series(1, 300) g")
    stop = threading.Event()

    def write():
        here, there = each_pg.connect(database), each_pg.connect(neighbour)
        while not stop.wait(0.02):
            for connection in (here, there):
                connection.execute("insert into other values (1, 'v')")
        here.close()
        there.close()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        time.sleep(0.5)
        for command, more in (("run", ()), ("envelopes", ("--output", str(lines)))):
            each_pg.execute(database, "update kept set v = v || '!'")
            began = time.monotonic()
            done = program.run(command, file, "--until-idle", "1", *more)
            assert done.returncode == 0, done.stderr[-3000:]
            assert time.monotonic() - began < patient(60)
            if command == "run":
                assert "(idle)" in done.stderr
                assert difference(file, [KEPT]) == []
    finally:
        stop.set()
        writing.join(patient(20))
        open_one.close()


def test_a_run_that_finds_nothing_starts_no_java(pg, program, tmp_path):
    database = prepared(pg, "no_java")
    file = connector(pg, database, tmp_path)
    without = {"own_java": True, "JAVA_HOME": "/nonexistent"}
    assert program.stream(file).returncode == 0
    idle = program.stream(file, **without)
    assert idle.returncode == 0, idle.stderr
    pg.execute(database, "insert into kept values (100, 'new')")
    refused = program.stream(file, **without)
    assert refused.returncode == 1 and "Java" in refused.stderr, refused.stderr
    assert program.stream(file).returncode == 0
    assert difference(file, [KEPT]) == []


def test_a_start_that_reads_nothing_claims_and_checks_once(pg, program, tmp_path):
    database = prepared(pg, "once")
    file = connector(pg, database, tmp_path)

    def sessions():
        """How many sessions the database has had, but those that stream."""
        here = f"from pg_stat_activity where datname = '{database}' and application_name = 'wal2lake'"
        wait_until(lambda: pg.execute("postgres", f"select count(*) {here}")[0][0] == 0, 20, "the end of all sessions")
        return pg.execute("postgres", f"select sessions from pg_stat_database where datname = '{database}'")[0][0]

    assert program.stream(file).returncode == 0
    before = sessions()
    assert program.stream(file).returncode == 0
    # The one that holds the claim, and that of the thread that reads the stream.
    assert sessions() - before == 2

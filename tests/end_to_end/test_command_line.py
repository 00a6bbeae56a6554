"""The command line beside a server: what it refuses before it does anything, what it leaves, how it stops."""

from __future__ import annotations

import json
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import changelog_path, lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
create table orders (id int primary key, n int); create table keyless (v text);
create table unread (id int primary key);
insert into orders select g, g from generate_series(1, 10) g;
"""


def java_of(pid: int) -> list[int]:
    """The Java processes below a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            name = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == pid and (b"java" in name or b"spark" in name):
            found.append(int(folder.name))
    return found


def is_gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_what_cannot_work_is_refused_and_a_reset_leaves_nothing(pg, program, tmp_path):
    database = pg.database("line")
    pg.execute(database, SCHEMA)
    lists = {"table.include.list": "public.orders,public.keyless"}
    settings = {**lists, "wal2lake.quality.rule.positive": "public.orders: after.n > 0", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "line.properties", pg.properties(database, **settings))
    nothing_yet = program.run("replay", file, "public.orders")
    assert nothing_yet.returncode == 1 and "public.orders has not been read into the lake yet" in nothing_yet.stderr
    done = program.stream(file)
    assert done.returncode == 0 and "streaming; Ctrl-C stops" in done.stderr, done.stderr
    pg.execute(database, "insert into orders values (11, 11)")
    assert "1 change into 1 table in 1 round" in program.stream(file).stderr

    incremental = '{"data-collections": ["public.%s"]}'
    for command, arguments, said in (
        ("signal", ("execute-snapshot", "--data", incremental % "ordres"), "Did you mean public.orders?"),
        ("signal", ("execute-snapshot", "--data", incremental % "keyless"), "public.keyless has no key"),
        ("replay", ("public.ordres",), "Not a captured table: public.ordres.\n  → Did you mean public.orders?"),
        ("replay", ("public.orders", "--accept", "postive"), "public.orders has no rule postive"),
        ("snapshot", ("public.unread",), "Not a captured table: public.unread"),
    ):
        refused = program.run(command, file, *arguments, PYSPARK_GATEWAY_PORT="1")
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr
    state = tmp_path / "state"
    assert not list(state.glob("signals-*"))
    assert program.run("signal", file, "execute-snapshot", "--data", incremental % "orders").returncode == 0

    compared = program.run("reconcile", file)
    assert compared.returncode == 0, compared.stderr
    assert re.search(r"^at [0-9A-F]+/[0-9A-F]+: 11 rows of 2 tables compared, no row differs$", compared.stdout, re.M)
    misspelt = program.run("reconcile", file, "public.ordres")
    assert misspelt.returncode == 2 and "Did you mean public.orders?" in misspelt.stderr, misspelt.stderr
    alone = program.run("reconcile", file, "--set", "table.include.list=public.orders")
    assert "11 rows of 1 table compared" in alone.stdout, alone.stdout + alone.stderr

    (last,) = rows(changelog_path(load(file), TableId("public", "orders")), 'select max("__commit_ts") as at from t')
    committed = last["at"]
    assert timedelta(0) < pg.execute(database, "select now()")[0][0] - committed < timedelta(minutes=5)
    (told,) = [one for one in status_of(program, file) if one["table"] == "public.orders"]
    assert datetime.fromisoformat(told["up_to"]) == committed
    (read,) = [one for one in status_of(program, file) if one["table"] == "public.keyless"]
    assert timedelta(0) < committed - datetime.fromisoformat(read["up_to"]) < timedelta(minutes=5)

    shown = program.run("status", file)
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("public.orders")]
    assert f"{committed.astimezone(UTC):%H:%M:%S}, " in line and " ago" in line
    assert all(len(line) <= 80 for line in shown.stdout.splitlines() if line.startswith("public.")), shown.stdout
    with program.started("status", file, "--watch", "--interval", "0.1") as watching:
        wait_until(lambda: watching.said().count("public.orders") >= 2, 60, "a second status")
        assert watching.end(signal.SIGINT) == 0

    asked = program.run("reset", file)
    assert asked.returncode == 1 and f"replication slot {database}" in asked.stdout, asked.stdout + asked.stderr
    assert pg.execute(database, "select count(*) from pg_replication_slots where slot_name = %s", [database]) == [(1,)]
    done = program.run("reset", file, "--yes")
    assert done.returncode == 0, done.stderr
    left = "select count(*) from (select slot_name from pg_replication_slots where slot_name = %s) s"
    assert pg.execute(database, left, [database]) == [(0,)]
    assert pg.execute(database, "select count(*) from pg_publication") == [(0,)]
    assert not list(state.glob("signals-*"))
    assert (tmp_path / "lake" / "test" / "public" / "orders").is_dir(), "the lake is kept"
    done = program.run("reset", file, "--yes", "--lake")
    assert done.returncode == 0 and not (tmp_path / "lake" / "test").exists(), done.stderr
    assert "There is nothing to remove" in program.run("reset", file, "--yes", "--lake").stderr


def status_of(program, file):
    return json.loads(program.run("status", file, "--json").stdout)["tables"]


def test_two_interrupts_at_the_start_leave_no_java(pg, program, tmp_path):
    database = pg.database("halt")
    pg.execute(database, SCHEMA)
    settings = {"table.include.list": "public.orders", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "halt.properties", pg.properties(database, **settings))
    with program.started("run", file, own_java=True) as running:
        java = wait_until(lambda: java_of(running.process.pid), 60, "Java's start")
        running.process.send_signal(signal.SIGINT)
        running.wait_for("Stopping after the current step.", 30)
        code = running.end(signal.SIGINT, 60)
        assert code == 1 and running.said().splitlines()[-1] == "Stopped.", running.said()
        assert "Traceback" not in running.said()
    wait_until(lambda: all(map(is_gone, java)), 10, "the end of Java, which was killed")
    assert not list((tmp_path / "state").glob("tmp/*"))

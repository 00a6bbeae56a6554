"""Connections cut under snapshots and commands: a run goes on, a command ends, and goes on when it is run again."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, doubled_events, lake_settings, write_properties
from tests.support.program import Program
from tests.support.proxy import Proxy
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

BIG, SMALL = TableId("public", "big"), TableId("public", "small")
SCHEMA = """
create table big (id int primary key, v text);
create table small (id int primary key, v text);
insert into big select g, 'v' from generate_series(1, 3000) g;
insert into small select g, 'v' from generate_series(1, 10) g;
"""
# A read of ``big``, or the creation of a slot, which waits for every open transaction.
WAITS = """
select 1 from pg_stat_activity
where datname = current_database() and application_name like 'wal2lake%' and wait_event_type = 'Lock'
"""


@contextlib.contextmanager
def cut_while_it_reads(pg: Cluster, database: str, proxy: Proxy) -> Iterator[None]:
    """At the end of the context: cut every connection as soon as one of them waits for a transaction that has locked
    ``big``.
    """
    with contextlib.closing(pg.connect(database)) as lock:
        lock.execute("begin; lock table big in access exclusive mode")
        yield
        wait_until(lambda: pg.execute(database, WAITS), 120, "a connection that waits")
        proxy.cut()


def test_connections_cut_under_snapshots_and_commands(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("commands")
    pg.execute(database, SCHEMA)
    with Proxy(pg.host, pg.port) as proxy:
        settings = {**lake_settings(tmp_path), "wal2lake.snapshot.rows.per.partition": "500"}
        direct = pg.properties(database, **{"schema.include.list": "public", **settings})
        equal = write_properties(tmp_path / "direct.properties", direct)
        file = write_properties(tmp_path / "c.properties", {**direct, "database.port": proxy.port})

        # A run makes its slot and its snapshot again, and streams.
        with contextlib.ExitStack() as stack:
            with cut_while_it_reads(pg, database, proxy):
                run = stack.enter_context(program.started("run", file, "--max-seconds", "1500"))
            run.wait_for("Running again after", 120)
            run.wait_for("streaming", 120)
            pg.execute(database, "update small set v = 'streamed'")
            wait_until(lambda: not difference(equal, [BIG, SMALL]), 90, "snapshot and stream")
            assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
            assert run.said().count("Waiting, and trying again: ") == 1
            assert "Traceback" not in run.said()

        # A snapshot by command ends with a sentence, and is taken by the next one.
        with contextlib.ExitStack() as stack:
            with cut_while_it_reads(pg, database, proxy):
                taking = stack.enter_context(program.started("snapshot", file))
            assert taking.end() == 1, taking.said()
            assert "connection" in taking.said() and "Traceback" not in taking.said(), taking.said()
        pg.execute(database, "insert into small values (100, 'later')")
        done = program.run("snapshot", file)
        assert done.returncode == 0, done.stderr
        assert difference(equal, [BIG, SMALL]) == []

        # The server is away: status answers, the others say so.
        proxy.refuse()
        for command, arguments, code in (("status", (), 0), ("replay", ("public.small",), 1), ("reconcile", (), 2)):
            done = program.run(command, file, *arguments)
            said = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == code, said
            assert "127.0.0.1" in said and "Traceback" not in said, said
        # So does a run with a limit; one without waits, for an earlier one has reached this server.
        limited = program.run("run", file, "--until-idle", "0.2")
        assert limited.returncode == 1 and "Waiting" not in limited.stderr, limited.stderr
        with program.started("run", file) as run:
            run.wait_for("Waiting, and trying again: ")
            assert "127.0.0.1" in run.said()
            proxy.resume()
            run.wait_for("Running again after ")
            wait_until(lambda: difference(equal, [BIG, SMALL]) == [], 90, "what changed meanwhile")
            assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
            assert "Traceback" not in run.said()
        assert doubled_events(equal, SMALL) == 0
        events_go_on(pg, program, proxy, database, tmp_path)
    pg.drop_database(database)


def events_go_on(pg: Cluster, program: Program, proxy: Proxy, database: str, folder: Path) -> None:
    """``envelopes`` ends at a cut; run again it goes on in the same file, and each change is in it."""
    output = folder / "events.jsonl"
    named = {"slot.name": f"{database}_events", "database.port": proxy.port, "table.include.list": "public.small"}
    file = write_properties(folder / "events.properties", pg.properties(database, **named, **lake_settings(folder)))
    with program.started("envelopes", file, "--output", str(output)) as writing:
        wait_until(lambda: output.exists() and output.read_text().count("\n") == 11, 120, "the snapshot's events")
        pg.execute(database, "insert into small values (200, 'before the cut')")
        wait_until(lambda: "before the cut" in output.read_text(), 60, "the stream's events")
        proxy.cut()
        assert writing.end() == 1, writing.said()
        assert "connection" in writing.said() and "Traceback" not in writing.said(), writing.said()
    pg.execute(database, "insert into small values (201, 'after the cut')")
    done = program.run("envelopes", file, "--output", str(output), "--until-idle", "0.5")
    assert done.returncode == 0, done.stderr
    keys = [json.loads(line)["key"]["payload"]["id"] for line in output.read_text().splitlines()]
    assert sorted(set(keys)) == [*range(1, 11), 100, 200, 201]
    assert keys[-1] == 201
    assert len(keys) == len(set(keys)), "an event twice"

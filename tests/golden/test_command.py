"""The same through the program: ``wal2lake envelopes`` with a recorded configuration."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_core.config.properties_file import parse_properties
from tests.golden.test_replay import RECORDED, run_resting
from tests.support.cluster import Cluster
from tests.support.event_compare import differences, parse_lines, read_recording
from tests.support.line_compare import decoded
from tests.support.program import Program, Running
from tests.support.registry import TestRegistry
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def connector_file(cluster: Cluster, kind: str, folder: Path) -> Path:
    """The recorded file, pointed at the test's server."""
    entries = dict(parse_properties((RECORDED / f"{kind}.properties").read_text(), kind))
    entries |= {"database.hostname": cluster.host, "database.port": str(cluster.port)}
    entries |= {"database.user": cluster.user, "database.password": "${env:WAL2LAKE_TEST_PASSWORD}"}
    path = folder / f"{kind}.properties"
    path.write_text("".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in entries.items()))
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands run: the recorded files name no folder for the state."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def envelopes(program: Program, config: Path, output: Path) -> str:
    """Run to the end of what there is; what was said."""
    done = program.run("envelopes", config, "--output", str(output), "--until-idle", "1", own_java=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("database", ["snapshot"], indirect=True)
def test_the_snapshot(debian15: Cluster, database: str, program: Program, folder: Path) -> None:
    debian15.run_script(database, RECORDED / "types_rows.sql")
    output = folder / "out.jsonl"
    assert debian15.password not in envelopes(program, connector_file(debian15, "snapshot", folder), output)
    found = differences(read_recording(RECORDED / "snapshot.jsonl.gz"), parse_lines(output.read_text().split("\n")))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("database", ["stream_txmeta"], indirect=True)
def test_the_stream(debian15: Cluster, database: str, program: Program, folder: Path) -> None:
    output = folder / "out.jsonl"
    file = connector_file(debian15, "stream_txmeta", folder)
    streamed(debian15, database, program, "envelopes", file, "--output", str(output))
    expected = read_recording(RECORDED / "stream_txmeta.jsonl.gz")
    found = differences(expected, parse_lines(output.read_text().split("\n")))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("database", ["avro"], indirect=True)
def test_avro_through_two_runs(debian15: Cluster, database: str, program: Program, folder: Path) -> None:
    output = folder / "out.jsonl"
    with TestRegistry() as registry:
        config = connector_file(debian15, "avro", folder)
        config.write_text(config.read_text().replace("http://127.0.0.1:8081", registry.url))
        for first, name in ((True, "one"), (False, "two")):
            if not first:
                insert = "insert into inventory.customers(id, first_name, last_name, email) values (%s, %s, 'x', 'y')"
                debian15.execute(database, insert, [7, name])
            envelopes(program, config, output)
        debian15.execute(database, "delete from inventory.customers where id = 7")
        envelopes(program, config, output)
    lines = output.read_text().splitlines()
    records = [json.loads(line) for line in decoded(lines)]
    values = [one["value"] for one in records if "topic" in one]
    assert [value and value["op"] for value in values] == ["c", "d", None]
    assert [one["subject"] for one in records if "subject" in one] == [
        f"fulfillment.inventory.customers-{side}" for side in ("key", "value", "key", "value")
    ]


def streamed(
    cluster: Cluster, database: str, program: Program, command: str, file: Path, *arguments: str, own_java: bool = True
) -> None:
    """Run the recorded script while the connector streams, with a rest for it around DDL."""
    # The server says where its WAL ends when it is asked, with a status message.
    file.write_text(file.read_text() + "status.update.interval.ms=200\n")
    with program.started(command, file, *arguments, own_java=own_java) as running:
        slot = "select 1 from pg_replication_slots where database = %s and active"
        wait_until(lambda: at_work(running, bool(cluster.execute("postgres", slot, [database]))), 60, "the slot's use")
        settle = settled(cluster, database, running)
        run_resting(cluster, database, settle)
        settle()
        assert running.end(signal.SIGTERM) == 0, running.said()


def settled(cluster: Cluster, database: str, running: Running) -> Callable[[], None]:
    """A function that waits until all of the server's WAL so far is confirmed, so it is in the output."""
    reached = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where database = %s"

    def settle() -> None:
        [(end,)] = cluster.execute(database, "select pg_current_wal_insert_lsn()::text")
        asked = [end, database]
        wait_until(lambda: at_work(running, cluster.execute("postgres", reached, asked)[0][0]), 60, "the confirmation")

    return settle


def at_work(running: Running, condition: bool) -> bool:
    """The condition, of a run that has not ended."""
    assert running.process.poll() is None, running.said()
    return condition

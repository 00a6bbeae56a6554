"""The same through the program: ``wal2lake envelopes`` with a recorded configuration."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cdc_core.config.properties_file import parse_properties
from tests.golden.test_replay import RECORDED, run_resting
from tests.support.cluster import Cluster
from tests.support.event_compare import differences, parse_lines, read_recording
from tests.support.line_compare import decoded
from tests.support.registry import TestRegistry

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def connector_file(cluster: Cluster, kind: str, folder: Path) -> Path:
    """The recorded file, pointed at the test's server."""
    entries = dict(parse_properties((RECORDED / f"{kind}.properties").read_text(), kind))
    entries |= {"database.hostname": cluster.host, "database.port": str(cluster.port)}
    entries |= {"database.user": cluster.user, "database.password": "${env:WAL2LAKE_TEST_PASSWORD}"}
    path = folder / f"{kind}.properties"
    path.write_text("".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in entries.items()))
    return path


def envelopes(config: Path, output: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        str(Path(sys.executable).parent / "wal2lake"),
        "envelopes",
        str(config),
        "--output",
        str(output),
        *arguments,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=config.parent)


@pytest.mark.parametrize("database", ["snapshot"], indirect=True)
def test_the_snapshot(debian15: Cluster, database: str, tmp_path: Path) -> None:
    debian15.run_script(database, RECORDED / "types_rows.sql")
    output = tmp_path / "out.jsonl"
    run = envelopes(connector_file(debian15, "snapshot", tmp_path), output, "--until-idle", "1")
    said, _ = run.communicate(timeout=90)
    assert run.returncode == 0, said
    assert debian15.password not in said
    found = differences(read_recording(RECORDED / "snapshot.jsonl.gz"), parse_lines(output.read_text().split("\n")))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("database", ["stream_txmeta"], indirect=True)
def test_the_stream(debian15: Cluster, database: str, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    run = envelopes(connector_file(debian15, "stream_txmeta", tmp_path), output, "--until-idle", "6")
    try:
        wait_for_slot(debian15, database, run)
        run_resting(debian15, database, lambda: time.sleep(1.5))
        said, _ = run.communicate(timeout=90)
    finally:
        run.kill()
    assert run.returncode == 0, said
    expected = read_recording(RECORDED / "stream_txmeta.jsonl.gz")
    found = differences(expected, parse_lines(output.read_text().split("\n")))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("database", ["avro"], indirect=True)
def test_avro_through_two_runs(debian15: Cluster, database: str, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with TestRegistry() as registry:
        config = connector_file(debian15, "avro", tmp_path)
        config.write_text(config.read_text().replace("http://127.0.0.1:8081", registry.url))
        for first, name in ((True, "one"), (False, "two")):
            if not first:
                insert = "insert into inventory.customers(id, first_name, last_name, email) values (%s, %s, 'x', 'y')"
                debian15.execute(database, insert, [7, name])
            run = envelopes(config, output, "--until-idle", "1")
            said, _ = run.communicate(timeout=90)
            assert run.returncode == 0, said
        debian15.execute(database, "delete from inventory.customers where id = 7")
        run = envelopes(config, output, "--until-idle", "1")
        said, _ = run.communicate(timeout=90)
        assert run.returncode == 0, said
    lines = output.read_text().splitlines()
    records = [json.loads(line) for line in decoded(lines)]
    values = [one["value"] for one in records if "topic" in one]
    assert [value and value["op"] for value in values] == ["c", "d", None]
    assert [one["subject"] for one in records if "subject" in one] == [
        f"fulfillment.inventory.customers-{side}" for side in ("key", "value", "key", "value")
    ]


def wait_for_slot(cluster: Cluster, name: str, run: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    active = "select active from pg_replication_slots where slot_name = %s and active"
    while not cluster.execute("postgres", active, [name]):
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < end, "the slot was not taken"
        time.sleep(0.1)

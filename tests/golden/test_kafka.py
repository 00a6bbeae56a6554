"""Recorded runs of Debezium 3.6.3 made again into a real Kafka broker: the same records in the same topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc_core.demo.broker import Broker
from tests.golden.test_command import connector_file, streamed
from tests.golden.test_outlet import recorded
from tests.golden.test_replay import RECORDED
from tests.support.cluster import Cluster
from tests.support.event_compare import differences, parse_lines
from tests.support.kafka import Topics
from tests.support.line_compare import decoded, unlike
from tests.support.program import Program
from tests.support.registry import TestRegistry

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture
def broker(kafka: Broker) -> Topics:
    return Topics(kafka.servers)


@pytest.mark.parametrize("database", ["snapshot"], indirect=True)
def test_the_snapshot(debian15: Cluster, database: str, broker: Topics, program: Program, tmp_path: Path) -> None:
    debian15.run_script(database, RECORDED / "types_rows.sql")
    file = kafka_file(debian15, "snapshot", tmp_path, broker)
    done = program.run("run", file, "--until-idle", "1", own_java=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # Markers say which row was the last of all, which the order of topics does not show.
    found = differences(parse_lines(by_topic(recorded("snapshot"))), parse_lines(broker.lines(*topics_of("snapshot"))))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("database", ["stream_txmeta"], indirect=True)
def test_the_stream(debian15: Cluster, database: str, broker: Topics, program: Program, tmp_path: Path) -> None:
    streamed(
        debian15,
        database,
        program,
        "run",
        kafka_file(debian15, "stream_txmeta", tmp_path, broker),
        "--max-seconds",
        "1500",
    )
    expected = by_topic(recorded("stream_txmeta"))
    found = differences(parse_lines(expected), parse_lines(broker.lines(*topics_of("stream_txmeta"))))
    assert not found, "\n".join(found[:20])


@pytest.mark.spark
@pytest.mark.parametrize("database", ["stream"], indirect=True)
def test_beside_a_lake(debian15: Cluster, database: str, broker: Topics, program: Program, tmp_path: Path) -> None:
    """The events are the same where the lake's reader has the slot."""
    file = kafka_file(debian15, "stream", tmp_path, broker)
    file.write_text(file.read_text() + f"wal2lake.sinks=lake,kafka\nwal2lake.lake.path={tmp_path}/lake\n")
    streamed(debian15, database, program, "run", file, "--max-seconds", "1500", own_java=False)
    found = differences(parse_lines(by_topic(recorded("stream"))), parse_lines(broker.lines(*topics_of("stream"))))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("database", ["schemaless"], indirect=True)
def test_without_schemas(debian15: Cluster, database: str, broker: Topics, program: Program, tmp_path: Path) -> None:
    streamed(
        debian15,
        database,
        program,
        "run",
        kafka_file(debian15, "schemaless", tmp_path, broker),
        "--max-seconds",
        "1500",
    )
    found = unlike(by_topic(recorded("schemaless")), broker.lines(*topics_of("schemaless")))
    assert not found, "\n".join(found[:5])


@pytest.mark.parametrize("database", ["avro"], indirect=True)
def test_avro(debian15: Cluster, database: str, broker: Topics, program: Program, tmp_path: Path) -> None:
    with TestRegistry() as registry:
        file = kafka_file(debian15, "avro", tmp_path, broker)
        file.write_text(file.read_text().replace("http://127.0.0.1:8081", registry.url))
        streamed(debian15, database, program, "run", file, "--max-seconds", "1500")
        schemas = [{"subject": "s", "id": n, "schema": json.loads(one)} for n, one in enumerate(registry.schemas, 1)]
    lines = [*broker.lines(*topics_of("avro"), suffix="_avro"), *map(json.dumps, schemas)]
    found = unlike(records_of(decoded(recorded("avro"))), records_of(decoded(lines)))
    assert not found, "\n".join(found[:5])


def kafka_file(cluster: Cluster, kind: str, folder: Path, broker: Topics) -> Path:
    """The recorded file with Kafka as its sink. The recordings have topics in common: the last test's are deleted."""
    path = connector_file(cluster, kind, folder)
    own = {"wal2lake.sinks": "kafka", "bootstrap.servers": broker.servers, "wal2lake.state.path": str(folder)}
    path.write_text(path.read_text() + "".join(f"{name}={text}\n" for name, text in own.items()))
    broker.delete(topics_of(kind))
    return path


def by_topic(lines: list[str]) -> list[str]:
    """Lines in the order in which topics are read; within a topic, as recorded."""
    return sorted((line for line in lines if line.strip()), key=lambda line: json.loads(line)["topic"])


def topics_of(kind: str) -> set[str]:
    return {json.loads(line)["topic"] for line in recorded(kind) if line.strip() and "topic" in json.loads(line)}


def records_of(lines: list[str]) -> list[str]:
    return by_topic([line for line in lines if "topic" in json.loads(line)])

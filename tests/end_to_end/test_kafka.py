"""The sink kafka through the program and a real broker: nothing lost, nothing out of order, and the lake beside it."""

from __future__ import annotations

import itertools
import json
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from cdc_core.demo.broker import Broker, Secured
from cdc_core.demo.processes import free_port
from cdc_core.errors import TransientError
from cdc_core.events.kafka import positions
from cdc_core.events.kafka.opening import RecordsOwner as KafkaConnector
from cdc_core.events.kafka.opening import open_publisher
from cdc_core.events.kafka.options import KafkaOptions
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.kafka import SECONDS, Topics, await_broker, certified, started_broker
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.openlineage import wrong
from tests.support.program import Program, Running
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

ITEMS = TableId("public", "items")
SCHEMA = """
create table items (id int primary key, n int not null, v text);
insert into items select g, 0, 'first' from generate_series(1, 20) g;
"""


@pytest.fixture
def node(kafka: Broker) -> Broker:
    return kafka


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Secured, Path]:
    """The certificate and the users of the broker that tests kill, and the authority that its clients trust."""
    return certified(tmp_path_factory.mktemp("keys"), cdc="scram-secret")


@pytest.fixture(scope="module")
def frail(keys: tuple[Secured, Path]) -> Iterator[Broker]:
    """A broker that tests kill, and start again. It also has a listener with TLS and SCRAM."""
    with started_broker(keys[0]) as one:
        yield one


def connector(pg: Cluster, node: Broker, folder: Path, name: str, **more: str) -> tuple[str, Path]:
    """A database with one table, and a file that writes its events to Kafka only."""
    database = pg.database(name)
    pg.execute(database, SCHEMA)
    own = {
        "topic.prefix": name,
        "table.include.list": "public.items",
        "wal2lake.sinks": "kafka",
        "wal2lake.state.path": str(folder / "state"),
        "bootstrap.servers": node.servers,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "status.update.interval.ms": "200",
    }
    return database, write_properties(folder / f"{name}.properties", pg.properties(database, **{**own, **more}))


def one_round(pg: Cluster, database: str, number: int) -> None:
    """A transaction that changes every row: its ``n`` is the number."""
    pg.execute(database, f"update items set n = {number}, v = 'round {number}'")


def slot_of(pg: Cluster, database: str) -> str:
    [(name,)] = pg.execute("postgres", "select slot_name from pg_replication_slots where database = %s", [database])
    return str(name)


def states(messages: list[Any]) -> dict[int, list[int]]:
    """The successive ``n`` of each key, as its partition holds them; all of a key are in one partition."""
    found: dict[int, list[int]] = defaultdict(list)
    places: dict[int, set[int]] = defaultdict(set)
    for message in messages:
        key, value = json.loads(message.key())["id"], json.loads(message.value())
        found[key].append(value["after"]["n"])
        places[key].add(message.partition())
    assert all(len(partitions) == 1 for partitions in places.values())
    return found


def running(pg: Cluster, database: str, run: Running) -> None:
    """Wait until the slot is being read."""
    active = "select active from pg_replication_slots where database = %s and active"

    def is_read() -> bool:
        assert run.process.poll() is None, run.said()
        return bool(pg.execute("postgres", active, [database]))

    wait_until(is_read, 60, "the slot's use")


def seen(port: int, context: str) -> float:
    """The number of events that the run's metrics show."""
    return shown(port, "TotalNumberOfEventsSeen", context)


def shown(port: int, attribute: str, context: str = "streaming") -> float:
    """One of the run's metrics."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    [found] = re.findall(rf'{attribute}{{context="{context}".*}} (\S+)', text)
    return float(found)


@pytest.mark.parametrize("exactly_once", ["required", "requested"])
def test_a_run_that_is_killed_loses_nothing(
    pg: Cluster, node: Broker, program: Program, tmp_path: Path, exactly_once: str
) -> None:
    name = f"killed_{exactly_once}"
    database, file = connector(
        pg,
        node,
        tmp_path,
        name,
        **{
            "exactly.once.support": exactly_once,
            "topic.creation.default.partitions": "3",
            "topic.creation.default.replication.factor": "1",
        },
    )
    topics, topic, number = Topics(node.servers), f"{name}.public.items", 0
    assert program.run("run", file, "--until-idle", "0.5", own_java=True).returncode == 0
    assert topics.partitions(topic) == 3
    for _ in range(3):
        with program.started("run", file, own_java=True) as run:
            running(pg, database, run)
            for _ in range(5):
                number += 1
                one_round(pg, database, number)
            # Killed in the middle: some of it is in Kafka, some is on its way.
            wait_until(lambda least=20 * (number - 4): len(topics.messages(topic)) > least, 60, "the first events")
            run.end(signal.SIGKILL)
    done = program.run("run", file, "--until-idle", "0.5", own_java=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(program.run("status", file, "--json", own_java=True).stdout)["kafka"]
    [(slot,)] = pg.execute(
        "postgres", "select confirmed_flush_lsn from pg_replication_slots where database = %s", [database]
    )
    assert (said["topic"], said["in_snapshot"]) == (f"__wal2lake.{name}.{slot_of(pg, database)}", False)
    assert Lsn.parse(said["lsn"]) <= Lsn.parse(slot)
    assert said["topics"] == [{"table": "public.items", "topic": topic}]
    found = states(topics.messages(topic))
    wanted = list(range(number + 1))
    assert sorted(found) == list(range(1, 21))
    for successive in found.values():
        if exactly_once == "required":
            assert successive == wanted
        else:
            # What is repeated is repeated from some transaction on: the state before is its predecessor, or later.
            assert sorted(set(successive)) == wanted
            assert successive[-1] == number
            assert all(after <= before + 1 for before, after in itertools.pairwise(successive))
    pg.drop_database(database)


@pytest.mark.spark
def test_a_broker_that_stops_and_returns(pg: Cluster, frail: Broker, program: Program, tmp_path: Path) -> None:
    """A run with Kafka alone waits, and afterwards everything is there, once and in order; the metrics say so.

    The lake of one with both goes on; then both have everything, and the slot is confirmed for both.
    """
    port, (gone, both) = free_port(), (tmp_path / "gone", tmp_path / "both")
    for folder in (gone, both):
        folder.mkdir()
    # Both destinations share what a plug-in's messages are translated to; pgoutput's are seen by tests/golden.
    plugin = {"plugin.name": "wal2json"} if pg.flavour == "debian15" else {}
    more = {"wal2lake.sinks": "lake,kafka", **lake_settings(both), **plugin}
    only, only_file = connector(pg, frail, gone, "gone", **{"wal2lake.metrics.port": str(port)})
    database, file = connector(pg, frail, both, "both", **more)
    topics, topic = Topics(frail.servers), "both.public.items"
    with (
        program.started("run", file) as run,
        program.started("run", only_file, own_java=True) as run_only,
    ):
        wait_until(lambda: len(topics.messages(topic)) >= 20, 60, "the rows", pause=0.3)
        assert states(topics.messages(topic)) == {number: [0] for number in range(1, 21)}
        running(pg, database, run)
        one_round(pg, database, 1)
        wait_until(lambda: len(topics.messages(topic)) >= 40, 60, "the first events", pause=0.3)
        running(pg, only, run_only)
        for number in range(1, 4):
            one_round(pg, only, number)
        frail.stop(kill=True)
        for number in range(4, 8):
            one_round(pg, only, number)
        assert shown(port, "MaxQueueSizeInBytes") > 0 <= shown(port, "CurrentQueueSizeInBytes")
        capacity = shown(port, "QueueTotalCapacity")
        wait_until(lambda: shown(port, "QueueRemainingCapacity") < capacity, 60, "records that are not acknowledged")
        one_round(pg, database, 2)
        wait_until(lambda: difference(file, [ITEMS]) == [], 60, "the lake without Kafka", pause=0.5)
        [(end,)] = pg.execute(database, "select pg_current_wal_insert_lsn()::text")
        behind = "select confirmed_flush_lsn < %s::pg_lsn from pg_replication_slots where database = %s"
        assert pg.execute("postgres", behind, [end, database]) == [(True,)]
        frail.start()
        await_broker(frail.servers)
        one_round(pg, only, 8)
        wait_until(lambda: len(topics.messages("gone.public.items")) >= 20 * 9, 90, "all events", pause=0.5)
        wait_until(lambda: seen(port, "streaming") == 20 * 8 and seen(port, "snapshot") == 20, 30, "the metrics")
        wait_until(lambda: shown(port, "QueueRemainingCapacity") == capacity, 30, "an empty queue")
        assert run_only.end(signal.SIGTERM) == 0, run_only.said()
        wait_until(lambda: len(topics.messages(topic)) >= 60, 90, "what waited", pause=0.5)
        reached = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where database = %s"
        wait_until(lambda: pg.execute("postgres", reached, [end, database]) == [(True,)], 60, "the confirmation")
        one_round(pg, database, 3)
        run.end(signal.SIGKILL)
    assert all(one == list(range(9)) for one in states(topics.messages("gone.public.items")).values())
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [ITEMS]) == []
    found = states(topics.messages(topic))
    assert all(sorted(set(one)) == [0, 1, 2, 3] and one[-1] == 3 for one in found.values())
    for name in (only, database):
        pg.drop_database(name)


def test_a_position_behind_the_open_transaction_of_another_connector_is_not_missed(
    node: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = KafkaOptions(bootstrap_servers=node.servers, offsets_storage_topic="shared_positions")
    own = KafkaConnector("shared", "slot")
    other = Producer({"bootstrap.servers": node.servers, "transactional.id": "killed"})
    other.init_transactions(SECONDS)
    with open_publisher(shared, own) as (publisher, _):
        publisher.mark("one")
        assert publisher.settle(SECONDS)
        other.begin_transaction()
        other.produce("shared_positions", "its own", "another")
        assert other.flush(SECONDS) == 0
        publisher.mark("two")
        assert publisher.settle(SECONDS)
    monkeypatch.setattr(positions, "_OTHERS_SECONDS", 0.5)
    with (
        pytest.raises(TransientError, match="transaction of another connector is open in topic shared_positions"),
        open_publisher(shared, own),
    ):
        pass
    other.abort_transaction(SECONDS)
    monkeypatch.undo()
    with open_publisher(shared, own) as (_, stored):
        assert stored == "two"


def test_a_record_that_is_too_large(pg: Cluster, node: Broker, program: Program, tmp_path: Path) -> None:
    database, file = connector(pg, node, tmp_path, "large")
    topics = Topics(node.servers)
    assert program.run("run", file, "--until-idle", "0.5", own_java=True).returncode == 0
    pg.execute(database, "insert into items values (100, 1, repeat('secret', 400000)), (101, 1, 'small')")
    done = program.run("run", file, "--until-idle", "0.5", own_java=True)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "large.public.items" in said and "its key: id" in said and "max.request.size of 1,048,576" in said
    assert "secret" not in said
    file.write_text(file.read_text() + "errors.tolerance=all\n")
    done = program.run("run", file, "--until-idle", "0.5", own_java=True)
    assert done.returncode == 0, done.stderr
    found = states(topics.messages("large.public.items"))
    assert 101 in found and 100 not in found
    pg.drop_database(database)


def test_signals_and_notifications(pg: Cluster, node: Broker, program: Program, tmp_path: Path) -> None:
    topics = Topics(node.servers)
    topics.create("ask")
    topics.send("ask", "someone else", '{"type": "execute-snapshot", "data": {"data-collections": ["public.items"]}}')
    database, file = connector(
        pg,
        node,
        tmp_path,
        "asked",
        **{
            "snapshot.mode": "no_data",
            "read.only": "true",
            "signal.enabled.channels": "kafka",
            "signal.kafka.topic": "ask",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": "told",
        },
    )
    with program.started("run", file, own_java=True) as run:
        running(pg, database, run)
        data = {"type": "execute-snapshot", "data": {"data-collections": ["public.items"], "type": "incremental"}}
        topics.send("ask", "asked", json.dumps(data))
        wait_until(lambda: "told" in topics.names() and b"COMPLETED" in told(topics), 60, "the end of the snapshot")
        assert run.end(signal.SIGTERM) == 0, run.said()
    messages = topics.messages("asked.public.items")
    assert [json.loads(one.value())["op"] for one in messages] == ["r"] * 20
    assert states(messages) == {number: [0] for number in range(1, 21)}
    # The signal was stored as processed: the next run does not repeat it.
    assert program.run("run", file, "--until-idle", "0.5", own_java=True).returncode == 0
    assert len(topics.messages("asked.public.items")) == 20
    pg.drop_database(database)


def test_openlineage_names_topics_with_the_fields_of_their_records(
    pg: Cluster, node: Broker, program: Program, tmp_path: Path
) -> None:
    """As Debezium's transform does: namespace, name, type, and the schema that the records themselves have."""
    transport, events = tmp_path / "openlineage.yml", tmp_path / "events.jsonl"
    transport.write_text(f"transport:\n  type: file\n  location: {events}\n")
    more = {
        "openlineage.integration.enabled": "true",
        "openlineage.integration.config.file.path": str(transport),
        "value.converter.schemas.enable": "true",
        "topic.delimiter": "-",
    }
    database, file = connector(pg, node, tmp_path, "named", **more)
    pg.execute(database, "alter table items add float4col float4, add float8col float8, add tags text[], add doc jsonb")
    done = program.run("run", file, "--until-idle", "1", "--max-seconds", "600")
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in events.read_text().splitlines()]
    assert [problem for event in found for problem in wrong(event)] == []
    (event,) = [event for event in found if event["inputs"]]
    ((source,), (topic,)) = event["inputs"], event["outputs"]
    assert source["name"] == f"{database}.public.items"
    assert (topic["namespace"], topic["name"]) == (f"kafka://{node.servers.partition(',')[0]}", "named-public-items")
    assert topic["facets"]["datasetType"]["datasetType"] == "STREAM"
    record = json.loads(Topics(node.servers).messages("named-public-items")[0].value())
    assert topic["facets"]["schema"]["fields"] == [named(field) for field in record["schema"]["fields"]]
    # Another address, and transforms, which may change topics and records.
    others = {"openlineage.integration.dataset.kafka.bootstrap.servers": "kafka.example.org:9092"}
    assert outputs(program, file, events, others) == [[("kafka://kafka.example.org:9092", "named-public-items")]]
    unwrap = {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"}
    assert outputs(program, file, events, unwrap) == [[]]


def outputs(program: Program, file: Path, events: Path, settings: dict[str, str]) -> list[list[tuple[str, str]]]:
    """The outputs of each event that has inputs, of a run with more settings."""
    events.unlink()
    more = [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
    done = program.run("run", file, "--until-idle", "1", "--max-seconds", "600", *more)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in events.read_text().splitlines()]
    return [[(one["namespace"], one["name"]) for one in event["outputs"]] for event in found if event["inputs"]]


def named(field: dict[str, Any]) -> dict[str, Any]:
    """A field of Connect's schema by OpenLineage's names."""
    kind = {"float": "FLOAT32", "double": "FLOAT64"}.get(field["type"], field["type"].upper())
    nested = {"fields": [named(one) for one in field["fields"]]} if field["type"] == "struct" else {}
    described = {"description": field["doc"]} if "doc" in field else {}
    return {"name": field["field"], "type": kind, **described, **nested}


def told(topics: Topics) -> bytes:
    return b"".join(one.value() for one in topics.messages("told"))


def test_check_names_what_is_wrong(pg: Cluster, node: Broker, program: Program, tmp_path: Path) -> None:
    database, file = connector(pg, node, tmp_path, "checked")
    text = file.read_text()
    assert f"Kafka at {node.servers}" in program.run("check", file, own_java=True).stdout
    login = "producer.security.protocol=SASL_PLAINTEXT\nproducer.sasl.mechanism=PLAIN\nproducer.sasl.jaas.config="
    for password, is_accepted in (("cdc-secret", True), ("wrong-secret", False)):
        module = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required username="cdc" password="{password}";'
        )
        file.write_text(text.replace(node.servers, node.sasl_servers) + login + module + "\n")
        began = time.monotonic()
        done = program.run("check", file, own_java=True)
        said = done.stdout + done.stderr
        assert ("refused the connection" in said) != is_accepted, said
        assert (done.returncode == 0) == is_accepted, said
        assert "secret" not in said
        assert time.monotonic() - began < patient(60)
    pg.drop_database(database)


def test_tls_and_scram(
    pg: Cluster, frail: Broker, keys: tuple[Secured, Path], program: Program, tmp_path: Path
) -> None:
    """Events arrive by TLS and SCRAM; a wrong password and another authority are said in ``check`` and by a run."""
    database, file = connector(pg, frail, tmp_path, "tls", **{"bootstrap.servers": frail.secured_servers})
    text, (_, trusted) = file.read_text(), keys
    _, other = certified(tmp_path)

    def log_in(password: str, authority: Path) -> None:
        module = (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="cdc" password="{password}";'
        )
        login = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{module} required username="cdc" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority),
        }
        file.write_text(text + "".join(f"producer.{name}={value}\n" for name, value in login.items()))

    for password, authority, reason in (
        ("wrong-secret", trusted, "SASL authentication error"),
        ("scram-secret", other, "certificate verify failed"),
    ):
        log_in(password, authority)
        for command in (("check", file), ("run", file, "--until-idle", "0.5")):
            done = program.run(*command, own_java=True)
            said = done.stdout + done.stderr
            assert done.returncode == 1 and "refused the connection" in said and reason in said, said
            assert "secret" not in said
    log_in("scram-secret", trusted)
    done = program.run("run", file, "--until-idle", "0.5", own_java=True)
    assert done.returncode == 0, done.stderr
    assert states(Topics(frail.servers).messages("tls.public.items")) == {number: [0] for number in range(1, 21)}
    pg.drop_database(database)

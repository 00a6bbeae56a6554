"""What a broker or a registry refuses is one sentence with its reason, in ``check`` or at the run; nothing is lost."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_core.demo.broker import Broker
from tests.support.cluster import Cluster
from tests.support.kafka import Topics, await_broker
from tests.support.lake import write_properties
from tests.support.program import Program
from tests.support.registry import TestRegistry
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

# Users of the listener without authentication may do everything, others nothing; topics are created by nobody.
STRICT = {
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LOGIN = """\
producer.security.protocol=SASL_PLAINTEXT
producer.sasl.mechanism=PLAIN
producer.sasl.username=cdc
producer.sasl.password=cdc-secret
"""
AVRO = "io.confluent.connect.avro.AvroConverter"
NO_WAIT = "producer.topic.metadata.propagation.max.ms=500\n"
CREATE = "topic.creation.default.partitions=1\ntopic.creation.default.replication.factor=1\n"


@pytest.fixture(scope="module")
def strict() -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="w2l-kafka-") as folder, Broker(Path(folder), STRICT) as broker:
        await_broker(broker.servers)
        yield broker


@pytest.fixture
def connector(pg: Cluster, strict: Broker, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A database with one table of one row, and a file that writes its events to Kafka."""
    database = pg.database("refused")
    pg.execute(database, "create table items (id int primary key, v text); insert into items values (1, 'first')")
    settings = {
        "topic.prefix": database,
        "table.include.list": "public.items",
        "wal2lake.sinks": "kafka",
        "wal2lake.state.path": str(tmp_path / "state"),
        "bootstrap.servers": strict.servers,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    yield database, write_properties(tmp_path / "refused.properties", pg.properties(database, **settings))
    pg.drop_database(database)


def test_what_the_broker_refuses(pg: Cluster, strict: Broker, program: Program, connector: tuple[str, Path]) -> None:
    database, file = connector
    text, topics, topic = file.read_text(), Topics(strict.servers), f"{database}.public.items"

    def said(command: str, more: str, *, servers: str = strict.servers) -> str:
        """What a command says that fails."""
        file.write_text(text.replace(strict.servers, servers) + more)
        bound = ("--until-idle", "0.5") if command == "run" else ()
        done = program.run(command, file, *bound, own_java=True)
        found = done.stdout + done.stderr
        assert done.returncode == 1 and "Traceback" not in found and "secret" not in found, found
        return found

    for command in ("check", "run"):
        assert 'No such configuration property: "no.such"' in said(command, "producer.no.such=1\n")
        assert "producer.buffer.memory is 'large'" in said(command, "producer.buffer.memory=large\n")
        assert "topic.creation.default.partitions is missing" in said(command, "topic.creation.default.x=1\n")
    found = said("run", LOGIN, servers=strict.sasl_servers)
    assert "does not permit creating topic __wal2lake" in found and "ACLs" in found
    found = said("run", f"{LOGIN}exactly.once.support=required\n", servers=strict.sasl_servers)
    assert "does not permit" in found
    found = said("run", NO_WAIT)
    assert f"writing to topic {topic}" in found and "set topic.creation.default" in found
    # The topic is made by a group, with its own settings; the broker's limit of a record is the topic's.
    group = "topic.creation.groups=small\ntopic.creation.small.include=.*items\ntopic.creation.small.partitions=2\n"
    limited = f"{CREATE}{group}topic.creation.small.max.message.bytes=2000\n"
    pg.execute(database, "insert into items values (2, repeat('secret ', 1000)), (3, 'third')")
    found = said("run", limited)
    assert "more than the topic's max.message.bytes" in found and "(its key: id)" in found
    assert topics.partitions(topic) == 2
    file.write_text(f"{text}{limited}errors.tolerance=all\n")
    done = program.run("run", file, "--until-idle", "0.5", own_java=True)
    assert done.returncode == 0, done.stderr
    assert {json.loads(one.key())["id"] for one in topics.messages(topic)} == {1, 3}
    # Small records whose batch is larger than a topic takes.
    pg.execute(database, "insert into items select g, repeat('v', 300) from generate_series(10, 60) g")
    file.write_text(f"{text}{CREATE}")
    done = program.run("run", file, "--until-idle", "0.5", own_java=True)
    assert done.returncode == 0, done.stderr
    assert len({one.key() for one in topics.messages(topic)}) == 53


def test_what_the_registry_refuses(pg: Cluster, strict: Broker, program: Program, connector: tuple[str, Path]) -> None:
    database, file = connector
    text, topics, topic = file.read_text(), Topics(strict.servers), f"{database}.public.items"
    with TestRegistry(user="me:registry-secret") as registry:
        avro = f"{CREATE}schema.name.adjustment.mode=avro\nerrors.tolerance=all\n" + "".join(
            f"{side}.converter={AVRO}\n{side}.converter.schema.registry.url={registry.url}\n"
            for side in ("key", "value")
        )
        login = "".join(
            f"{side}.converter.basic.auth.credentials.source=USER_INFO\n"
            f"{side}.converter.basic.auth.user.info=me:registry-secret\n"
            for side in ("key", "value")
        )
        file.write_text(text + avro)
        done = program.run("run", file, "--until-idle", "0.5", own_java=True)
        # Also with errors.tolerance=all: otherwise every event would be left out.
        assert done.returncode == 1 and "refused the connector: 401" in done.stderr, done.stderr
        file.write_text(text + avro + login)
        done = program.run("run", file, "--until-idle", "0.5", own_java=True)
        assert done.returncode == 0, done.stderr
        assert len(topics.messages(topic)) == 1
        registry.incompatible.add(f"{topic}-value")
        pg.execute(database, "alter table items add n int; insert into items values (2, 'second', 2)")
        file.write_text((text + avro + login).replace("errors.tolerance=all\n", ""))
        done = program.run("run", file, "--until-idle", "0.5", own_java=True)
        assert done.returncode == 1 and "409" in done.stderr and "incompatible" in done.stderr, done.stderr
        assert "secret" not in done.stderr
        registry.incompatible.clear()
        done = program.run("run", file, "--until-idle", "0.5", own_java=True)
        assert done.returncode == 0, done.stderr
        assert len(topics.messages(topic)) == 2


def test_signals_that_are_malformed(pg: Cluster, strict: Broker, program: Program, connector: tuple[str, Path]) -> None:
    """Each is a warning that says what is wrong with it, and the next signal is processed."""
    database, file = connector
    topics = Topics(strict.servers)
    signals = "signal.enabled.channels=kafka\nsignal.kafka.topic=ask\nsnapshot.mode=no_data\nread.only=true\n"
    file.write_text(file.read_text() + CREATE + signals)
    topics.create("ask")
    for value in ("no JSON", "[]", '{"data": {}}', '{"type": "execute-snapshot", "data": {"data-collections": "x"}}'):
        topics.send("ask", database, value)
    topics.send("ask", database, '{"type": "no-such-signal"}')
    topics.send("ask", database, '{"type": "execute-snapshot", "data": {"data-collections": ["public.items"]}}')
    topic = f"{database}.public.items"
    with program.started("run", file, own_java=True) as run:
        wait_until(lambda: topic in topics.names() and len(topics.messages(topic)) == 1, 90, "the snapshot", pause=0.3)
        assert run.end(signal.SIGTERM) == 0, run.said()
        said = run.said()
    assert said.count("its data is not JSON") == 1, said
    assert "its type is missing" in said and "data-collections is not a list of strings" in said, said
    assert "no class for its type" in said, said

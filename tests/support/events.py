"""A connector's events road over a scenario: SQL before it starts, SQL while it streams, the records it made.

The whole road runs, from ``Connector.envelopes`` down, in a thread of this process.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from cdc_core.assemble import Connector
from cdc_core.config.connector import from_entries
from cdc_core.engine.reports import Until
from tests.support.cluster import Cluster
from tests.support.event_compare import Record
from tests.support.waits import PATIENCE

# Emitted outside of transactions to learn how far the stream has come; its record is left out.
SETTLE = "settle the stream"
SECONDS = 30.0 * PATIENCE


@dataclass
class Capture:
    """One connector on a database of its own. ``properties`` are added to the least that a connector needs."""

    cluster: Cluster
    properties: Mapping[str, str] = field(default_factory=dict)
    database: str = ""
    output: Path = Path()

    def sql(self, *statements: str) -> None:
        """Run statements in one session, each by itself."""
        with psycopg.connect(**self.cluster.dsn(self.database), autocommit=True) as session:
            for statement in statements:
                session.execute(statement.encode())

    def connector(self) -> Connector:
        """A fresh connector of the same configuration."""
        entries = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": self.cluster.host,
            "database.port": str(self.cluster.port),
            "database.user": self.cluster.user,
            "database.password": self.cluster.password,
            "database.dbname": self.database,
            "topic.prefix": "fulfillment",
            "slot.name": self.database,
            "publication.name": self.database,
            "snapshot.mode": "no_data",
            **self.properties,
        }
        return Connector(from_entries(entries.items()))

    @contextmanager
    def running(self) -> Iterator[Running]:
        """The connector at work until the block ends; what it raised is raised there."""
        running = Running(self)
        running.start()
        try:
            yield running
        finally:
            running.stop()
        running.check()

    def run(self, *parts: str | list[str]) -> list[Record]:
        """Stream while the statements run, at rest after each part; all records so far."""
        with self.running() as running:
            for part in parts:
                self.sql(*([part] if isinstance(part, str) else part))
                running.settle()
        return self.records()

    def records(self) -> list[Record]:
        """What the output holds."""
        text = self.output.read_text(encoding="utf-8").replace(self.database, "DBNAME")
        parsed = [json.loads(line) for line in text.split("\n") if line]
        return [record for record in parsed if (record["key"] or {}).get("payload") != {"prefix": SETTLE}]


class Running:
    """A capture's thread."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._go, daemon=True)

    def start(self) -> None:
        """Start, and wait until it streams or has ended."""
        self._thread.start()
        busy = "select active and pid_of.backend_type = 'walsender' from pg_replication_slots s join pg_stat_activity"
        busy += " pid_of on pid_of.pid = s.active_pid where slot_name = %s and pid_of.query like 'START_REPL%%'"
        self._wait(lambda: bool(self._capture.cluster.execute("postgres", busy, [self._capture.database])))

    def settle(self) -> None:
        """Wait until all that was committed so far is in the output."""
        goal = self._settled() + 1
        self._capture.sql(f"select pg_logical_emit_message(false, '{SETTLE}', '')")
        self._wait(lambda: self._settled() >= goal)

    def wait_for_end(self) -> None:
        """Wait until it ends by itself."""
        self._thread.join(SECONDS)
        if self._thread.is_alive():
            raise TimeoutError("the connector did not end by itself")

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._stop.set()
        self._thread.join(SECONDS)

    def check(self) -> None:
        """Raise what it raised."""
        if self._failure is not None:
            raise self._failure

    def _settled(self) -> int:
        return self._capture.output.read_bytes().count(f'"payload":{{"prefix":"{SETTLE}"}}'.encode())

    def _wait(self, reached: Any) -> None:
        end = time.monotonic() + SECONDS
        while not reached():
            if not self._thread.is_alive():
                return
            if time.monotonic() > end:
                raise TimeoutError("the stream did not come that far")
            time.sleep(0.02)

    def _go(self) -> None:
        try:
            self._capture.connector().envelopes(self._capture.output, Until(), self._stop.is_set)
        except BaseException as error:
            self._failure = error


@contextmanager
def capture(cluster: Cluster, properties: Mapping[str, str] | None = None, *setup: str) -> Iterator[Capture]:
    """A capture on a fresh database, dropped at the end. ``@DB@`` in texts stands for the database's name."""
    database = cluster.database("ev")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.jsonl"
        output.touch()
        given = {name: value.replace("@DB@", database) for name, value in (properties or {}).items()}
        made = Capture(cluster, given, database, output)
        try:
            made.sql(*(statement.replace("@DB@", database) for statement in setup))
            yield made
        finally:
            cluster.drop_database(database)


def told(record: Record) -> tuple[Any, ...]:
    """What a change record says in short: op, key, before, after."""
    payload = (record["value"] or {}).get("payload")
    key = record["key"] and record["key"]["payload"]
    if payload is None:
        return ("tombstone", key)
    return (payload["op"], key, payload["before"], payload["after"])


def fields(record: Record) -> dict[str, Any]:
    """The schema of each column of ``after``."""
    return {one["field"]: one for one in record["value"]["schema"]["fields"][1]["fields"]}

"""A slot that Debezium used, taken over wherever it stopped, and handed back (with a real one: ``tests/debezium``).

The offsets are made by the rule of Debezium 3.6.3 (``support/debezium_offsets``), from the messages that the server
sends.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc_core.demo.broker import Broker
from cdc_core.lsn import Lsn
from cdc_core.offsets.entries import file_of, key_json
from cdc_core.offsets.java_map import read_map
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.debezium_offsets import Received, offsets
from tests.support.kafka import Topics
from tests.support.lake import changelog_path, difference, lake_settings, rows, write_properties
from tests.support.page import Shell
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

ITEMS, NOTES = TableId("public", "items"), TableId("public", "notes")
SCHEMA = """
create table items (id int primary key, n int, v text);
create table notes (id int primary key, v text);
insert into items select g, 0, 'first' from generate_series(1, 20) g;
create publication shop for table items, notes;
"""
_MESSAGES = """
select (lsn - '0/0')::bigint, xid::text::bigint, data from pg_logical_slot_peek_binary_changes(%s, null, null,
    'proto_version', '1', 'publication_names', 'shop', 'messages', 'true')
"""


@dataclass
class Shop:
    """A database with the slot ``debezium`` at the begin of some transactions, and copies of it for each adoption."""

    program: Program
    pg: Cluster
    folder: Path

    def __post_init__(self) -> None:
        self.database = self.pg.database("adopt")
        self.pg.execute(self.database, SCHEMA)
        self.slots = [f"{self.database}_{number}" for number in range(4)]
        for slot in self.slots:
            self.sql(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        self.began = int(Lsn.parse(self.confirmed(self.slots[-1])))
        with self.pg.connect(self.database) as early, self.pg.connect(self.database) as late:
            early.autocommit = late.autocommit = False
            early.execute("insert into items values (100, 1, 'a')")
            late.execute("insert into items values (200, 1, 'b'), (201, 1, 'b')")
            early.execute("insert into notes values (100, 'a')")
            late.execute("update items set n = 2 where id <= 3")
            late.commit()
            early.execute("delete from items where id = 20")
            early.commit()
        self.sql("insert into notes values (300, 'c')")
        self.sql("update items set n = 3 where id = 5")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return self.pg.execute(self.database, text)

    def confirmed(self, slot: str) -> str:
        [(found,)] = self.sql(f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{slot}'")
        return str(found)

    def file(self, slot: str, **more: Any) -> Path:
        folder = self.folder / slot
        folder.mkdir(exist_ok=True)
        own = {
            "topic.prefix": "shop",
            "slot.name": slot,
            "publication.name": "shop",
            "table.include.list": "public.items,public.notes",
            **lake_settings(folder),
            **more,
        }
        return write_properties(folder / "shop.properties", self.pg.properties(self.database, **own))

    def messages(self) -> list[Received]:
        """What the server sends from the begin on."""
        found = self.pg.execute(self.database, _MESSAGES, [self.slots[-1]])
        kinds = [(lsn, xid, bytes(data)[:1].decode()) for lsn, xid, data in found]
        return [Received(kind, lsn, xid) for lsn, xid, kind in kinds if kind in "BCIUD"]

    def stops(self) -> list[tuple[dict[str, Any], list[int]]]:
        """For each row that Debezium may have sent last: its offset, and the LSNs of the rows after it."""
        received = self.messages()
        every = list(offsets(received, {"lsn_commit": self.began, "lsn": self.began, "lsn_proc": self.began}))
        lsns = [one.lsn for one in received if one.kind in "IUD"]
        rows_before = 0
        found = []
        for one, offset in zip(received, every, strict=True):
            if one.kind in "IUD":
                rows_before += 1
                found.append((offset, lsns[rows_before:]))
        return found

    def adopt(self, file: Path, *arguments: str) -> str:
        done = self.program.run("adopt", file, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def changes(self, file: Path) -> list[int]:
        """The LSNs of the rows in the changelogs, in the order of the stream."""
        from cdc_core.config.connector import load

        found = []
        for table in (ITEMS, NOTES):
            path = changelog_path(load(file), table)
            if path.exists():
                found += rows(path, 'select "__commit_lsn" c, "__tx_index" i, "__lsn" l from t where "__op" <> \'r\'')
        return [one["l"] for one in sorted(found, key=lambda one: (one["c"], one["i"]))]


def _kafka(broker: Broker) -> dict[str, str]:
    plain = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    return {"bootstrap.servers": broker.servers, **plain}


def _sent(broker: Broker, *names: str) -> list[int]:
    """LSNs of the changes in topics; a tombstone is none."""
    values = [json.loads(one.value()) for one in Topics(broker.servers).messages(*names) if one.value() is not None]
    return [one["source"]["lsn"] for one in values]


@pytest.fixture
def shop(pg: Cluster, program: Program, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(program, pg, tmp_path)
    yield made
    for slot in made.slots:
        made.sql(f"select pg_drop_replication_slot('{slot}')")


def test_events_continue_after_the_last_one(shop: Shop, program: Program, tmp_path: Path) -> None:
    """Inside a transaction whose changes lie before those of one that was sent whole, and at its end."""
    stops = shop.stops()
    assert len(stops) == 10
    for slot, at in zip(shop.slots, (1, 5, 7), strict=False):
        offset, left = stops[at]
        file, stored, before = shop.file(slot), tmp_path / f"{slot}.dat", shop.confirmed(slot)
        stored.write_bytes(file_of("any", "shop", json.dumps(offset)))
        how = ("--offsets", str(stored), "--events-only")
        if at == 5:
            assert "--dry-run" in shop.adopt(file, *how, "--dry-run")
            assert not (tmp_path / slot / "lake").exists()
        first = shop.adopt(file, *how)
        if at == 5:
            again = shop.adopt(file, *how)
            assert "nothing to do" in again
            assert again.splitlines()[:3] == first.splitlines()[:3]
            assert shop.confirmed(slot) == before
            program.killed_at("after-append", file)
        done = program.stream(file)
        assert done.returncode == 0, done.stdout + done.stderr
        assert shop.changes(file) == left, (at, offset)
    assert "nothing to do" in shop.adopt(file, *how)


def test_every_command_of_the_page_does_what_it_says(
    shop: Shop, pg: Cluster, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped Debezium's folder with its file of offsets; ``docs/adopt.md`` from start to end, and back."""
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PGPASSWORD", pg.password)
    offset, _ = shop.stops()[5]
    stored = folder / "offsets.dat"
    stored.write_bytes(file_of("shop", "shop", json.dumps(offset)))
    places = {"slot.name=debezium": f"slot.name={shop.slots[0]}", "database.user=debezium": f"database.user={pg.user}"}
    assert Shell(pg, program, folder, shop.database, places).follow("adopt.md") == 5
    assert difference(folder / "shop.properties", [ITEMS, NOTES]) == []
    [(_, handed_back)] = read_map(stored.read_bytes(), "offsets.dat")
    assert json.loads(handed_back)["lsn_commit"] > offset["lsn_commit"]


def test_a_lake_is_filled_beside_kafka_and_handed_back(
    shop: Shop, kafka: Broker, program: Program, tmp_path: Path
) -> None:
    """The lake has all rows; Kafka has the events after the last one that Debezium sent, and no rows."""
    slot, (offset, left) = shop.slots[0], shop.stops()[6]
    own = {"topic.prefix": f"beside_{shop.database}", "wal2lake.sinks": "lake,kafka", **_kafka(kafka)}
    file = shop.file(slot, **{**own, "snapshot.mode": "no_data"})
    collections = json.dumps([{"incremental_snapshot_collections_id": "public.notes"}])
    given = {**offset, "incremental_snapshot_collections": collections}
    said = shop.adopt(file, "--offsets", json.dumps(given))
    assert "the next run reads 2 tables" in said
    assert """'{"data-collections": ["public.notes"]}'""" in said
    with program.started("run", file) as run:
        wait_until(lambda: (tmp_path / slot / "lake").exists() and not difference(file, [ITEMS, NOTES]), 90, "the lake")
        refused = program.run("offsets", file, own_java=True)
        assert refused.returncode == 1
        assert "in use" in refused.stderr or "using slot" in refused.stderr
        assert run.end(signal.SIGTERM) == 0
    shop.sql("insert into items values (400, 1, 'late'); update items set v = 'x' where id = 1")
    assert program.stream(file).returncode == 0
    assert difference(file, [ITEMS, NOTES]) == []
    names = [f"{own['topic.prefix']}.public.{table}" for table in ("items", "notes")]
    assert sorted(_sent(kafka, *names))[: len(left)] == sorted(left)
    assert len(_sent(kafka, *names)) == len(left) + 2
    given = json.loads(program.run("offsets", file).stdout)
    assert given["lsn"] == given["lsn_proc"] == given["lsn_commit"] == Lsn.parse(shop.confirmed(slot))
    connect = program.run("offsets", file, "--format", "connect", "--name", "shop-connector")
    assert connect.stdout == f"{key_json('shop-connector', own['topic.prefix'])}\t{json.dumps(given)}\n"
    assert "Keep slot" in connect.stderr
    stored = tmp_path / "back.dat"
    stored.write_bytes(file_of("other", "other", "{}"))
    assert program.run("offsets", file, "--format", "file", "--output", str(stored)).returncode == 0
    # The other connector's is kept, and the lake finds its own offset again.
    assert b'["other",{"server":"other"}]' in stored.read_bytes()
    assert "lake: it continues the slot already" in shop.adopt(file, "--offsets", str(stored))


def test_what_is_refused(shop: Shop, program: Program, tmp_path: Path) -> None:
    slot, (offset, _) = shop.slots[0], shop.stops()[3]
    file = shop.file(slot)

    def refused(given: Any, *arguments: str, of: Path = file) -> str:
        text = given if isinstance(given, str) else json.dumps(given)
        done = program.run("adopt", of, "--offsets", text, *arguments)
        assert done.returncode != 0, done.stdout
        assert not (tmp_path / slot / "lake" / "shop").exists()
        return " ".join(done.stderr.split())

    assert "no lsn" in refused({"file": "binlog"})
    assert "cannot be read" in refused(str(tmp_path / "nothing"))
    assert "topic.prefix other" in refused([["n", {"server": "other"}], offset])
    assert "WAL ends at" in refused({**offset, "lsn": 2**60, "lsn_commit": 2**60})
    assert "transaction 4" in refused({**offset, "txId": 4})
    assert "snapshot had not ended" in refused({"lsn": offset["lsn"], "snapshot": "INITIAL"}, "--events-only")
    assert "does not exist" in refused(offset, of=shop.file(slot, **{"slot.name": "missing"}))
    assert "publication" in refused(offset, of=shop.file(slot, **{"publication.name": "missing"})).lower()
    assert "plugin" in refused(offset, of=shop.file(slot, **{"plugin.name": "wal2json"}))
    file = shop.file(slot)
    gap = {**offset, "lsn_commit": int(Lsn.parse(shop.confirmed(slot))) - 8}
    said = refused(gap)
    assert shop.confirmed(slot) in said
    assert str(Lsn(gap["lsn_commit"])) in said
    assert "accepted" in shop.adopt(file, "--offsets", json.dumps(gap), "--accept-gap", "--dry-run")


def test_kafka_continues_inside_a_transaction(shop: Shop, kafka: Broker, program: Program) -> None:
    """The offset is in a topic of Connect's; the topics of events are Debezium's own."""
    topics = Topics(kafka.servers)
    offset, left = shop.stops()[6]
    slot, prefix = shop.slots[0], f"adopted_{shop.database}"
    file = shop.file(
        slot,
        **{
            "topic.prefix": prefix,
            "wal2lake.sinks": "kafka",
            "provide.transaction.metadata": "true",
            **_kafka(kafka),
        },
    )
    stored = f"offsets-{prefix}"
    topics.create(stored, 3, cleanup_policy="compact")
    name = "transaction_data_collection_order_public"
    counts = {"transaction_id": f"{offset['txId']}:1", f"{name}.items": 1, f"{name}.notes": 1}
    topics.send(stored, key_json("c", prefix), json.dumps({**offset, "lsn": 1, "lsn_commit": 1}))
    topics.send(stored, key_json("c", prefix), json.dumps({**offset, **counts}))
    topics.send(stored, key_json("c", "other"), json.dumps({**offset, "lsn": 5}))
    how = ("--offsets", f"topic:{stored}")
    assert "begins after the last event" in shop.adopt(file, *how)
    assert "already" in shop.adopt(file, *how)
    for _ in range(2):
        done = program.run("run", file, "--until-idle", "0.5", own_java=True)
        assert done.returncode == 0, done.stdout + done.stderr
        names = [f"{prefix}.public.items", f"{prefix}.public.notes"]
        values = [json.loads(one.value()) for one in topics.messages(*names) if one.value() is not None]
        assert sorted(one["source"]["lsn"] for one in values) == sorted(left)
        marks = [json.loads(one.value()) for one in topics.messages(f"{prefix}.transaction")]
    # The transaction's first two events were Debezium's: its BEGIN is not repeated, and the counts go on.
    assert [(one["status"], one["event_count"]) for one in marks][:1] == [("END", 3)]
    assert [one["transaction"]["total_order"] for one in values if one["source"]["txId"] == offset["txId"]] == [3]
    back = json.loads(program.run("offsets", file).stdout)
    assert back["lsn_commit"] >= left[-1]

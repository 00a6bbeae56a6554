"""Prepared transactions that are sent at PREPARE: what is read is what protocol version 1 sends at COMMIT PREPARED."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from cdc_core.errors import InUseError, SourceError
from cdc_core.postgres.connect import connect
from cdc_core.postgres.options import InProgress, PostgresOptions
from cdc_core.postgres.preflight.server import slot_ready
from cdc_core.postgres.replication import slot
from cdc_core.postgres.replication.peek import peek
from cdc_core.postgres.server import wal_end
from tests.postgres.sessions_model import Reader, Session
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.waits import patient

pytestmark = pytest.mark.postgres

_STEPS = 160
_SESSIONS = 3


@pytest.fixture(scope="module")
def preparing() -> Iterator[Cluster]:
    """A server that takes prepared transactions: one that is forgotten would hold up the shared servers' slots."""
    cluster = Cluster.start("embedded18", {"max_prepared_transactions": 30})
    yield cluster
    cluster.stop()


@pytest.fixture
def database(preparing: Cluster) -> Iterator[str]:
    name = preparing.database("two_phase")
    tables = "; ".join(f"create table own_{n} (id serial primary key, v text)" for n in range(_SESSIONS))
    preparing.execute(name, f"{tables}; create table shared (id serial primary key, v text, big text)")
    preparing.execute(name, f"alter table own_0 replica identity full; create publication {name} for all tables")
    yield name
    for (gid,) in preparing.execute(name, "select gid from pg_prepared_xacts where database = %s", [name]):
        preparing.execute(name, f"rollback prepared '{gid}'")
    preparing.drop_database(name)


class Preparing(Session):
    """A session that prepares its transactions, and decides them in another order.

    While one of them is prepared it only inserts: anything else could wait for a lock of its own.
    """

    def __init__(self, number: int, connection: psycopg.Connection[Any], dice: random.Random) -> None:
        super().__init__(number, connection, dice)
        self.prepared: list[str] = []

    def step(self) -> None:
        if self.prepared and not self.is_open and self.dice.random() < 0.5:
            self.decide()
        elif self.is_open and self.dice.random() < 0.25:
            self._prepare()
        elif self.prepared:
            if not self.is_open:
                self._run("begin")
                self.is_open, self.depth = True, 0
            self.dice.choice([self._shared, self._shared, self._end])()
        else:
            super().step()

    def decide(self) -> None:
        gid = self.prepared.pop(self.dice.randrange(len(self.prepared)))
        self._run(f"{'commit' if self.dice.random() < 0.75 else 'rollback'} prepared '{gid}'")

    def _prepare(self) -> None:
        free = [name for name in (f"{self.own} {n}" for n in range(3)) if name not in self.prepared]
        if free:
            self._run(f"prepare transaction '{free[0]}'")
            self.prepared.append(free[0])
            self.is_open = False


@pytest.mark.parametrize("streaming", [InProgress.OFF, InProgress.ON])
def test_what_is_read_at_prepare_is_what_protocol_1_sends(
    preparing: Cluster, database: str, streaming: InProgress
) -> None:
    dice = random.Random(7)
    preparing.execute(database, f"alter database {database} set logical_decoding_work_mem = '64kB'")
    asked = options_for(
        preparing,
        database,
        slot_name=f"{database}_two",
        streaming_transactions_two_phase=True,
        streaming_transactions=streaming,
    )
    with contextlib.ExitStack() as stack:
        one, other = Reader(options_for(preparing, database)), Reader(asked)
        stack.callback(one.close)
        stack.callback(other.close)
        origin = f"{database}_origin"
        preparing.execute(database, "select pg_replication_origin_create(%s)", [origin])
        stack.callback(preparing.drop_origin, origin)
        sessions = [
            Preparing(number, stack.enter_context(contextlib.closing(preparing.connect(database))), dice)
            for number in range(_SESSIONS)
        ]
        if streaming is InProgress.OFF:  # a block that begins with DDL comes without its origin
            sessions[0].connection.execute("select pg_replication_origin_session_setup(%s)", [origin])
        for _ in range(_STEPS):
            dice.choice(sessions).step()
            if dice.random() < 0.2:
                other.read(dice.choice([3, 50, 5000]))
            if dice.random() < 0.04:
                other.read(5000, 0.05)
                other.reconnect()
        for session in sessions:
            session.finish(dice.choice(["commit", "rollback"]))
            while session.prepared:
                session.decide()
        end = preparing.execute(database, "select pg_switch_wal(); select pg_current_wal_lsn() - '0/0'")[0][0]
        for reader in (one, other):
            reader.read_to(int(end))
    assert (other.prepared > 5, other.blocks > 5) == (True, streaming is InProgress.ON)
    assert (one.prepared, one.blocks) == (0, 0)
    assert len(one.found) > 100
    assert other.found == one.found


def prepare(server: Cluster, database: str, gid: str, statements: str) -> None:
    with server.connect(database) as connection:
        connection.execute(f"begin; {statements}; prepare transaction '{gid}'".encode())


def test_what_was_prepared_before_a_start_comes_at_its_commit(preparing: Cluster, database: str) -> None:
    """Confirmed past, the connection ended, two_phase turned off and on, the server restarted: it comes whole."""
    plain = options_for(preparing, database)
    asked = options_for(preparing, database, slot_name=f"{database}_two", streaming_transactions_two_phase=True)
    one, other = Reader(plain), Reader(asked)
    for gid, row in (("1", "one"), ("2", "two"), ("3", "three"), ("4", "four")):
        prepare(preparing, database, gid, f"insert into own_1 (v) values ('{row}')")
    prepare(preparing, database, "5", "alter table own_2 add column w int; insert into own_2 (v, w) values ('new', 5)")
    other.read_to(wal(preparing, database))
    assert other.prepared == 5

    def continued(gid: str, options: PostgresOptions) -> None:
        """Confirm everything, start anew, and commit one of the transactions, whose name is used again."""
        preparing.execute(database, "insert into shared (v) values ('beside')")
        other.read_to(wal(preparing, database))
        other.stream.confirm(wal(preparing, database))
        other.options = options
        other.reconnect()
        preparing.execute(database, f"commit prepared '{gid}'")
        prepare(preparing, database, gid, "insert into own_0 (v) values ('again')")
        other.read_to(wal(preparing, database))

    continued("1", asked)
    continued("2", replace(asked, streaming_transactions_two_phase=False))
    continued("3", asked)
    one.close()
    other.close()
    preparing.restart()
    one.reconnect()
    other.reconnect()
    continued("4", asked)
    continued("5", asked)
    for gid in "135":
        preparing.execute(database, f"commit prepared '{gid}'")
    for gid in "24":
        preparing.execute(database, f"rollback prepared '{gid}'")
    for reader in (one, other):
        reader.read_to(wal(preparing, database))
        reader.close()
    assert [name for name in other.found if name not in one.found] == []
    assert other.found == one.found


def test_what_is_peeked_has_prepared_transactions_at_their_commit(preparing: Cluster, database: str) -> None:
    """The slot keeps two_phase when a stream has ended: whoever reads it without translating takes it away."""
    asked = options_for(preparing, database, streaming_transactions_two_phase=True)
    other = Reader(asked)
    prepare(preparing, database, "1", "insert into own_1 (v) values ('one')")
    other.read_to(wal(preparing, database))
    other.stream.confirm(wal(preparing, database))
    other.close()
    preparing.execute(database, "commit prepared '1'")
    with connect(asked) as connection:
        slot.wait_until_free(connection, asked)
        assert slot.inspect(connection, asked.slot_name).has_two_phase
        kinds = [
            segment.buffer[at] for segment in peek(connection, asked, wal_end(connection)) for at in starts(segment)
        ]
        assert bytes(kinds) == b"BRIC"
        assert not slot.inspect(connection, asked.slot_name).has_two_phase


def test_a_slot_that_is_still_in_use_is_waited_for(preparing: Cluster, database: str) -> None:
    """A start that left two_phase to such a slot could begin the moment it is free, with what was sent before."""
    asked = options_for(preparing, database, streaming_transactions_two_phase=True)
    other = Reader(asked)
    prepare(preparing, database, "1", "insert into own_1 (v) values ('one')")
    other.read_to(wal(preparing, database))
    with connect(asked) as connection:
        pid = slot.inspect(connection, asked.slot_name).active_pid
    with connect(asked, replication=True) as replication:
        with pytest.raises(InUseError, match=f"PID {pid}"):
            slot.clear_two_phase(replication, asked.slot_name, seconds=0.2)
        threading.Timer(0.5, other.close).start()
        slot.clear_two_phase(replication, asked.slot_name, seconds=patient(60))
        assert not slot.inspect(replication, asked.slot_name).has_two_phase


def test_an_older_server_is_refused_with_what_to_do(debian15: Cluster) -> None:
    """There a slot keeps two_phase, and what was sent at PREPARE is never sent again."""
    name = debian15.database("two_phase")
    options = options_for(debian15, name)
    asked = replace(options, streaming_transactions_two_phase=True)
    with connect(options) as connection, connect(options, replication=True) as replication:
        with pytest.raises(SourceError, match=r"two\.phase=true needs PostgreSQL 18 or later, and .* is PostgreSQL 15"):
            slot.wait_until_free(connection, asked)
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, true)", (name,))
        slot.clear_two_phase(replication, name)
        with pytest.raises(SourceError, match="was made with two_phase") as refused:
            slot.wait_until_free(connection, options)
        assert "Choose another slot.name" in refused.value.remedy
        assert slot_ready.verdict(slot.inspect(connection, name), options).found == refused.value.message


def starts(segment: Any) -> list[int]:
    return [25, *(int(end) + 25 for end in segment.ends[:-1])]


def wal(server: Cluster, database: str) -> int:
    return int(server.execute(database, "select pg_switch_wal(); select pg_current_wal_lsn() - '0/0'")[0][0])

"""Transactions that are read when they are prepared: nothing is visible before COMMIT PREPARED, whatever is killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, doubled_events, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NOTES, OTHER = TableId("public", "notes"), TableId("public", "other")
SCHEMA = """
create table notes (id int primary key, v text);
create table other (id int primary key, v text);
alter table notes alter column v set storage external;
create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));
insert into notes select g, repeat('v', 3000) from generate_series(1, 30) g;
insert into other select g, 'v' from generate_series(1, 30) g;
"""
PREPARED = {
    "kept": "insert into notes values (100, 'kept'); savepoint s; delete from notes where id = 1; rollback to s; "
    "update notes set id = 200 where id = 2",
    "other": "insert into other values (99, 'other'); delete from other where id = 3",
    "never": "delete from notes where id between 10 and 15",
}


@pytest.fixture(scope="module")
def preparing() -> Iterator[Cluster]:
    """A server that takes prepared transactions: one that is forgotten would hold up the shared servers' slots."""
    cluster = Cluster.start("embedded18", {"max_prepared_transactions": 10, "logical_decoding_work_mem": "64kB"})
    yield cluster
    cluster.stop()


def test_prepared_transactions_outlive_kills_of_the_run_and_of_the_server(
    preparing: Cluster, program: Program, tmp_path: Path
) -> None:
    database = preparing.database("two_phase")
    preparing.execute(database, SCHEMA)
    settings = {
        "table.include.list": "public.notes,public.other",
        "signal.data.collection": "public.signals",
        "incremental.snapshot.chunk.size": "10",
        "wal2lake.streaming.transactions.two.phase": "true",
        "wal2lake.streaming.transactions.max.bytes": "300000",
        **lake_settings(tmp_path),
    }
    file = write_properties(tmp_path / "two_phase.properties", preparing.properties(database, **settings))
    notes = tmp_path / "lake" / "test" / "public" / "notes"
    assert program.stream(file).returncode == 0

    def prepare(name: str, statements: str) -> None:
        preparing.execute(database, f"begin; {statements}; prepare transaction '{name}'")

    def merged(number: int) -> None:
        """A row beside them, behind which everything up to here was received: it is in the lake, and they are not."""
        preparing.execute(database, f"insert into notes values ({number}, 'beside')")
        wait_until(lambda: rows(notes, f"select id from t where id = {number}"), 90, "the row beside them")
        # The tables of a round are not merged at the same moment.
        wait_until(lambda: not difference(file, [NOTES, OTHER]), 60, "the other changes before that row")

    with program.started("run", file, "--max-seconds", "1500") as run:
        merged(301)
        for name, statements in PREPARED.items():
            prepare(name, statements)
        prepare("within", "update notes set v = 'within' where id = 20")
        merged(302)
        preparing.execute(database, "commit prepared 'within'")
        merged(303)
        run.end(signal.SIGKILL)
    preparing.execute(database, "insert into notes values (304, 'while no run is active')")
    preparing.restart(crash=True)
    with program.started("run", file, "--max-seconds", "1500") as run:
        merged(305)
        # The chunks of an incremental snapshot beside what is prepared.
        data = json.dumps({"data-collections": ["public.notes"], "type": "incremental"})
        preparing.execute(database, "insert into signals values ('1', 'execute-snapshot', %s)", [data])
        prepare("within", "update notes set v = 'again' where id = 20; insert into notes values (101, 'new')")
        merged(306)
        for name in ("other", "kept", "within"):
            preparing.execute(database, f"commit prepared '{name}'")
        # It locks the table until it is decided, for the comparison and for a start, too.
        prepare("altered", "alter table other add column w int default 7; insert into other values (100, 'altered', 8)")
        preparing.execute(database, "insert into notes values (400, 'beside DDL')")
        wait_until(lambda: rows(notes, "select id from t where id = 400"), 90, "the row beside DDL")
        preparing.execute(database, "commit prepared 'altered'")
        preparing.execute(database, "rollback prepared 'never'")
        merged(307)
        # More than may be kept: the stream begins anew, and takes two_phase from the slot.
        prepare("large", "insert into notes select g, repeat('x', 200) from generate_series(1000, 4000) g")
        run.wait_for("Until this run ends, each transaction is read after its commit.", 90)
        merged(308)
        preparing.execute(database, "commit prepared 'large'")
        merged(309)
        assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
    assert difference(file, [NOTES, OTHER]) == []
    # Whoever goes on from the slot gets prepared transactions as ever.
    has_it = "select two_phase from pg_replication_slots where slot_name = %s"
    for command, before in ((("run", file, "--until-idle", "1"), True), (("offsets", file), False)):
        done = program.run(*command)
        assert done.returncode == 0, done.stderr[-3000:]
        assert preparing.execute(database, has_it, [database]) == [(before,)]
    assert (doubled_events(file, NOTES), doubled_events(file, OTHER)) == (0, 0)

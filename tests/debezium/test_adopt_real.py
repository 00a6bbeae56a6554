"""From a real Debezium to wal2lake and back: killed anywhere, their events join without a gap or a double."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.debezium.engine import Debezium
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, lake_settings, rows, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.debezium, pytest.mark.postgres, pytest.mark.slow]

TABLES = [TableId("public", "items"), TableId("public", "notes")]
SCHEMA = """
create table items (id int primary key, n int, v text);
create table notes (id int primary key, v text);
alter table notes replica identity full;
insert into items select g, 0, 'first' from generate_series(1, 5) g;
"""
_MESSAGES = """
select (lsn - '0/0')::bigint, data from pg_logical_slot_peek_binary_changes(%s, null, null,
    'proto_version', '1', 'publication_names', %s)
"""


def work(pg: Cluster, database: str, number: int) -> None:
    """Two transactions whose changes lie mixed, in the order in which they do not commit, and some small ones."""
    base = 1000 * number
    with pg.connect(database) as early, pg.connect(database) as late:
        early.autocommit = late.autocommit = False
        for step in range(4):
            early.execute("insert into items values (%s, %s, 'early')", [base + step, step])
            late.execute("insert into notes values (%s, 'late')", [base + step])
        late.execute("update notes set v = 'later' where id >= %s", [base])
        late.commit()
        early.execute("update items set n = n + 1 where id >= %s", [base])
        early.execute("delete from items where id = %s", [base])
        early.commit()
    pg.execute(database, f"insert into items values ({base + 500}, 0, 'alone'); delete from notes where id = {base}")


def sent_lsns(records: list[dict[str, Any]]) -> list[int]:
    """LSNs of changes that Debezium sent, in its order, without rows of a snapshot, tombstones and heartbeats."""
    values = [one["value"] for one in records if one["value"] is not None]
    return [one["source"]["lsn"] for one in values if one.get("op", "r") != "r"]


def changelog_lsns(file: Path) -> list[int]:
    config = load(file)
    found = []
    for path in (changelog_path(config, table) for table in TABLES):
        if path.exists():
            found += rows(path, 'select "__commit_lsn" c, "__tx_index" i, "__lsn" l from t where "__op" <> \'r\'')
    return [one["l"] for one in sorted(found, key=lambda one: (one["c"], one["i"]))]


def server_lsns(pg: Cluster, database: str) -> list[int]:
    """The same of every change that the server has sent since the begin."""
    found = pg.execute(database, _MESSAGES, ["oracle", database])
    return [lsn for lsn, data in found if bytes(data)[:1] in (b"I", b"U", b"D")]


def taken_over(
    program: Program, pg: Cluster, database: str, file: Path, how: tuple[str, ...], number: int
) -> list[int]:
    """Adopt, and run twice with changes before each run; returns what is in the changelogs then."""
    done = program.run("adopt", file, *how)
    assert done.returncode == 0, done.stdout + done.stderr
    for each in (number, number + 1):
        work(pg, database, each)
        done = program.stream(file)
        assert done.returncode == 0, done.stdout + done.stderr
    if not how:
        assert difference(file, TABLES) == []
    return changelog_lsns(file)


def handed_back(program: Program, file: Path, debezium: Debezium) -> None:
    done = program.run("offsets", file, "--format", "file", "--output", str(debezium.offsets))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", range(4))
def test_there_and_back(debian15: Cluster, program: Program, tmp_path: Path, number: int) -> None:
    pg, chosen = debian15, random.Random()
    database = pg.database("there")
    pg.execute(database, SCHEMA)
    named = {"topic.prefix": "there", "table.include.list": "public.items,public.notes", "max.batch.size": "7"}
    more = {"publication.autocreate.mode": "filtered", **({"heartbeat.interval.ms": "1"} if number == 3 else {})}
    debezium = Debezium(pg, database, tmp_path, **named, **more)
    assert len(debezium.run(5)) == 5
    pg.execute(
        database,
        "select pg_copy_logical_replication_slot(slot_name, 'oracle') from pg_replication_slots where database = %s",
        [database],
    )
    try:
        file = write_properties(
            tmp_path / "wal2lake.properties",
            {**debezium.properties, **lake_settings(tmp_path), "heartbeat.interval.ms": "0"},
        )
        work(pg, database, 1)
        count = len(server_lsns(pg, database))
        stop = chosen.randrange(1, count)
        first = sent_lsns(debezium.run(stop))
        how = () if number == 2 else ("--events-only",)
        ours = taken_over(program, pg, database, file, how, 2)
        handed_back(program, file, debezium)
        work(pg, database, 4)
        middle = sent_lsns(debezium.run(stop))[len(first) :]
        # Again, into the same lake.
        again = taken_over(program, pg, database, file, how, 5)
        handed_back(program, file, debezium)
        work(pg, database, 7)
        last = sent_lsns(debezium.run())[len(first) + len(middle) :]
        expected = server_lsns(pg, database)
        if number == 2:
            # The changelog has what the slot still had as well: whole transactions.
            assert difference(file, TABLES) != []
            assert last == expected[-len(last) :], stop
            assert set(expected) == {*first, *middle, *again, *last}, stop
        else:
            assert again[: len(ours)] == ours
            assert [*first, *ours, *middle, *again[len(ours) :], *last] == expected, stop
    finally:
        pg.execute(database, "select pg_drop_replication_slot('oracle')")

"""Logical messages and transaction metadata in the lake: what Debezium's topics have, once, whatever is killed."""

import base64
import json

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

T = TableId("public", "t")
SCHEMA = """
create table t (id int primary key, v text);
create table other (id int primary key);
insert into t select g, 'v' from generate_series(1, 3) g;
"""
# A key change is two events, a truncate and an unwanted message none; one message is outside of transactions.
CHANGES = """
begin;
insert into t select {r} * 1000 + g, 'v' from generate_series(1, 5) g;
select pg_logical_emit_message(true, 'order.made', 'first of {r}');
update t set id = id + 500 where id = {r} * 1000 + 1;
select pg_logical_emit_message(true, 'order.made', 'second of {r}');
select pg_logical_emit_message(true, 'unwanted', 'third of {r}');
insert into other values ({r});
delete from t where id = {r} * 1000 + 2;
commit;
select pg_logical_emit_message(false, 'order.seen', convert_to('outside ' || {r}, 'utf8') || '\\x00ff');
update t set v = 'w' where id = {r} * 1000 + 3;
select pg_logical_emit_message(true, 'order.made', 'alone in {r}');
"""
STEPS = [
    failpoints.DURING_APPEND,  # before the messages' commit
    f"{failpoints.DURING_APPEND}:2",  # between the messages' and the transactions'
    failpoints.AFTER_APPEND,  # after the changelog's
    failpoints.BEFORE_CONFIRM,
    failpoints.AFTER_CONFIRM,
]


def events(path):
    """(messages, transactions) as ``wal2lake envelopes`` writes Debezium's topics."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    told, marks = [], []
    for one in found:
        payload = one["value"] and one["value"]["payload"]
        if one["topic"].endswith(".message"):
            told.append(
                (
                    payload["message"]["prefix"],
                    base64.b64decode(payload["message"]["content"]),
                    payload["source"]["lsn"],
                    payload["source"]["txId"],
                )
            )
        elif one["topic"].endswith(".transaction"):
            marks.append(tuple(payload[name] for name in ("id", "status", "event_count", "data_collections", "ts_ms")))
    return told, marks


def landed(folder):
    """The same, as the lake has them, in the order of the stream."""
    order = 'order by "__commit_lsn", "__tx_index"'
    told = rows(folder / "__messages", f"select * from t {order}")
    marks = rows(folder / "__transactions", f"select * from t {order}")
    assert all(one["transactional"] == (one["__xid"] is not None) for one in told)
    return (
        [(one["prefix"], one["content"], one["__lsn"], one["__xid"]) for one in told],
        [
            (
                *(one[name] for name in ("id", "status", "event_count", "data_collections")),
                int(one["__commit_ts"].timestamp() * 1000),
            )
            for one in marks
        ],
    )


@pytest.mark.parametrize("plugin", ["pgoutput", "wal2json"])
def test_messages_and_transactions_are_in_the_lake_once_and_as_in_debeziums_topics(pg, program, tmp_path, plugin):
    database = pg.database(f"own_{plugin}")
    pg.execute(database, SCHEMA)
    common = {
        "plugin.name": plugin,
        "table.include.list": "public.t",
        "message.prefix.include.list": "order\\..*",
        "provide.transaction.metadata": "true",
        "snapshot.mode": "no_data",
    }
    given = pg.properties(database, **common)
    # Two rows a batch: a transaction of several batches, with messages in each.
    lake = write_properties(
        tmp_path / "lake.properties",
        {**given, **lake_settings(tmp_path), "wal2lake.batch.max.rows": "2"},
    )
    beside = write_properties(tmp_path / "events.properties", {**given, "slot.name": f"{given['slot.name']}_events"})
    output = tmp_path / "events.jsonl"
    for file, command in ((lake, ("run",)), (beside, ("envelopes", "--output", str(output)))):
        begun = program.run(command[0], file, *command[1:], "--until-idle", "1")
        assert begun.returncode == 0, begun.stderr
        assert "No effect on the lake" not in begun.stderr
    for number, step in enumerate(STEPS if plugin == "pgoutput" else STEPS[1:2], 1):
        pg.execute(database, CHANGES.format(r=number))
        program.killed_at(step, lake)
    pg.execute(database, "truncate t")
    for file, command in ((lake, ("run",)), (beside, ("envelopes", "--output", str(output)))):
        done = program.run(command[0], file, *command[1:], "--until-idle", "1")
        assert done.returncode == 0, done.stderr
    told, marks = events(output)
    assert landed(tmp_path / "lake" / load(lake).schema.topic_prefix) == (told, marks)
    assert len(told) == 4 * number
    assert {mark[2] for mark in marks if mark[1] == "END"} == {0, 2, 10}
    assert difference(lake, [T]) == []

"""Signals to a running connector: incremental and blocking snapshots, their channels, what is refused."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc_core.engine.reports import Until
from cdc_core.snapshot.notifications import Notification
from cdc_core.snapshot.signals.channels import Inbox, append_signal
from cdc_core.snapshot.signals.parse import Signal
from tests.support.cluster import Cluster
from tests.support.event_compare import Record
from tests.support.events import Capture, Running, capture, told
from tests.support.waits import patient, wait_until

pytestmark = pytest.mark.postgres

TABLE = "create table t (id int primary key, v text)"
SIGNALS = "create table signals (id varchar(42) primary key, type varchar(32), data varchar(2048))"
ROWS = "insert into t select n, 'v' || n from generate_series(1, {}) n"
RULES = {"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "3"}


def execute(*tables: str, **more: Any) -> str:
    data = json.dumps({"data-collections": list(tables), **more}).replace("'", "''")
    return f"insert into signals values (gen_random_uuid()::text, 'execute-snapshot', '{data}')"


def whole(one: Capture) -> list[Record]:
    """The records whose lines are written to their end."""
    text = one.output.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].split("\n") if line]


def of_table(records: list[Record], table: str = "t") -> list[tuple[Any, ...]]:
    """Operation, key and whether an incremental snapshot read it, of the table's records."""
    return [
        (*told(record)[:2], record["value"]["payload"]["source"]["snapshot"] if record["value"] else None)
        for record in records
        if record["topic"] == f"fulfillment.public.{table}"
    ]


def read_ids(records: list[Record], table: str = "t") -> list[int]:
    return [key["id"] for op, key, marker in of_table(records, table) if op == "r" and marker == "incremental"]


def is_read(one: Capture, ids: list[int], table: str = "t") -> bool:
    return read_ids(whole(one), table) == ids


@pytest.mark.parametrize(
    "strategy",
    [
        {"incremental.snapshot.watermarking.strategy": "insert_insert"},
        {"incremental.snapshot.watermarking.strategy": "insert_delete"},
        {"read.only": "true"},
    ],
    ids=["insert_insert", "insert_delete", "read.only"],
)
def test_a_table_is_read_in_chunks_beside_the_stream(
    debian15: Cluster, strategy: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cdc_core")
    rules = RULES | strategy | {"notification.enabled.channels": "log"}
    with capture(debian15, rules, TABLE, SIGNALS, ROWS.format(8)) as one:
        with one.running() as running:
            one.sql(execute("public.t"))
            wait_until(lambda: is_read(one, list(range(1, 9))), 30, "all rows")
            one.sql("insert into t values (9, 'new')")
            # The chunk without rows, by which the table's end is noticed, has its marks too.
            wait_until(lambda: "Incremental Snapshot COMPLETED" in caplog.text, 30, "the end of the snapshot")
            running.settle()
        records = whole(one)
        (left,) = one.cluster.execute(one.database, "select count(*) from signals")[0]
    assert of_table(records)[-1] == ("c", {"id": 9}, "false")
    source = next(r["value"]["payload"]["source"] for r in records if r["topic"].endswith(".t"))
    assert (source["lsn"], source["txId"]) == (None, None)
    expected = {"insert_insert": 9, "insert_delete": 1}.get(next(iter(strategy.values())), 1)
    assert left == expected, "the signal, and two rows a chunk where marks are kept"


def test_a_table_that_another_session_has_locked_does_not_hold_up_the_stream(debian15: Cluster) -> None:
    other = "create table o (id int primary key)"
    rules = RULES | {"snapshot.lock.timeout.ms": "200"}
    with capture(debian15, rules, TABLE, other, SIGNALS, ROWS.format(4)) as one, one.running() as running:
        with one.cluster.connect(one.database) as locking:
            locking.execute("begin; lock table t in access exclusive mode")
            one.sql(execute("public.t"), "insert into o values (1)")
            running.settle()
            one.sql("insert into o values (2)")
            running.settle()
            assert of_table(whole(one), "t") == []
            locking.execute("rollback")
        wait_until(lambda: is_read(one, [1, 2, 3, 4]), 30, "all rows")


def test_names_in_quotes(debian15: Cluster) -> None:
    tables = [
        SIGNALS.replace("table signals", 'table "My.Signals"'),
        'create table "My.Table" (id int primary key, v text)',
        """insert into "My.Table" select n, 'v' from generate_series(1, 4) n""",
    ]
    rules = RULES | {"signal.data.collection": '"public"."My.Signals"'}
    with capture(debian15, rules, *tables) as one, one.running():
        one.sql(execute('"public"."My.Table"').replace("into signals", 'into "My.Signals"'))
        wait_until(lambda: is_read(one, [1, 2, 3, 4], "My.Table"), 30, "all rows")


def test_composite_nullable_and_surrogate_keys(debian15: Cluster) -> None:
    tables = [
        'create table pair (a int, b text collate "C", v text, primary key (b, a))',
        "insert into pair select n % 3, chr(65 + n % 4), n::text from generate_series(1, 12) n",
        "create table loose (u int unique, v text)",
        "insert into loose select case when n < 6 then n end, n::text from generate_series(1, 5) n",
        "create table bare (u int, v text)",
        "insert into bare select n, n::text from generate_series(1, 7) n",
    ]
    with capture(debian15, RULES, SIGNALS, *tables) as one, one.running():
        one.sql(execute("public.pair", "public.loose"), execute("public.bare", **{"surrogate-key": "u"}))
        wait_until(lambda: len(of_table(whole(one), "bare")) == 7, 30, "all rows")
        records = whole(one)
    pairs = [key for op, key, _ in of_table(records, "pair")]
    assert [(key["b"], key["a"]) for key in pairs] == sorted((chr(65 + n), m) for n in range(4) for m in range(3))
    assert [key["u"] for _, key, _ in of_table(records, "loose")] == [1, 2, 3, 4, 5]


def test_nulls_in_a_key_come_last_and_once(debian15: Cluster) -> None:
    tables = [
        "create table t2 (u int, w int, v text)",
        "create unique index on t2 (u, w)",
        "insert into t2 values (1, 1, 'a'), (1, null, 'b'), (2, 1, 'c'), (2, null, 'd'), (null, 1, 'e')",
        "insert into t2 values (null, 2, 'f')",
    ]
    rules = RULES | {"incremental.snapshot.chunk.size": "1"}
    with capture(debian15, rules, SIGNALS, *tables) as one, one.running():
        one.sql(execute("public.t2"))
        wait_until(lambda: len(of_table(whole(one), "t2")) >= 6, 30, "all rows")
        records = [told(record)[3]["v"] for record in whole(one) if record["topic"].endswith(".t2")]
    assert records == ["a", "b", "c", "d", "e", "f"]


def test_a_signal_is_sent_by_another_process_through_the_table(debian15: Cluster) -> None:
    with capture(debian15, RULES, TABLE, SIGNALS, ROWS.format(2)) as one, one.running():
        assert one.connector().signal("execute-snapshot", '{"data-collections": ["public.t"]}') == "source"
        wait_until(lambda: is_read(one, [1, 2]), 30, "all rows")


def test_conditions_and_patterns_choose_rows_and_tables(debian15: Cluster) -> None:
    other = "create table t_other (id int primary key); insert into t_other values (1), (2)"
    condition = [{"data-collection": "public.t", "filter": "id % 2 = 0"}]
    with capture(debian15, RULES, TABLE, SIGNALS, other, ROWS.format(9)) as one, one.running():
        one.sql(execute("public.t.*", **{"additional-conditions": condition}))
        wait_until(lambda: is_read(one, [1, 2], "t_other"), 30, "the second table")
        assert read_ids(whole(one)) == [2, 4, 6, 8]


def test_a_signal_that_cannot_be_processed_is_reported_and_the_stream_continues(
    debian15: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    bare = "create table bare (v text); insert into bare values ('secret')"
    bad = [
        "insert into signals values ('1', 'execute-snapshot', '{')",
        "insert into signals values ('2', 'execute-snapshot', null)",
        "insert into signals values ('3', 'unheard-of', '{}')",
        "insert into signals values ('4', 'execute-snapshot', '{\"data-collections\": [\"public.nothing\"]}')",
        execute("public.bare"),
        execute("public.t", **{"additional-conditions": [{"data-collection": "public.t", "filter": "no_column > 1"}]}),
    ]
    with capture(debian15, RULES, TABLE, SIGNALS, bare, ROWS.format(2)) as one, one.running():
        one.sql(*bad)
        one.sql(execute("public.t"))
        wait_until(lambda: is_read(one, [1, 2]), 30, "the rows of the good signal")
    for said in ("not JSON", "no class for its type", "none of its data-collections", "surrogate-key", "skipped by"):
        assert said in caplog.text, said
    assert "secret" not in caplog.text


def test_pause_resume_stop_and_log(debian15: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cdc_core")
    other = "create table t_other (id int primary key); insert into t_other values (1), (2)"
    rules = RULES | {"notification.enabled.channels": "log"}
    with capture(debian15, rules, TABLE, SIGNALS, other, ROWS.format(200)) as one, one.running() as running:
        # The first comes before there is a snapshot; the others come together, with no row read between them.
        one.sql("insert into signals values ('p', 'pause-snapshot', '{}')")
        one.sql(f"{execute('public.t', 'public.t_other')}; insert into signals values ('q', 'pause-snapshot', '{{}}')")
        wait_until(lambda: "PAUSED" in caplog.text, 30, "the pause")
        running.settle()
        running.settle()
        before = len(read_ids(whole(one)))
        assert before < 200
        one.sql("insert into t values (500, 'beside')")
        running.settle()
        assert len(read_ids(whole(one))) <= before + 3, "the chunk that was on its way, and no other"
        one.sql("insert into signals values ('s', 'stop-snapshot', '{\"data-collections\": [\"public.t\"]}')")
        one.sql("insert into signals values ('r', 'resume-snapshot', '{}')")
        wait_until(lambda: is_read(one, [1, 2], "t_other"), 30, "the other table")
        assert len(read_ids(whole(one))) <= before + 3
        one.sql("insert into signals values ('l', 'log', '{\"message\": \"reached {}\"}')")
        wait_until(lambda: "reached 0/" in caplog.text, 30, "the line")
        # The rows of the last table are there before its end is told.
        for status_type in ("STARTED", "PAUSED", "ABORTED", "RESUMED", "TABLE_SCAN_COMPLETED", "COMPLETED"):
            word = f"Incremental Snapshot {status_type}"
            wait_until(lambda word=word: word in caplog.text, 30, word)


class Mine:
    """A signal of the user's own."""

    seen: list[Signal] = []  # noqa: RUF012

    def arrived(self, signal: Signal) -> None:
        self.seen.append(signal)
        raise RuntimeError("the stream goes on")


def test_a_file_and_this_process_are_channels_and_a_type_may_be_ones_own(debian15: Cluster, tmp_path: Path) -> None:
    file, inbox, told_of = tmp_path / "signals.txt", Inbox(), list[Notification]()
    rules = RULES | {
        "signal.enabled.channels": "file,in-process",
        "signal.file": str(file),
        "signal.poll.interval.ms": "50",
        "wal2lake.signal.actions": f"mine={__name__}.Mine",
    }
    with capture(debian15, rules, TABLE, SIGNALS, ROWS.format(4)) as one, beside(one, inbox, told_of):
        one.sql(execute("public.t"))  # no channel here: nothing comes of it
        append_signal(file, json.dumps({"id": "1", "type": "mine", "data": {"a": 1}}))
        inbox.put(Signal("2", "execute-snapshot", {"data-collections": ["public.t"]}))
        wait_until(lambda: read_ids(whole(one))[:4] == [1, 2, 3, 4], 30, "the rows")
        wait_until(lambda: Mine.seen, 30, "the action")
        assert len(read_ids(whole(one))) == 4
    assert Mine.seen[-1].data == {"a": 1}
    assert told_of[0].additional_data == {"connector_name": "fulfillment", "data_collections": "public.t"}


@contextmanager
def beside(one: Capture, inbox: Inbox, told_of: list[Notification]) -> Iterator[None]:
    """The connector at work with an inbox."""
    stop = threading.Event()
    ended: list[BaseException] = []

    def run() -> None:
        try:
            one.connector().envelopes(one.output, Until(), stop.is_set, inbox, told_of.append)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(patient(30))
    assert not ended and not thread.is_alive()


def test_without_a_place_for_marks_an_incremental_snapshot_is_refused(
    debian15: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "signals.txt"
    rules = {"signal.enabled.channels": "file", "signal.file": str(file), "signal.poll.interval.ms": "50"}
    with capture(debian15, rules, TABLE, ROWS.format(2)) as one, one.running() as running:
        append_signal(file, json.dumps({"type": "execute-snapshot", "data": {"data-collections": ["public.t"]}}))
        wait_until(lambda: "need a captured table as signal.data.collection" in caplog.text, 30, "the refusal")
        running.settle()
        assert of_table(whole(one)) == []


def ends(one: Capture) -> int:
    return [marker for *_, marker in of_table(whole(one))].count("last")


def test_a_blocking_snapshot_reads_at_once_with_the_markers_of_a_snapshot(debian15: Cluster) -> None:
    statement = [{"data-collection": "public.t", "filter": "select * from t where id > 2 order by id desc"}]
    with capture(debian15, RULES, TABLE, SIGNALS, ROWS.format(4)) as one, one.running() as running:
        one.sql(execute("public.t", type="blocking"), "insert into t values (5, 'after')")
        wait_until(lambda: ends(one) == 1, 30, "the rows")
        one.sql(execute("public.t", type="blocking", **{"additional-conditions": statement}))
        one.sql("insert into t values (6, 'after')")
        wait_until(lambda: ends(one) == 2, 30, "the rows")
        running.settle()
        found = of_table(whole(one))
    reads = [(key["id"], marker) for op, key, marker in found if op == "r"]
    first_end = reads.index(next(read for read in reads if read[1] == "last"))
    assert [marker for _, marker in reads[: first_end + 1]][:1] == ["first"]
    assert {1, 2, 3, 4} <= {number for number, _ in reads[: first_end + 1]}
    second = [number for number, _ in reads[first_end + 1 :]]
    assert second == sorted(second, reverse=True) and min(second) == 3
    assert [key["id"] for op, key, _ in found if op == "c"] == [5, 6]


def test_a_run_that_ends_amid_a_snapshot_continues_at_its_chunk(debian15: Cluster) -> None:
    with capture(debian15, RULES, TABLE, SIGNALS, ROWS.format(300)) as one:
        for _ in range(3):
            running = Running(one)
            running.start()
            if not of_table(whole(one)):
                one.sql(execute("public.t"))
            known = len(read_ids(whole(one)))
            wait_until(lambda known=known: len(read_ids(whole(one))) > known + 6, 30, "some rows")
            running.stop()
            running.check()
        assert len(read_ids(whole(one))) < 300
        with one.running():
            wait_until(lambda: len(read_ids(whole(one))) >= 300, 60, "all rows")
        assert read_ids(whole(one)) == list(range(1, 301)), "no chunk twice, none lost"


def test_a_table_may_be_altered_while_it_is_read(debian15: Cluster) -> None:
    with capture(debian15, RULES, TABLE, SIGNALS, ROWS.format(150)) as one, one.running() as running:
        one.sql(execute("public.t"))
        wait_until(lambda: len(read_ids(whole(one))) > 9, 30, "some rows")
        one.sql("alter table t add column w int default 7")
        one.sql("update t set v = 'x' where id between 20 and 60")
        one.sql("alter table t drop column v")
        one.sql("update t set w = 8 where id between 40 and 90")
        wait_until(lambda: 150 in read_ids(whole(one)), 60, "the last row")
        running.settle()
        last = {}
        for record in whole(one):
            if record["topic"].endswith(".t") and record["value"]:
                _, key, _, after = told(record)
                last[key["id"]] = after
        (expected,) = one.cluster.execute(one.database, "select json_object_agg(id, w) from t")[0]
    assert {str(number): row.get("w", 7) for number, row in last.items()} == expected

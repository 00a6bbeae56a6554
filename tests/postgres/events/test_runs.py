"""Runs: snapshots and their modes, restarts, kills, heartbeats, messages, failures."""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_core.errors import ConversionError, SourceError, TransientError
from tests.support.cluster import Cluster
from tests.support.event_compare import Record
from tests.support.events import capture, told
from tests.support.waits import patient, wait_until

pytestmark = pytest.mark.postgres

TABLE = "create table t (id int primary key, v text)"


def one_row(cluster: Cluster, database: str, query: str) -> int:
    return int(cluster.execute(database, query)[0][0])


def sequence(record: dict) -> tuple[int | None, int]:  # type: ignore[type-arg]
    before, own = json.loads(record["value"]["payload"]["source"]["sequence"])
    return (before and int(before), int(own))


def test_a_second_run_continues_where_the_first_stopped(debian15: Cluster) -> None:
    with capture(debian15, {"snapshot.mode": "initial"}, TABLE, "insert into t values (1, 'a')") as one:
        first = one.run("insert into t values (2, 'b')")
        one.sql("insert into t values (3, 'c')")
        records = one.run("insert into t values (4, 'd')")
    assert [told(record)[0] for record in records] == ["r", "c", "c", "c"]
    assert [told(record)[1]["id"] for record in records] == [1, 2, 3, 4]
    assert sequence(first[1])[0] is None, "nothing was committed before in the first run"
    assert (sequence(records[2])[0] or 0) > sequence(records[1])[1], "a restart goes on from what was confirmed"


def test_what_a_killed_run_wrote_behind_its_last_commit_is_written_once(debian15: Cluster) -> None:
    with capture(debian15, {}, TABLE) as one:
        one.run("insert into t values (1, 'a')")
        with one.output.open("a") as file:
            file.write('{"topic":"half a transac')  # what a kill in the middle of a segment leaves
        one.sql("insert into t values (2, 'b')")
        records = one.run()
        records = one.run("insert into t values (3, 'c')")
    assert [told(record)[1]["id"] for record in records] == [1, 2, 3]


def test_a_snapshot_that_was_cut_short_is_taken_again(debian15: Cluster) -> None:
    with capture(debian15, {"snapshot.mode": "initial"}, TABLE, "insert into t values (1, 'a'), (2, 'b')") as one:
        one.sql(f"select pg_create_logical_replication_slot('{one.database}', 'pgoutput')")
        beside = one.output.with_name(one.output.name + ".position")
        state = {"slot": one.database, "bytes": 0, "lsn": "0/0", "in_snapshot": True, "makes_slot": True}
        beside.write_text(json.dumps(state))
        one.output.write_text('{"topic":"fulfillment.public.t"}\n')
        records = one.run("insert into t values (3, 'c')")
    assert [told(record)[:2] for record in records] == [("r", {"id": 1}), ("r", {"id": 2}), ("c", {"id": 3})]


@pytest.mark.parametrize(
    ("mode", "first", "second"),
    [("initial", "rc", "c"), ("always", "rc", "rrc"), ("no_data", "c", "c"), ("when_needed", "rc", "c")],
)
def test_snapshot_modes_say_what_is_read_at_the_first_and_the_second_start(
    debian15: Cluster, mode: str, first: str, second: str
) -> None:
    with capture(debian15, {"snapshot.mode": mode}, TABLE, "insert into t values (1, 'a')") as one:
        assert [told(record)[0] for record in one.run("insert into t values (2, 'b')")] == list(first)
        records = one.run("insert into t values (3, 'c')")
    assert [told(record)[0] for record in records] == list(first + second)


BASED = "snapshot.mode.configuration.based."


class AtEachLaterStart:
    """A snapshot mode of the user's own: nothing is read at the first start."""

    def should_snapshot_data(self, offset_exists: bool, snapshot_in_progress: bool) -> bool:
        return offset_exists

    def should_stream(self) -> bool:
        return True

    def should_snapshot_on_data_error(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("rules", "first", "second"),
    [
        ({"snapshot.mode": "custom", "snapshot.mode.custom.name": f"{__name__}.AtEachLaterStart"}, "c", "rrc"),
        ({"snapshot.mode": "configuration_based", BASED + "start.stream": "true"}, "c", "c"),
        (
            {"snapshot.mode": "configuration_based", BASED + "start.stream": "true", BASED + "snapshot.data": "true"},
            "rc",
            "rrc",
        ),
    ],
    ids=["custom", "stream only", "data and stream"],
)
def test_modes_made_of_answers_say_what_is_read_at_the_first_and_the_second_start(
    debian15: Cluster, rules: dict[str, str], first: str, second: str
) -> None:
    with capture(debian15, rules, TABLE, "insert into t values (1, 'a')") as one:
        assert [told(record)[0] for record in one.run("insert into t values (2, 'b')")] == list(first)
        records = one.run("insert into t values (3, 'c')")
    assert [told(record)[0] for record in records] == list(first + second)


def test_a_switch_reads_again_where_the_slot_was_removed(debian15: Cluster) -> None:
    rules = {
        "snapshot.mode": "configuration_based",
        BASED + "start.stream": "true",
        BASED + "snapshot.on.data.error": "true",
    }
    with capture(debian15, rules, TABLE, "insert into t values (1, 'a')") as one:
        assert [told(record)[0] for record in one.run("insert into t values (2, 'b')")] == ["c"]
        one.sql(f"select pg_drop_replication_slot('{one.database}')")
        records = one.run()
    assert [told(record)[0] for record in records] == ["c", "r", "r"]


def test_initial_only_reads_and_ends(debian15: Cluster) -> None:
    with capture(debian15, {"snapshot.mode": "initial_only"}, TABLE, "insert into t values (1, 'a')") as one:
        with one.running():
            pass
        assert [told(record)[0] for record in one.records()] == ["r"]


def test_when_needed_reads_again_after_the_slot_was_removed(debian15: Cluster) -> None:
    with capture(debian15, {"snapshot.mode": "when_needed"}, TABLE, "insert into t values (1, 'a')") as one:
        one.run()
        one.sql(f"select pg_drop_replication_slot('{one.database}')")
        records = one.run()
    assert [told(record)[0] for record in records] == ["r", "r"]


def test_tables_are_read_in_the_order_of_the_list_only_those_asked_for_and_by_ones_own_statement(
    debian15: Cluster,
) -> None:
    rules = {
        "snapshot.mode": "initial",
        "table.include.list": "public.b,public.a,public.t",
        "snapshot.include.collection.list": "public.(a|b)",
        "snapshot.select.statement.overrides": "public.a",
        "snapshot.select.statement.overrides.public.a": "select v, id from a where id > 1",
    }
    tables = [f"create table {name} (id int primary key, v text)" for name in ("a", "b", "t")]
    rows = [f"insert into {name} values (1, 'x'), (2, 'y')" for name in ("a", "b", "t")]
    with capture(debian15, rules, *tables, *rows) as one:
        records = one.run()
    got = [(r["topic"][-1], told(r)[3]["id"], r["value"]["payload"]["source"]["snapshot"]) for r in records]
    assert got == [("b", 1, "first"), ("b", 2, "last_in_data_collection"), ("a", 2, "last")]


@pytest.mark.parametrize(
    ("order", "expected"), [("ascending", "bca"), ("descending", "acb"), ("disabled", "abc")], ids=str
)
def test_tables_are_read_by_their_estimated_rows(debian15: Cluster, order: str, expected: str) -> None:
    rules = {"snapshot.mode": "initial", "snapshot.tables.order.by.row.count": order}
    tables = [f"create table {name} (id int primary key)" for name in "abc"]
    rows = [f"insert into {name} select generate_series(1, {n})" for name, n in (("a", 900), ("b", 2), ("c", 300))]
    with capture(debian15, rules, *tables, *rows, "analyze") as one:
        records = one.run()
    assert "".join(dict.fromkeys(record["topic"][-1] for record in records)) == expected


def test_statements_of_ones_own_read_their_tables_alone(debian15: Cluster) -> None:
    overrides = "snapshot.select.statement.overrides"
    rules = {
        "snapshot.mode": "initial",
        overrides: "public.a,public.b",
        f"{overrides}.public.a": "select * from a where id < 3 order by id desc;",
        f"{overrides}.public.b": "select id, upper(v) as v from b",
        # Not in the list of tables, so it is of no effect.
        f"{overrides}.public.t": "select * from t where false",
    }
    tables = [f"create table {name} (id int primary key, v text)" for name in ("a", "b", "t")]
    rows = [f"insert into {name} values (1, 'x'), (2, 'y'), (3, 'z')" for name in ("a", "b", "t")]
    with capture(debian15, rules, *tables, *rows) as one:
        records = one.run("insert into a values (4, 'streamed')")
    got = [(record["topic"][-1], *told(record)[3].values()) for record in records]
    assert got[:5] == [("a", 2, "y"), ("a", 1, "x"), ("b", 1, "X"), ("b", 2, "Y"), ("b", 3, "Z")]
    assert got[5:] == [("t", 1, "x"), ("t", 2, "y"), ("t", 3, "z"), ("a", 4, "streamed")]


def test_tables_that_are_not_to_be_read_are_streamed_all_the_same(debian15: Cluster) -> None:
    rules = {"snapshot.mode": "initial", "snapshot.include.collection.list": "public.b"}
    tables = [f"create table {name} (id int primary key)" for name in "ab"]
    with capture(debian15, rules, *tables, "insert into a values (1)", "insert into b values (1)") as one:
        records = one.run("insert into a values (2)")
    assert [(record["topic"][-1], told(record)[0], told(record)[1]["id"]) for record in records] == [
        ("b", "r", 1),
        ("a", "c", 2),
    ]


@pytest.mark.parametrize("mode", ["shared", "none"])
def test_the_locking_mode_says_whether_tables_are_locked_and_the_timeout_for_how_long_to_wait(
    debian15: Cluster, mode: str
) -> None:
    rules = {
        "snapshot.mode": "always",
        "snapshot.locking.mode": mode,
        "snapshot.lock.timeout.ms": "300",
        # Read without a look at the table itself, which would wait for whoever alters it.
        "snapshot.select.statement.overrides": "public.t",
        "snapshot.select.statement.overrides.public.t": "select 7 as id, 'x' as v",
    }
    with capture(debian15, rules, TABLE) as one:
        first = one.run()
        with debian15.connect(one.database) as altering:
            altering.execute("begin; lock table t in access exclusive mode")
            started = time.monotonic()
            if mode == "none":
                assert len(one.run()) == 2 * len(first)
            else:
                with pytest.raises(TransientError, match=r"(?i)lock"):
                    one.run()
                assert 0.3 <= time.monotonic() - started < patient(20)
            altering.execute("rollback")
        assert [told(record)[1]["id"] for record in one.run()] == [7] * (2 if mode == "shared" else 3)


@pytest.mark.parametrize("mode", ["serializable", "repeatable_read", "read_committed", "read_uncommitted"])
def test_all_tables_are_read_at_one_point_whatever_the_isolation_mode(debian15: Cluster, mode: str) -> None:
    overrides = "snapshot.select.statement.overrides"
    rules = {
        "snapshot.mode": "initial",
        "table.include.list": "public.a,public.b",
        "snapshot.isolation.mode": mode,
        overrides: "public.a",
        f"{overrides}.public.a": "select a.id from a, pg_sleep(1.5)",
    }
    tables = [f"create table {name} (id int primary key)" for name in "ab"]
    with capture(debian15, rules, *tables, "insert into a values (1)", "insert into b values (1)") as one:
        reading = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"

        def meanwhile() -> None:
            wait_until(lambda: one_row(debian15, one.database, reading) > 0, 20, "the reading of a", pause=0.05)
            one.sql("insert into b values (2)")

        with ThreadPoolExecutor(1) as beside:
            ending = beside.submit(meanwhile)
            # A part, so that what came meanwhile is streamed before it ends.
            records = one.run("select 1")
            ending.result(patient(30))
    assert [(record["topic"][-1], *told(record)[:2]) for record in records] == [
        ("a", "r", {"id": 1}),
        ("b", "r", {"id": 1}),
        ("b", "c", {"id": 2}),
    ]


def test_the_snapshot_waits_for_its_delay(debian15: Cluster) -> None:
    rules = {"snapshot.mode": "initial_only", "snapshot.delay.ms": "2500"}
    with capture(debian15, rules, TABLE, "insert into t values (1, 'a')") as one, ThreadPoolExecutor(1) as beside:
        began = time.time()
        there = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"

        def meanwhile() -> None:
            wait_until(lambda: one_row(debian15, one.database, there) > 0, 20, "the connector's connection")
            one.sql("insert into t values (2, 'b')")

        ending = beside.submit(meanwhile)
        with one.running():
            pass
        ending.result(patient(30))
        records = one.records()
    assert [told(record)[1]["id"] for record in records] == [1, 2]
    assert min(record["value"]["payload"]["source"]["ts_ms"] for record in records) >= (began + 2.5) * 1000


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ({}, ""),
        ({"snapshot.data": "true"}, "r"),
        # The columns are read from the catalogue at each start: these two change nothing.
        ({"snapshot.data": "true", "snapshot.schema": "true", "snapshot.on.schema.error": "true"}, "r"),
        ({"snapshot.schema": "true", "snapshot.on.schema.error": "true", "start.stream": "true"}, "c"),
    ],
    ids=["none", "data", "data and columns", "columns and stream"],
)
def test_without_the_switch_for_the_stream_the_run_ends_after_what_was_to_be_read(
    debian15: Cluster, switches: dict[str, str], expected: str
) -> None:
    rules = {"snapshot.mode": "configuration_based"} | {BASED + name: value for name, value in switches.items()}
    with capture(debian15, rules, TABLE, "insert into t values (1, 'a')") as one:
        if "start.stream" in switches:
            records = one.run("insert into t values (2, 'b')")
        else:
            with one.running() as running:
                running.wait_for_end()
            records = one.records()
    assert [told(record)[0] for record in records] == list(expected)


class OnceAndNoMore(AtEachLaterStart):
    """A snapshot mode of the user's own: the first start reads, nothing is ever streamed."""

    def should_snapshot_data(self, offset_exists: bool, snapshot_in_progress: bool) -> bool:
        return not offset_exists

    def should_stream(self) -> bool:
        return False


def test_a_mode_of_ones_own_may_read_and_never_stream(debian15: Cluster) -> None:
    rules = {"snapshot.mode": "custom", "snapshot.mode.custom.name": f"{__name__}.OnceAndNoMore"}
    with capture(debian15, rules, TABLE, "insert into t values (1, 'a')") as one:
        for _ in range(2):
            with one.running() as running:
                running.wait_for_end()
        assert [told(record)[0] for record in one.records()] == ["r"]


def test_heartbeats_beat_and_run_their_query(debian15: Cluster) -> None:
    beat = {"heartbeat.interval.ms": "100", "heartbeat.action.query": "insert into beats default values"}
    rules = {**beat, "table.include.list": "public.t"}
    with capture(debian15, rules, TABLE, "create table beats (at timestamptz default now())") as one:

        def beats() -> list[Record]:
            return [record for record in one.records() if record["topic"] == "__debezium-heartbeat.fulfillment"]

        with one.running():
            wait_until(lambda: len(beats()) >= 3, 30, "three beats")
            count = "select count(*) from beats"
            wait_until(lambda: one_row(debian15, one.database, count) >= 3, 30, "their queries")
        assert beats()[0]["key"]["payload"] == {"serverName": "fulfillment"}


def test_logical_messages_come_in_the_binary_mode_and_by_their_prefix(debian15: Cluster) -> None:
    rules = {"binary.handling.mode": "hex", "message.prefix.exclude.list": "secret.*"}
    with capture(debian15, rules, TABLE) as one:
        records = one.run(
            [
                "select pg_logical_emit_message(true, 'news', 'hi')",
                "select pg_logical_emit_message(false, 'News', 'ho')",
                "select pg_logical_emit_message(true, 'secret1', 'x')",
            ]
        )
    payloads = [record["value"]["payload"] for record in records]
    assert [payload["message"] for payload in payloads] == [
        {"prefix": "news", "content": "6869"},
        {"prefix": "News", "content": "686f"},
    ]
    assert [payload["source"]["txId"] is None for payload in payloads] == [False, True]


def test_the_slots_xmin_is_shown_when_asked_for(debian15: Cluster) -> None:
    with capture(debian15, {"xmin.fetch.interval.ms": "10"}, TABLE) as one:
        [record] = one.run("insert into t values (1, 'a')")
    assert record["value"]["payload"]["source"]["xmin"] > 0


def test_counts_of_a_transaction_leave_out_what_is_filtered_and_count_a_key_change_twice(debian15: Cluster) -> None:
    rules = {"provide.transaction.metadata": "true", "table.exclude.list": "public.hidden"}
    with capture(debian15, rules, TABLE, "create table hidden (id int)") as one:
        records = one.run("insert into t values (1, 'a'); insert into hidden values (1); update t set id = 2")
    end = records[-1]["value"]["payload"]
    assert (end["status"], end["event_count"]) == ("END", 3)
    assert end["data_collections"] == [{"data_collection": "public.t", "event_count": 3}]


UNREADABLE = ("create table n (id int primary key, n numeric(5, 2))", "insert into n values (1, 'NaN'), (2, 1)")


@pytest.mark.parametrize(("mode", "warned"), [("warn", True), ("skip", False)])
def test_a_value_that_cannot_be_converted_is_left_unset(
    debian15: Cluster, mode: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        capture(debian15, {"event.converting.failure.handling.mode": mode}, UNREADABLE[0]) as one,
        caplog.at_level(logging.WARNING),
    ):
        records = one.run(UNREADABLE[1])
    assert [told(record)[3]["n"] is None for record in records] == [True, False]
    assert ("Column n of public.n" in caplog.text) is warned


def test_a_value_that_cannot_be_converted_ends_the_run_if_configured(debian15: Cluster) -> None:
    rules = {"event.converting.failure.handling.mode": "fail", "event.processing.failure.handling.mode": "fail"}
    with (
        capture(debian15, rules, UNREADABLE[0]) as one,
        pytest.raises(ConversionError, match=r"Column n of public\.n .* at LSN 0/"),
    ):
        one.run(UNREADABLE[1])


@pytest.mark.parametrize(("mode", "warned"), [("warn", True), ("skip", False)])
def test_an_event_that_cannot_be_processed_is_skipped_if_configured(
    debian15: Cluster, mode: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {"event.converting.failure.handling.mode": "fail", "event.processing.failure.handling.mode": mode}
    with capture(debian15, rules, UNREADABLE[0]) as one, caplog.at_level(logging.WARNING):
        records = one.run(UNREADABLE[1])
    assert [told(record)[1] for record in records] == [{"id": 2}]
    assert ("The event of public.n at LSN 0/" in caplog.text) is warned


@pytest.mark.parametrize(("mode", "captured"), [("all_tables", "ab"), ("filtered", "a"), ("no_tables", "")])
def test_publications_are_created_as_configured(debian15: Cluster, mode: str, captured: str) -> None:
    rules = {"publication.autocreate.mode": mode, "table.include.list": "public.a"}
    with capture(debian15, rules, "create table a (id int primary key)", "create table b (id int primary key)") as one:
        one.run()
        rows = debian15.execute(one.database, "select tablename from pg_publication_tables order by 1")
    assert "".join(row[0] for row in rows) == captured


def test_a_missing_publication_is_reported_if_none_may_be_created(debian15: Cluster) -> None:
    rules = {"publication.autocreate.mode": "disabled"}
    with capture(debian15, rules, TABLE) as one, pytest.raises(SourceError, match="There is no publication"):
        one.run()


def test_the_origin_is_shown_by_its_transaction_and_by_messages_behind_it(debian15: Cluster) -> None:
    with capture(debian15, {}, TABLE, "select pg_replication_origin_create('@DB@')") as one:
        records = one.run(
            "insert into t values (1, 'a')",
            [
                f"select pg_replication_origin_session_setup('{one.database}')",
                "begin",
                "select pg_replication_origin_xact_setup('0/ABCD', '2020-01-01')",
                "insert into t values (2, 'b')",
                "commit",
                "select pg_logical_emit_message(false, 'm', '')",
            ],
            "insert into t values (3, 'c')",
        )
        debian15.drop_origin(one.database)
    sources = [record["value"]["payload"]["source"] for record in records]
    assert [source["origin"] for source in sources] == [None, "DBNAME", "DBNAME", None]
    assert [source["origin_lsn"] for source in sources] == [None, 0xABCD, 0xABCD, None]

"""Slots: made, looked at, refused for each reason with its own words, dropped, advanced."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from cdc_core.errors import ConfigError, PluginError, SourceError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection, connect
from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.postgres.replication import slot
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.server import wal_end
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.waits import patient, wait_until

pytestmark = pytest.mark.postgres


@pytest.fixture
def options(each_pg: Cluster) -> Iterator[PostgresOptions]:
    database = each_pg.database("slot")
    each_pg.execute(database, "create table t (id int primary key)")
    each_pg.execute(database, f'create publication "{database}" for all tables')
    yield options_for(each_pg, database)
    each_pg.drop_database(database)


@pytest.fixture
def connection(options: PostgresOptions) -> Iterator[Connection]:
    with connect(options) as opened:
        yield opened


def make(options: PostgresOptions) -> slot.CreatedSlot:
    with connect(options, replication=True) as replication:
        return slot.create(replication, options.slot_name)


def test_a_slot_with_two_phase_is_refused_until_it_is_taken_from_it(
    options: PostgresOptions, connection: Connection
) -> None:
    """The server sends what is prepared at PREPARE, and not again: a stream of such a slot would not be complete."""
    name = options.slot_name
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, true)", (name,))
    with pytest.raises(SourceError, match="was made with two_phase") as refused:
        slot.check_usable(slot.inspect(connection, name), options)
    command = re.search(r"run (ALTER_REPLICATION_SLOT .*\)) in psql", refused.value.remedy)
    assert command is not None
    if connection.info.server_version >= 180000:
        with connect(options, replication=True) as replication:
            replication.execute(command[1])
        slot.check_usable(slot.inspect(connection, name), options)
    connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def test_a_new_slot_exports_the_snapshot_of_its_consistent_point(
    each_pg: Cluster, options: PostgresOptions, connection: Connection
) -> None:
    each_pg.execute(options.database_dbname, "insert into t values (1)")
    with connect(options, replication=True) as replication:
        created = slot.create(replication, options.slot_name)
        each_pg.execute(options.database_dbname, "insert into t values (2)")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{created.snapshot_name}'")
        assert connection.execute("SELECT id FROM public.t").fetchall() == [(1,)]
        connection.execute("ROLLBACK")
    found = slot.inspect(connection, options.slot_name)
    assert (found.exists, found.plugin, found.database) == (True, "pgoutput", options.database_dbname)
    assert found.confirmed_lsn == created.consistent_point
    assert found.wal_status == "reserved"
    assert not found.is_lost
    slot.check_usable(found, options)


def test_a_missing_slot_is_no_error_and_dropping_it_does_nothing(
    options: PostgresOptions, connection: Connection
) -> None:
    found = slot.inspect(connection, options.slot_name)
    assert found == slot.SlotInfo(options.slot_name)
    slot.check_usable(found, options)
    assert slot.drop(connection, options.slot_name) is False


def test_a_slot_that_exists_is_not_made_again(options: PostgresOptions) -> None:
    make(options)
    with pytest.raises(SourceError, match="exists already"):
        make(options)


@pytest.mark.parametrize("name", ["", "Upper", "has-dash", "x" * 64, "ümlaut"])
def test_a_name_that_the_server_would_refuse_is_refused_before_connecting(name: str) -> None:
    with pytest.raises(ConfigError, match=r"slot\.name"):
        slot.validate_slot_name(name)


def test_a_slot_in_use_is_named_with_the_pid_of_its_user(options: PostgresOptions, connection: Connection) -> None:
    make(options)
    with ReplicationStream(options):
        pid = wait_until(lambda: slot.inspect(connection, options.slot_name).active_pid)
        with pytest.raises(TransientError, match=f"in use by the server process with PID {pid}"):
            slot.check_usable(slot.inspect(connection, options.slot_name), options)
        with pytest.raises(TransientError, match=f"PID {pid}"):
            slot.drop(connection, options.slot_name, seconds=0.2)
        with pytest.raises(TransientError, match=f"PID {pid}"):
            slot.advance(connection, options.slot_name, wal_end(connection))


def test_waiting_for_a_slot_tries_as_often_as_configured(options: PostgresOptions, connection: Connection) -> None:
    make(options)
    stream = ReplicationStream(options)
    wait_until(lambda: slot.inspect(connection, options.slot_name).active)
    started = time.monotonic()
    with pytest.raises(TransientError):
        slot.wait_until_free(connection, replace(options, slot_max_retries=3, slot_retry_delay_ms=100))
    assert 0.3 <= time.monotonic() - started < patient(30)
    threading.Timer(0.3, stream.close).start()
    found = slot.wait_until_free(connection, replace(options, slot_max_retries=50, slot_retry_delay_ms=100))
    assert not found.active


def test_a_slot_of_another_plugin_or_kind_is_refused(options: PostgresOptions, connection: Connection) -> None:
    connection.execute("SELECT pg_create_physical_replication_slot(%s)", (options.slot_name,))
    with pytest.raises(SourceError, match="physical"):
        slot.check_usable(slot.inspect(connection, options.slot_name), options)
    slot.drop(connection, options.slot_name)
    make(options)
    wanted = replace(options, plugin_name=OutputPlugin.DECODERBUFS)
    with pytest.raises(SourceError, match=r"uses output plugin pgoutput, but plugin\.name is decoderbufs"):
        slot.check_usable(slot.inspect(connection, options.slot_name), wanted)


def test_a_slot_of_another_database_is_refused(options: PostgresOptions, connection: Connection) -> None:
    make(options)
    with pytest.raises(SourceError, match="belongs to database"):
        slot.check_usable(slot.inspect(connection, options.slot_name), replace(options, database_dbname="another"))


def test_a_plugin_that_is_not_installed_is_named(options: PostgresOptions) -> None:
    with (
        connect(options, replication=True) as replication,
        pytest.raises(PluginError, match="output plug-in nosuch"),
    ):
        slot.create(replication, options.slot_name, "nosuch")


def test_an_open_transaction_holds_creation_up_only_so_long_and_nothing_is_left(
    each_pg: Cluster, options: PostgresOptions, connection: Connection
) -> None:
    with each_pg.connect(options.database_dbname) as holdup:
        holdup.execute("BEGIN")
        holdup.execute("INSERT INTO t VALUES (9)")
        with (
            connect(options, replication=True) as replication,
            pytest.raises(TransientError, match="took longer than 1 s"),
        ):
            slot.create(replication, options.slot_name, seconds=1)
    assert not slot.inspect(connection, options.slot_name).exists


def test_an_unused_slot_can_be_advanced(each_pg: Cluster, options: PostgresOptions, connection: Connection) -> None:
    make(options)
    each_pg.execute(options.database_dbname, "insert into t values (1)")
    target = wal_end(connection)
    reached = slot.advance(connection, options.slot_name, target)
    assert reached >= target - 64
    assert slot.inspect(connection, options.slot_name).confirmed_lsn == reached


def test_a_drop_waits_for_the_walsender_to_go(options: PostgresOptions, connection: Connection) -> None:
    make(options)
    ReplicationStream(options).close()
    assert slot.drop_on_stop(connection, options) is False
    assert slot.drop_on_stop(connection, replace(options, slot_drop_on_stop=True)) is True
    assert not slot.inspect(connection, options.slot_name).exists


def test_a_lost_slot_is_distinguished_and_can_no_longer_be_streamed() -> None:
    cluster = Cluster.start(
        "embedded18", {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    )
    try:
        database = cluster.database("lost")
        cluster.execute(database, "create table t (a text)")
        cluster.execute(database, f'create publication "{database}" for all tables')
        options = options_for(cluster, database)
        make(options)
        with connect(options) as connection:

            def is_lost() -> bool:
                cluster.execute(database, "insert into t select repeat('x', 1000) from generate_series(1, 20000)")
                cluster.execute(database, "select pg_switch_wal()")
                cluster.execute(database, "checkpoint")
                return slot.inspect(connection, options.slot_name).is_lost

            wait_until(is_lost, 60)
            found = slot.inspect(connection, options.slot_name)
            assert found.invalidation_reason == "wal_removed"
            with pytest.raises(SourceError, match="is lost") as caught:
                slot.check_usable(found, options)
            assert "pg_drop_replication_slot" in caught.value.remedy
        with pytest.raises(SourceError, match="can no longer be read"):
            ReplicationStream(options)
    finally:
        cluster.stop()


def test_without_logical_wal_creation_says_which_setting_to_change() -> None:
    cluster = Cluster.start("embedded18", {"wal_level": "replica"})
    try:
        options = options_for(cluster, "postgres", slot_name="s")
        with connect(options, replication=True) as replication, pytest.raises(SourceError, match="wal_level"):
            slot.create(replication, "s")
    finally:
        cluster.stop()


def test_a_lack_of_slots_is_reported_with_the_setting_to_raise() -> None:
    cluster = Cluster.start("embedded18", {"max_replication_slots": 1})
    try:
        options = options_for(cluster, "postgres", slot_name="one")
        make(options)
        with pytest.raises(SourceError) as caught:
            make(replace(options, slot_name="two"))
        assert "max_replication_slots" in caught.value.remedy
    finally:
        cluster.stop()


def test_a_failover_slot_is_made_from_version_17_on(embedded18: Cluster) -> None:
    database = embedded18.database("failover")
    options = options_for(embedded18, database)
    with connect(options, replication=True) as replication:
        slot.create(replication, options.slot_name, failover=True)
    row = embedded18.execute(database, "select failover from pg_replication_slots where slot_name = %s", [database])
    assert row == [(True,)]
    embedded18.drop_database(database)


def test_the_wal_end_is_one_that_a_stream_reaches(each_pg: Cluster, options: PostgresOptions) -> None:
    make(options)
    with connect(options) as connection, ReplicationStream(options) as stream:
        for count in (1, 3, 40):
            each_pg.execute(
                options.database_dbname, f"insert into t select {count * 1000} + g from generate_series(1, {count}) g"
            )
            target = wal_end(connection)
            assert isinstance(target, Lsn)

            def reached(target: Lsn = target) -> bool:
                stream.read(10_000, 1 << 20, 0.05)
                return stream.wal_end >= target

            wait_until(reached, 20, f"LSN {target}")


def test_errors_hold_no_cause_with_libpqs_text(options: PostgresOptions, connection: Connection) -> None:
    with pytest.raises(SourceError) as caught:
        ReplicationStream(options)
    assert "does not exist" in caught.value.message
    assert not isinstance(caught.value.__cause__, psycopg.Error)

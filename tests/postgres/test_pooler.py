"""A real pooler between us and the server: settings are proven after the connection stands, or the run is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from cdc_core.errors import SourceError
from cdc_core.option import Secret
from cdc_core.postgres.connection import connect, connect_with, connection_string
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.preflight.check import run_checks
from cdc_core.postgres.preflight.script import REPLICATION
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.postgres.settings import is_pooled
from tests.support.cluster import Cluster
from tests.support.pooler import PROGRAM, Pooler
from tests.support.postgres_options import options_for
from tests.support.waits import patient

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed (tools/install_servers.sh)"),
]

VALUES = "SELECT d, f, b, i, t FROM public.texts"
TEXTS = b"2024-02-03\t0.3333333333333333\t\\\\x00ff\t1 day 02:03:04\t2024-02-03 04:05:06+00\n"


@pytest.fixture(scope="module")
def options(pg: Cluster) -> PostgresOptions:
    """A role whose sessions show everything differently, and which sees five of twenty rows."""
    database = pg.database("pooled")
    role = f"reader_{database}"
    pg.execute(
        database,
        "create table public.texts (d date, f float8, b bytea, i interval, t timestamptz);"
        "insert into public.texts values ('2024-02-03', 1 / 3.0, decode('00ff', 'hex'), '1 day 02:03:04',"
        " '2024-02-03 04:05:06+00'); create table public.hidden (id int);"
        "insert into public.hidden select generate_series(1, 20); alter table public.hidden enable row level security;"
        f"create policy few on public.hidden using (id <= 5); create role {role} login replication password 'pw';"
        f"grant select on all tables in schema public to {role}",
    )
    for setting in (
        *("datestyle = 'SQL, DMY'", "intervalstyle = iso_8601", "timezone = 'Asia/Tokyo'", "extra_float_digits = 0"),
        *("bytea_output = escape", "row_security = on", "search_path = nowhere"),
    ):
        pg.execute("postgres", f"alter role {role} set {setting}")
    return replace(options_for(pg, database), database_user=role, database_password=Secret("pw"))


def roles_of(options: PostgresOptions) -> dict[str, str]:
    return {options.database_user: options.database_password.reveal()}


@pytest.fixture(scope="module")
def in_sessions(pg: Cluster, options: PostgresOptions) -> Iterator[PostgresOptions]:
    """By way of a pooler that gives each client a session of its own."""
    with Pooler(pg, roles_of(options)) as pooler:
        yield replace(options, database_port=pooler.port)


def test_a_pooler_in_session_mode_changes_no_value_and_hides_no_row(
    options: PostgresOptions, in_sessions: PostgresOptions
) -> None:
    for number in range(3):  # what is left of a session must not be taken for another's
        with connect(in_sessions) as connection, connect_with(connection_string(in_sessions)) as second:
            assert is_pooled(connection) and is_pooled(second), number
        reader = ChunkConnection(in_sessions)
        assert reader.read(VALUES).rows == (TEXTS,)
        with pytest.raises(SourceError, match="Row-level security would hide rows"):
            reader.read("SELECT id FROM public.hidden")
    with connect(options) as direct:
        assert not is_pooled(direct)


def test_a_replication_connection_that_the_pooler_refuses_is_reported_as_such(in_sessions: PostgresOptions) -> None:
    with pytest.raises(SourceError, match="is a pooler, which refuses this connection") as caught:
        connect(in_sessions, replication=True)
    assert "Set database.hostname and database.port to the server itself" in caught.value.remedy
    (refused,) = [each for each in run_checks(in_sessions, lambda name: True) if each.check == REPLICATION]
    assert refused.found == caught.value.message


@pytest.mark.parametrize("setting", [{}, {"server_round_robin": 1}, {"ignore_startup_parameters": "options, extra"}])
def test_a_pooler_in_transaction_mode_is_refused(
    pg: Cluster, options: PostgresOptions, setting: dict[str, str | int]
) -> None:
    with Pooler(pg, roles_of(options), pool_mode="transaction", **setting) as pooler:
        pooled = replace(options, database_port=pooler.port)
        with pytest.raises(SourceError) as caught, connect(pooled), connect(pooled):
            pass
        assert "one session of the server to several connections" in caught.value.message
        assert "DateStyle" in caught.value.message and "row_security" in caught.value.message
        assert f"127.0.0.1:{pooler.port}" in caught.value.message and "pool_mode=session" in caught.value.remedy
        findings = run_checks(pooled, lambda name: True)
        assert [each.found for each in findings if not each.ok] == [caught.value.message]


def test_a_session_that_is_exchanged_behind_a_connection_is_noticed_before_a_row_is_read(
    pg: Cluster, options: PostgresOptions
) -> None:
    """Others use the pool at the same time, so that a connection that stands alone is given other sessions."""
    with Pooler(pg, roles_of(options), pool_mode="transaction") as pooler, ExitStack() as stack:
        pooled = replace(options, database_port=pooler.port)
        reader = ChunkConnection(pooled)
        stack.callback(reader.close)
        assert reader.read(VALUES).rows == (TEXTS,)
        # One transaction of another client takes the session that the reader has set.
        others = [
            stack.enter_context(pg.connect(options.database_dbname, port=pooler.port, user=options.database_user,
                                           password="pw"))
            for _ in range(2)
        ]  # fmt: skip
        others[0].execute("begin")
        others[0].execute("select")
        others[1].execute("select")  # another session comes into being, as the role's sessions are
        with pytest.raises(SourceError, match=r"has \w+ = .* after it was set to") as caught:
            reader.read(VALUES)
        assert "pool_mode=session" in caught.value.remedy
        others[0].execute("rollback")


def test_connections_of_many_threads_at_once_are_not_taken_for_shared(in_sessions: PostgresOptions) -> None:
    errors: list[BaseException] = []

    def opened() -> None:
        try:
            with connect(in_sessions) as connection:
                connection.execute("SELECT 1")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=opened) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(60))
    assert errors == []

"""Connections: the settings that fix the text of values, and what a refused one says."""

from __future__ import annotations

import pickle
import socket
from dataclasses import replace

import pytest

from cdc_core.errors import CdcError, SourceError, TransientError
from cdc_core.option import Secret
from cdc_core.postgres.connection import connect, connect_with, connection_string
from cdc_core.postgres.options import PostgresOptions, SslMode
from cdc_core.postgres.settings import use_roles_settings
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

SESSION = {
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "lc_monetary": "C",
}

TIME_OUTS = {"statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout"}


@pytest.fixture(scope="module")
def options(pg: Cluster) -> PostgresOptions:
    database = pg.database("connect")
    # What a database may be set to, so that the connection has something to overrule.
    for setting in (
        "datestyle = 'German'",
        "timezone = 'Asia/Tokyo'",
        "bytea_output = 'escape'",
        "intervalstyle = 'iso_8601'",
        "lc_monetary = 'C.UTF-8'",
    ):
        pg.execute("postgres", f'alter database "{database}" set {setting}')
    return options_for(pg, database)


@pytest.mark.parametrize("replication", [False, True])
def test_the_text_of_values_does_not_depend_on_the_databases_settings(
    options: PostgresOptions, replication: bool
) -> None:
    with connect(options, replication=replication) as connection:
        for name, value in SESSION.items():
            row = connection.execute(f"SHOW {name}").fetchone()
            assert row == (value,), name


def test_a_worker_connects_with_a_string_that_shows_no_password(options: PostgresOptions) -> None:
    target = pickle.loads(pickle.dumps(connection_string(options)))
    assert options.database_password.reveal() not in repr(target) + str(target) + f"{target}"
    with connect_with(target) as connection:
        assert connection.execute("SHOW TimeZone").fetchone() == ("UTC",)
        assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_no_time_out_of_a_database_ends_a_connection(each_pg: Cluster) -> None:
    database = each_pg.database("timeouts")
    known = each_pg.execute(database, "select name from pg_settings")
    mine = {name for (name,) in known} & TIME_OUTS
    for name in mine:
        each_pg.execute("postgres", f'alter database "{database}" set {name} = 60000')
    with connect(options_for(each_pg, database), statement_timeout_ms=0) as connection:
        assert {name: connection.execute(f"SHOW {name}").fetchone() for name in mine} == dict.fromkeys(mine, ("0",))


def test_a_socket_folder_and_an_ipv6_address_serve_as_host(pg: Cluster, options: PostgresOptions) -> None:
    with connect(replace(options, database_hostname=str(pg.sockets))) as connection:
        assert connection.execute("SELECT inet_server_addr()").fetchone() == (None,)
    if not _has_ipv6():
        return
    with connect(replace(options, database_hostname="[::1]")) as connection:
        row = connection.execute("SELECT host(inet_server_addr())").fetchone()
        assert row == ("::1",)


def test_initial_statements_run_on_ordinary_connections_and_may_hold_a_percent_sign(options: PostgresOptions) -> None:
    wished = replace(options, database_initial_statements=("SET search_path TO 'a%s'", "SET work_mem = '7MB'"))
    with connect(wished) as connection:
        assert connection.execute("SHOW work_mem").fetchone() == ("7MB",)
        assert connection.execute("SHOW search_path").fetchone() == ('"$user", public',)
        use_roles_settings(connection)
        assert connection.execute("SHOW search_path").fetchone() == ('"a%s"',)
    with connect(wished, replication=True) as connection:
        assert connection.execute("SHOW work_mem").fetchone() != ("7MB",)


def test_texts_of_values_depend_on_no_setting_of_others(options: PostgresOptions) -> None:
    texts = ("DateStyle = German", "IntervalStyle = iso_8601", "TimeZone = 'Asia/Kolkata'", "extra_float_digits = -5")
    others = ("bytea_output = escape", "client_encoding = LATIN1", "quote_all_identifiers = on", "row_security = on")
    initial = tuple(f"SET {setting}" for setting in (*texts, *others))
    kept = ("DateStyle", "IntervalStyle", "TimeZone", "extra_float_digits", "bytea_output", "client_encoding",
            "quote_all_identifiers", "row_security", "idle_session_timeout")  # fmt: skip
    with (
        connect(options) as plain,
        connect(replace(options, database_initial_statements=initial)) as set_otherwise,
        connect_with(connection_string(replace(options, database_initial_statements=initial))) as of_a_worker,
        connect(options, replication=True) as replication,
    ):
        for name in kept:
            wanted = plain.execute(f"SHOW {name}").fetchone()
            for connection in (set_otherwise, of_a_worker, replication):
                assert connection.execute(f"SHOW {name}").fetchone() == wanted, name


def test_a_wrong_initial_statement_is_named_as_such(options: PostgresOptions) -> None:
    with pytest.raises(SourceError, match=r"database\.initial\.statements"):
        connect(replace(options, database_initial_statements=("SELEC 1",)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"database_password": Secret("no")}, (SourceError, "refuses the password of role", "database.password")),
        ({"database_password": Secret()}, (SourceError, "refuses the password of role", "database.password")),
        ({"database_user": "nobody"}, (SourceError, 'password of role "nobody"', "database.user")),
        ({"database_hostname": "no-such-host.invalid"}, (CdcError, "no-such-host.invalid", "")),
        ({"database_dbname": "nowhere"}, (SourceError, 'has no database "nowhere"', "database.dbname")),
        ({"database_sslmode": SslMode.REQUIRE}, (SourceError, "does not support TLS", "database.sslmode")),
        (
            {"database_hostname": "/nowhere"},
            (TransientError, "No server is listening at socket /nowhere", "database.hostname"),
        ),
    ],
)
@pytest.mark.parametrize("replication", [False, True])
def test_a_refused_connection_says_what_and_what_to_do(
    options: PostgresOptions, change: dict[str, object], expected: tuple[type[CdcError], str, str], replication: bool
) -> None:
    kind, found, remedy = expected
    wrong = replace(options, **change)  # type: ignore[arg-type]
    with pytest.raises(kind) as caught:
        connect(wrong, replication=replication)
    assert found in caught.value.message
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)
    assert options.database_password.reveal() not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_port_where_nobody_listens_is_a_fault_that_may_pass(options: PostgresOptions) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(TransientError, match=r"No server is listening at 127\.0\.0\.1:"):
            connect(replace(options, database_port=taken.getsockname()[1]))


def test_a_server_that_accepts_and_says_nothing_is_given_up_in_time(options: PostgresOptions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with pytest.raises(TransientError, match="does not answer"):
            connect(replace(options, database_port=port, connection_validation_timeout_ms=2000))


def test_a_role_that_may_not_log_in_or_replicate_or_connect_is_reported(pg: Cluster, options: PostgresOptions) -> None:
    name = f"role_{options.database_dbname}"
    pg.execute("postgres", f"create role {name} nologin password 'pw'")
    poor = replace(options, database_user=name, database_password=Secret("pw"))
    with pytest.raises(SourceError, match="is not permitted to log in"):
        connect(poor)
    pg.execute("postgres", f"alter role {name} login")
    with pytest.raises(SourceError, match="is not permitted to start replication"):
        connect(poor, replication=True)
    pg.execute("postgres", f'revoke connect on database "{options.database_dbname}" from public')
    try:
        with pytest.raises(SourceError, match="is not permitted to connect to database"):
            connect(poor)
    finally:
        pg.execute("postgres", f'grant connect on database "{options.database_dbname}" to public')


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            return True
    except OSError:
        return False

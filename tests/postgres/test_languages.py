"""Servers whose messages are not in English: what is said and done about an error does not depend on its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_core.errors import CdcError, InUseError, PluginError, ServerBusyError, SourceError
from cdc_core.option import Secret
from cdc_core.postgres.connection import connect
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import slot
from cdc_core.postgres.replication.stream import ReplicationStream
from tests.support.cluster import Cluster
from tests.support.lake import lake_settings, write_properties
from tests.support.locales import server_with_locales
from tests.support.postgres_options import options_for
from tests.support.program import Program, program
from tests.support.waits import wait_until

pytestmark = pytest.mark.postgres

__all__ = ["program"]

# With the quotes of the language around names, a severity in other letters, and another order of words.
LANGUAGES = {"de_DE": "existiert nicht", "ru_RU": "не существует", "ja_JP": "存在しません"}


@pytest.fixture(scope="module")
def foreign() -> Iterator[Cluster]:
    """A server of two walsenders that can speak these languages."""
    with server_with_locales("debian15", *LANGUAGES, settings={"max_wal_senders": 2}) as cluster:
        yield cluster


@pytest.fixture(params=LANGUAGES)
def options(foreign: Cluster, request: pytest.FixtureRequest) -> Iterator[PostgresOptions]:
    """Of a server that speaks a language, which is proven."""
    database = foreign.database("language")
    foreign.execute("postgres", f"alter system set lc_messages = '{request.param}.utf8'")
    foreign.execute("postgres", "select pg_reload_conf()")

    def is_spoken() -> bool:
        with foreign.connect(database) as connection, pytest.raises(psycopg.Error) as caught:
            connection.execute("select * from nowhere")
        return LANGUAGES[request.param] in str(caught.value)

    wait_until(is_spoken, 20, f"messages in {request.param}")
    foreign.execute(database, f"create table t (id int primary key); create role {database} login password 'pw'")
    yield options_for(foreign, database)
    foreign.drop_database(database)


def test_a_refused_connection_says_what_and_what_to_do(foreign: Cluster, options: PostgresOptions) -> None:
    role = options.database_dbname
    poor: dict[str, Any] = {"database_user": role, "database_password": Secret("pw")}
    hba = foreign.data / "pg_hba.conf"
    rules = hba.read_text()

    def told(kind: type[CdcError], found: str, replication: bool = False, **change: Any) -> str:
        with pytest.raises(kind) as caught:
            connect(replace(options, **change), replication=replication).close()
        assert type(caught.value) is kind and found in caught.value.message, caught.value
        assert "Check the server's log" not in caught.value.remedy and "FATAL" not in caught.value.message
        return caught.value.remedy

    def set_up(statement: str) -> None:
        foreign.execute("postgres", statement.format(role=f'"{role}"'))

    for is_replication in (False, True):
        told(SourceError, "refuses the password of role", is_replication, database_password=Secret("no"))
        told(SourceError, "refuses the password of role", is_replication, database_user="nobody")
        told(SourceError, 'has no database "nowhere"', is_replication, database_dbname="nowhere")
    remedy = told(SourceError, "is not permitted to start replication", True, **poor)
    connect(replace(options, **poor)).close()
    foreign.execute(role, printed(remedy))
    connect(replace(options, **poor), replication=True).close()
    for statement, undo, kind, found in (
        ("alter role {role} nologin", "alter role {role} login", SourceError, "log in"),
        ("revoke connect on database {role} from public", "", SourceError, "is not permitted to connect to database"),
        ("alter role {role} connection limit 0", "alter role {role} connection limit -1", ServerBusyError, "no free"),
        ("alter database {role} allow_connections false", "alter database {role} allow_connections true", SourceError,
         "refuses the connection"),
    ):  # fmt: skip
        set_up(statement)
        if "allow_connections" not in statement:
            remedy = told(kind, found, **poor)
        else:
            with pytest.raises(kind, match=found):  # the rest of it is the server's
                connect(replace(options, **poor))
        set_up(undo or printed(remedy))
        connect(replace(options, **poor)).close()
    with connect(options, replication=True), connect(options, replication=True):
        told(ServerBusyError, "All WAL senders of the server", True)
    try:
        hba.write_text(f"host all {role} 127.0.0.1/32 reject\n{rules.replace('host ', '#')}")
        foreign.execute("postgres", "select pg_reload_conf()")
        wait_until(lambda: _is_refused(replace(options, **poor)), 20, "the server to read pg_hba.conf")
        told(SourceError, "has no entry that allows role", **poor)
        told(SourceError, "has no entry that allows role")
        hba.write_text(f"local all postgres trust\nlocal all all peer\nhost all all 127.0.0.1/32 trust\n{rules}")
        foreign.execute("postgres", "select pg_reload_conf()")
        wait_until(lambda: not _is_refused(replace(options, **poor)), 20, "the server to read pg_hba.conf")
        told(SourceError, "does not let role", database_user="nobody")
        told(SourceError, "refuses role", database_user="nobody", database_hostname=str(foreign.sockets))
    finally:
        hba.write_text(rules)
        foreign.execute("postgres", "select pg_reload_conf()")
        wait_until(lambda: _is_refused(replace(options, database_password=Secret("no"))), 20, "the rules of before")


def printed(remedy: str) -> str:
    """The statement that a remedy says to run."""
    statement = re.search(r"run (\w[^;]*;)", remedy)
    assert statement is not None, remedy
    return statement[1]


def _is_refused(options: PostgresOptions) -> bool:
    try:
        connect(options).close()
    except SourceError:
        return True
    return False


def test_a_stream_that_cannot_begin_or_continue_reports_the_cause(foreign: Cluster, options: PostgresOptions) -> None:
    impatient = replace(options, slot_max_retries=0, publication_name="late")
    with pytest.raises(SourceError, match=r"Slot .* does not exist"):
        ReplicationStream(impatient)
    with connect(options, replication=True) as replication:
        slot.create(replication, options.slot_name)
        with pytest.raises(SourceError, match="exists already"):
            slot.create(replication, options.slot_name)
        with pytest.raises(PluginError):
            slot.create(replication, "another", "nowhere")
    # The server has two WAL senders, and one ends a moment after its connection.
    senders = "select 1 from pg_stat_activity where backend_type = 'walsender'"
    wait_until(lambda: not foreign.execute("postgres", senders), 20, "the end of the WAL senders")
    with ReplicationStream(impatient), connect(options) as connection:
        pid = wait_until(lambda: slot.inspect(connection, options.slot_name).active_pid)
        with pytest.raises(InUseError, match=f"with PID {pid}\\."):
            ReplicationStream(impatient)
    wait_until(lambda: not foreign.execute("postgres", senders), 20, "the end of the WAL senders")
    foreign.execute(options.database_dbname, "insert into t values (1)")
    foreign.execute(options.database_dbname, "create publication late for all tables")
    with ReplicationStream(replace(options, publication_name="late")) as stream, pytest.raises(SourceError) as caught:
        wait_until(lambda: stream.read(1000, 1 << 20, 0.05) and False, 30, "the server's error")
    assert 'Publication "late" did not exist' in caught.value.message


@pytest.mark.parametrize("options", ["ru_RU"], indirect=True)
def test_a_run_of_a_role_without_replication_ends(
    foreign: Cluster, options: PostgresOptions, program: Program, tmp_path: Path
) -> None:
    database = options.database_dbname
    foreign.execute(database, f"grant select on t to {database}; create publication {database} for table t")
    role = {"database.user": database, "database.password": "pw", "publication.autocreate.mode": "disabled"}
    file = write_properties(tmp_path / "c.properties", foreign.properties(database, **role) | lake_settings(tmp_path))
    done = program.stream(file)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "is not permitted to start replication" in done.stderr and "trying again" not in done.stderr, done.stderr

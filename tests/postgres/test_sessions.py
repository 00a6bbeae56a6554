"""A claim that outlives its process at the server: ended by the next one, and by the server itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from cdc_core.errors import InUseError
from cdc_core.postgres import source as source_module
from cdc_core.postgres.connection import connect
from cdc_core.postgres.sessions import SessionFile, Sessions
from cdc_core.postgres.source import Source
from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.tables import TableSelection
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.proxy import Proxy
from tests.support.waits import wait_until

pytestmark = pytest.mark.postgres

_SESSIONS = "select count(*) from pg_stat_activity where datname = %s and application_name = 'wal2lake'"
_BLOCKED = "select 1 from pg_stat_activity where backend_type = 'walsender' and wait_event = 'WalSenderWriteData'"


class Claims:
    """Claims of one connector, each by a process of its own as far as the server and the file can tell."""

    def __init__(self, pg: Cluster, proxy: Proxy, folder: Path) -> None:
        self.pg, self.proxy, self.file = pg, proxy, folder / "sessions.json"
        self.database = pg.database("sessions")

    def source(self, *, through_proxy: bool = False, file: Path | None = None) -> Source:
        port = self.proxy.port if through_proxy else self.pg.port
        sessions = Sessions(SessionFile(file or self.file))
        options = options_for(self.pg, self.database, database_port=port)
        return Source(options, TableSelection(SelectionOptions()), None, sessions)

    def left(self) -> int:
        return int(self.pg.execute("postgres", _SESSIONS, [self.database])[0][0])


@pytest.fixture
def claims(pg: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Claims]:
    monkeypatch.setattr(source_module, "_CLAIM_SECONDS", 1.0)
    with Proxy(pg.host, pg.port) as proxy:
        (tmp_path / "state").mkdir(mode=0o700)  # as the connector's first run has left it
        yield Claims(pg, proxy, tmp_path / "state")


def stalled(claims: Claims) -> None:
    """A process that claims, whose line then carries nothing any more, and that ends."""
    before = claims.left()
    with claims.source(through_proxy=True) as first:
        first.claim("lake")
        claims.proxy.abandon()
    assert claims.left() > before, "the server was told of the end: nothing is tested"


def test_the_claim_of_a_process_that_has_ended_is_taken_over_at_once(claims: Claims) -> None:
    stalled(claims)
    with claims.source() as second:
        second.claim("lake")
        with pytest.raises(InUseError), claims.source(file=claims.file.with_name("other.json")) as other:
            other.claim()
        wait_until(lambda: claims.left() == 1, 20, "the end of the sessions but the second one's")


def test_the_claim_of_a_process_that_lives_is_not(claims: Claims) -> None:
    with claims.source(through_proxy=True) as first:
        first.claim("lake")
        claims.proxy.abandon()
        with pytest.raises(InUseError, match="Another run of wal2lake is using slot"), claims.source() as second:
            second.claim("lake")
        assert claims.left() >= 1
        assert json.loads(claims.file.read_text())["sessions"], "the second one has overwritten what the first wrote"


def test_a_walsender_that_cannot_send_is_ended(claims: Claims) -> None:
    """One pg_terminate_backend does not end it where its question to the client has filled the line.

    It asks after half of wal_sender_timeout, and would end by itself after the whole.
    """
    pg, slot = claims.pg, claims.database
    pg.execute(slot, "create table t (v text)")
    pg.execute(slot, "select pg_create_logical_replication_slot(%s, 'test_decoding')", [slot])
    pg.execute("postgres", f"alter database {slot} set wal_sender_timeout = '8s'")
    options = options_for(pg, slot, database_port=claims.proxy.port)
    file = SessionFile(claims.file)
    noted = Sessions(file)
    with file.locked(), closing(connect(options, replication=True)) as stream:
        noted.note(stream)
        stream.pgconn.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0".encode())
        claims.proxy.abandon()
        pg.execute(slot, "insert into t select repeat('x', 1000) from generate_series(1, 30000)")
        wait_until(lambda: pg.execute("postgres", _BLOCKED), 30, "a walsender that cannot send")
        pg.execute("postgres", "select pg_sleep(4.3)")
    with claims.source() as second:
        second.claim("lake")
        assert pg.execute(slot, "select active from pg_replication_slots where slot_name = %s", [slot]) == [(False,)]


@pytest.mark.parametrize("content", ["", "[]", '{"sessions": 1}', "{", '{"host": "elsewhere", "sessions": [[1, "x"]]}'])
def test_a_file_that_says_nothing_of_this_host_ends_nothing(claims: Claims, content: str) -> None:
    stalled(claims)
    sessions = json.loads(claims.file.read_text())["sessions"]
    if "elsewhere" in content:
        content = json.dumps({"host": "elsewhere", "sessions": sessions})
    claims.file.write_text(content)
    with pytest.raises(InUseError), claims.source() as second:
        second.claim("lake")


def test_another_session_under_the_same_process_id_is_not_ended(claims: Claims) -> None:
    with ExitStack() as stack:
        other = stack.enter_context(connect(options_for(claims.pg, claims.database)))
        found = json.dumps({"sessions": [[other.info.backend_pid, "2001-01-01 00:00:00+00"]]})
        stalled(claims)
        named = json.loads(claims.file.read_text())
        claims.file.write_text(json.dumps({**named, **json.loads(found)}))
        with pytest.raises(InUseError), claims.source() as second:
            second.claim("lake")
        assert other.execute("select 1").fetchone() == (1,)


def test_a_state_folder_that_cannot_be_written_does_not_matter(claims: Claims, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    with claims.source(file=blocked / "sessions.json") as source:
        source.claim("lake")


def test_a_renewed_source_keeps_its_claim_while_the_server_has_it(claims: Claims) -> None:
    claims.pg.execute(claims.database, "create type mood as enum ('sad'); create table t (id int primary key, m mood)")
    with claims.source() as first:
        first.claim("lake")
        assert [column.type.labels for column in first.tables()[0].columns] == [(), ("sad",)]
        claims.pg.execute(claims.database, "alter type mood add value 'glad'")
        assert first.renew()
        assert [column.type.labels for column in first.tables()[0].columns] == [(), ("sad", "glad")]
        with pytest.raises(InUseError), claims.source(file=claims.file.with_name("other.json")) as other:
            other.claim()
        pid, _ = json.loads(claims.file.read_text())["sessions"][0]
        claims.pg.execute("postgres", "select pg_terminate_backend(%s, 10000)", [pid])
        assert not first.renew()


@pytest.mark.parametrize("replication", [False, True])
def test_the_server_asks_whether_its_client_is_there(pg: Cluster, replication: bool) -> None:
    database = pg.database("probes")

    def shown(**changes: object) -> list[str]:
        with connect(options_for(pg, database, **changes), replication=replication) as connection:
            return [_shown(connection, f"tcp_keepalives_{name}") for name in ("idle", "interval", "count")]

    assert shown() == ["30", "10", "3"]
    assert shown(database_tcp_keep_alive=False)[0] != "30"


def _shown(connection: psycopg.Connection[tuple[object, ...]], name: str) -> str:
    row = connection.execute(f"show {name}".encode()).fetchone()
    assert row is not None
    return str(row[0])

"""The servers that other tests rely on."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from tests.support.cluster import PLUGIN_LIBRARIES, Cluster, ClusterError

pytestmark = pytest.mark.postgres


def test_a_server_is_ready_for_logical_replication_and_speaks_utf8_in_utc(each_pg: Cluster) -> None:
    database = each_pg.database("ready")
    settings = dict(each_pg.execute(database, "select name, setting from pg_settings"))
    assert settings["wal_level"] == "logical"
    assert int(settings["max_replication_slots"]) == 200
    assert settings["server_encoding"] == "UTF8"
    assert settings["TimeZone"] == "UTC"
    collation = each_pg.execute(database, "select datcollate from pg_database where datname = %s", [database])
    assert collation == [("C.UTF-8",)]


@pytest.mark.parametrize("server", ["debian15", "embedded18", "released17"])
def test_a_server_allows_the_plug_ins_where_it_has_a_setting_for_it(
    request: pytest.FixtureRequest, server: str
) -> None:
    cluster: Cluster = request.getfixturevalue(server)
    shown = cluster.execute("postgres", f"select current_setting('{PLUGIN_LIBRARIES}', true)")
    assert shown == [(cluster.settings.get(PLUGIN_LIBRARIES),)]
    assert shown == [(None,)] or {"pgoutput", "wal2json", "decoderbufs"} <= set(shown[0][0].split(", "))


def test_the_password_is_asked_for_over_tcp(each_pg: Cluster) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        each_pg.connect(password="wrong")
    with each_pg.connect() as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_script_runs_statement_by_statement(pg: Cluster, tmp_path: Path) -> None:
    database = pg.database("script")
    script = tmp_path / "s.sql"
    script.write_text("create table t (a int);\ninsert into t values (1);\ninsert into nowhere values (1);\n")
    with pytest.raises(ClusterError, match="nowhere"):
        pg.run_script(database, script)
    assert pg.execute(database, "select a from t") == [(1,)]


def test_a_statement_finds_nothing_of_the_sessions_of_earlier_ones(each_pg: Cluster) -> None:
    database, other = each_pg.database("apart"), each_pg.database("other")
    each_pg.execute(database, "set timezone = 'Asia/Tokyo'; create temp table t (a int); select pg_advisory_lock(7)")
    each_pg.execute(other, "select 1")
    assert each_pg.execute(database, "show timezone") == [("UTC",)]
    assert each_pg.execute(database, "select to_regclass('t'), count(*) from pg_locks where locktype = 'advisory'") == [
        (None, 0)
    ]
    each_pg.execute(database, "begin; create table t (a int)")
    assert each_pg.execute(database, "select to_regclass('t')") == [(None,)]
    with pytest.raises(psycopg.errors.DivisionByZero):
        each_pg.execute(database, "begin; select 1 / 0")
    each_pg.execute(database, f"alter database {database} set timezone = 'Asia/Tokyo'")
    assert each_pg.execute(database, "show timezone") == [("Asia/Tokyo",)]
    with each_pg.connect() as connection:
        ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
        assert connection.execute(ended, [database]).fetchone() != (0,)
    assert each_pg.execute(database, "select 1") == [(1,)]
    each_pg.execute("postgres", f"drop database {database}")


def test_data_survive_a_crash_and_a_stopped_server_has_no_process() -> None:
    cluster = Cluster.start("embedded18")
    try:
        database = cluster.database("keep")
        cluster.execute(database, "create table t as select 7 as a")
        cluster.restart(crash=True)
        assert cluster.execute(database, "select a from t") == [(7,)]
        pid, data = cluster.pid, cluster.data
    finally:
        cluster.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not data.exists()

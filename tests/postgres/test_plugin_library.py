"""A server that does not load the output plug-in: not allowed by its setting, or its file is missing.

What is printed is run as it is printed, and what follows is looked at: the plug-in loads, a slot has kept its position.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_core.errors import PluginError
from cdc_core.option import Secret
from cdc_core.postgres.connection import connect
from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.postgres.preflight import Finding, run_checks
from cdc_core.postgres.preflight.script import script
from cdc_core.postgres.replication import slot
from cdc_core.postgres.replication.peek import peek
from cdc_core.postgres.replication.plugin_library import allow
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.server import wal_end
from cdc_core.selection.options import SelectionOptions
from tests.support import released
from tests.support.cluster import PLUGIN_LIBRARIES, Cluster, binaries
from tests.support.postgres_options import options_for
from tests.support.program import program
from tests.support.waits import wait_until

pytestmark = pytest.mark.postgres

__all__ = ["program"]

USUAL = "pgoutput, test_decoding"
NAME = "output plug-in"


@pytest.fixture(scope="module")
def limited() -> Iterator[Cluster]:
    """A server with the setting, in files of its own. Its decoderbufs is test_decoding under that name: it loads."""
    psql = binaries("debian15")
    assert psql is not None
    with tempfile.TemporaryDirectory(prefix="w2l-server-") as made, pytest.MonkeyPatch.context() as patch:
        folder = Path(made)
        folder.chmod(0o755)
        shutil.copytree(released.fetch("released17"), folder, symlinks=True, dirs_exist_ok=True)
        shutil.copy(library(folder, "test_decoding"), library(folder, "decoderbufs"))
        (folder / "bin" / "psql").symlink_to(psql / "psql")
        patch.setenv("WAL2LAKE_TEST_PG15", str(folder / "bin"))
        cluster = Cluster.start("debian15", {PLUGIN_LIBRARIES: USUAL, "max_replication_slots": 8})
        yield cluster
        cluster.stop()


def library(folder: Path, name: str) -> Path:
    return folder / "lib" / "postgresql" / f"{name}.so"


@pytest.fixture
def options(limited: Cluster, request: pytest.FixtureRequest) -> Iterator[PostgresOptions]:
    """Of a superuser, who may read the setting, or of a role that may not, which is the usual case."""
    database = limited.database("libraries")
    limited.execute(database, "create table t (id int primary key); insert into t values (1)")
    found = options_for(limited, database, plugin_name=OutputPlugin.DECODERBUFS)
    if getattr(request, "param", "plain role") == "plain role":
        limited.execute(
            database, f"create role r_{database} login replication password 'pw'; grant select on t to r_{database}"
        )
        found = replace(found, database_user=f"r_{database}", database_password=Secret("pw"))
    yield found
    set_general(limited, USUAL)
    limited.drop_database(database)


def set_general(cluster: Cluster, value: str) -> None:
    """As an administrator does; sessions that begin later have it as soon as the server has read its files again."""
    cluster.execute("postgres", f"alter system set {PLUGIN_LIBRARIES} = {value}")
    cluster.execute("postgres", "select pg_reload_conf()")
    wait_until(lambda: shown(cluster) == value, 20, f"{PLUGIN_LIBRARIES} = {value}")


def shown(cluster: Cluster, database: str = "postgres") -> str:
    with cluster.connect(database) as connection:
        row = connection.execute(f"show {PLUGIN_LIBRARIES}").fetchone()
    assert row is not None
    return str(row[0])


def plugin_findings(options: PostgresOptions) -> list[Finding]:
    return [one for one in run_checks(options, lambda table: True) if one.check == NAME and not one.ok and one.is_error]


def run_script(cluster: Cluster, options: PostgresOptions, statements: tuple[str, ...], folder: Path) -> None:
    (folder / "allow.sql").write_text("\n".join(statements) + "\n")
    cluster.run_script(options.database_dbname, folder / "allow.sql")


def make(options: PostgresOptions) -> None:
    with connect(options, replication=True) as replication:
        slot.create(replication, options.slot_name, options.plugin_name.on_server)


def printed(error: PluginError) -> tuple[str, ...]:
    """The lines of a remedy that are statements."""
    return tuple(error.remedy.splitlines()[1:])


@pytest.mark.parametrize("options", ["superuser", "plain role"], indirect=True)
def test_a_plug_in_that_is_not_allowed_is_allowed_by_what_is_printed_and_the_slot_keeps_its_position(
    limited: Cluster, options: PostgresOptions, tmp_path: Path
) -> None:
    set_general(limited, f'{USUAL}, "other one"')
    is_plain = options.database_user != limited.user
    [finding] = plugin_findings(options)
    with pytest.raises(PluginError) as refused:
        make(options)
    assert refused.value.message == finding.found
    assert f"output_plugin_libraries{',' if is_plain else ' is'}" in finding.found and "decoderbufs" in finding.found
    assert is_plain or f"""is '{USUAL}, "other one"'""" in finding.found
    assert "without a restart" in finding.remedy and "restart it" not in finding.remedy
    run_script(limited, options, printed(refused.value), tmp_path)
    wanted = f'{USUAL}, "other one", decoderbufs'
    wait_until(lambda: shown(limited) == wanted, 20, wanted)
    run_script(limited, options, allow("decoderbufs"), tmp_path)
    assert shown(limited) == wanted, "a script that is run twice adds nothing"
    assert plugin_findings(options) == []
    make(options)
    with connect(options) as connection:
        position = slot.inspect(connection, options.slot_name).confirmed_lsn

    # The slot exists, and the setting is taken back.
    set_general(limited, USUAL)
    [again] = plugin_findings(options)
    with pytest.raises(PluginError) as refused:
        ReplicationStream(options)
    assert refused.value.message == again.found
    assert "A slot keeps its position." in again.remedy and "drop" not in refused.value.remedy
    with connect(options) as connection, pytest.raises(PluginError, match="does not allow output plug-in decoderbufs"):
        list(peek(connection, options, wal_end(connection)))
    run_script(limited, options, again.sql, tmp_path)
    wait_until(lambda: not plugin_findings(options), 20, "the server to allow the plug-in")
    with connect(options) as connection:
        assert slot.inspect(connection, options.slot_name).confirmed_lsn == position
    ReplicationStream(options).close()


def test_a_setting_for_a_role_or_a_database_is_the_one_that_is_changed(
    limited: Cluster, options: PostgresOptions, tmp_path: Path
) -> None:
    """From the most general to the most specific, each of which applies in place of those before."""
    set_general(limited, f"{USUAL}, decoderbufs")
    database, role = f'"{options.database_dbname}"', f'"{options.database_user}"'
    try:
        for place in ("ROLE ALL", f"DATABASE {database}", f"ROLE {role}", f"ROLE {role} IN DATABASE {database}"):
            limited.execute("postgres", f"alter {place} set {PLUGIN_LIBRARIES} = pgoutput")
            [finding] = plugin_findings(options)
            assert f"set by ALTER {place}, is 'pgoutput'" in finding.found
            assert finding.sql == (f"ALTER {place} SET output_plugin_libraries = pgoutput, decoderbufs;",)
            run_script(limited, options, finding.sql, tmp_path)
            assert plugin_findings(options) == []
        make(options)
    finally:
        limited.execute("postgres", f"alter role all reset {PLUGIN_LIBRARIES}")


def test_pgoutput_can_be_missing_in_the_list_too(limited: Cluster, options: PostgresOptions, tmp_path: Path) -> None:
    """Nothing, another one, and the list in quotes, which is the name of one plug-in."""
    own = replace(options, plugin_name=OutputPlugin.PGOUTPUT)
    assert [one for one in run_checks(own, lambda table: True) if one.check == NAME and not one.ok] == []
    for value in ("''", "wal2json", "'pgoutput, test_decoding'"):
        limited.execute("postgres", f"alter system set {PLUGIN_LIBRARIES} = {value}")
        limited.execute("postgres", "select pg_reload_conf()")
        wait_until(lambda: plugin_findings(own), 20, "the server to read the setting")
        [finding] = plugin_findings(own)
        assert "does not allow output plug-in pgoutput" in finding.found
        run_script(limited, own, finding.sql, tmp_path)
        wait_until(lambda: not plugin_findings(own), 20, "the server to allow the plug-in")
    make(own)


def test_a_missing_plug_in_is_distinguished_from_a_forbidden_one_and_costs_no_position(
    limited: Cluster, options: PostgresOptions
) -> None:
    set_general(limited, f"{USUAL}, decoderbufs")
    file = library(limited.bin.parent, "decoderbufs")
    make(options)
    with connect(options) as connection:
        position = slot.inspect(connection, options.slot_name).confirmed_lsn
    kept = file.read_bytes()
    for content in (None, b"no library", library(limited.bin.parent, "pgcrypto").read_bytes()):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        [finding] = plugin_findings(options)
        with pytest.raises(PluginError) as refused:
            ReplicationStream(options)
        with pytest.raises(PluginError) as not_made:
            make(replace(options, slot_name="another"))
        assert finding.found == refused.value.message == not_made.value.message
        assert "cannot load output plug-in decoderbufs" in finding.found and PLUGIN_LIBRARIES not in finding.found
        assert "postgresql-17-decoderbufs" in finding.remedy and "A slot keeps its position." in finding.remedy
        assert "drop" not in refused.value.remedy and "snapshot" not in refused.value.remedy
    file.unlink()
    file.write_bytes(kept)  # as the package does
    assert plugin_findings(options) == []
    with connect(options) as connection:
        assert slot.inspect(connection, options.slot_name).confirmed_lsn == position
        assert not slot.inspect(connection, "another").exists
    ReplicationStream(options).close()


def test_the_script_for_a_server_on_which_nothing_is_prepared_allows_the_plug_in(
    limited: Cluster, options: PostgresOptions, tmp_path: Path
) -> None:
    unknown = replace(options, database_user=f"new_{options.database_dbname}")
    findings = run_checks(unknown, lambda table: True)
    run_script(limited, options, (script(unknown, SelectionOptions(), findings),), tmp_path)
    wait_until(lambda: shown(limited) == f"{USUAL}, decoderbufs", 20, "the server to allow the plug-in")
    of_server = replace(unknown, plugin_name=OutputPlugin.PGOUTPUT)
    assert PLUGIN_LIBRARIES not in script(of_server, SelectionOptions(), findings)


def test_an_argument_of_the_server_is_reported_to_need_a_restart(limited: Cluster, options: PostgresOptions) -> None:
    """ALTER SYSTEM has no effect on it: no statement is printed to a role that may see where the value is from."""
    server, kept = limited.bin / "postgres", limited.bin / "postgres.kept"
    seeing = replace(options, database_user=limited.user, database_password=Secret(limited.password))
    # Nothing can be tried on a server that is not ready at all: what may be missing is printed with the rest.
    limited.restart(settings={"wal_level": "replica"})
    [unknown] = [
        one for one in run_checks(options, lambda table: True) if one.check == NAME and "wal_level" in one.found
    ]
    assert not unknown.is_error and unknown.sql == allow("decoderbufs")
    limited.settings["wal_level"] = "logical"
    try:
        limited.halt()
        server.rename(kept)
        server.write_text(f'#!/bin/sh\nexec "$0.kept" "$@" -c {PLUGIN_LIBRARIES}=pgoutput,test_decoding\n')
        server.chmod(0o755)
        limited.restart()
        [finding] = plugin_findings(seeing)
        assert "is 'pgoutput,test_decoding'" in finding.found and not finding.sql
        assert "in the arguments of the server, and restart it. A slot keeps its position." in finding.remedy
        server.write_text(server.read_text().replace("test_decoding", "test_decoding,decoderbufs"))
        limited.restart()
        assert plugin_findings(seeing) == []
    finally:
        kept.replace(server)
        limited.restart()


def test_the_last_slot_is_the_connectors_own_and_nothing_can_be_tried(
    limited: Cluster, options: PostgresOptions
) -> None:
    set_general(limited, f"{USUAL}, decoderbufs")
    make(options)
    database = limited.database("others")
    for number in range(7):
        limited.execute(database, f"select pg_create_logical_replication_slot('o{number}', 'pgoutput')")
    found = [one for one in run_checks(options, lambda table: True) if one.check == NAME and "loads" in one.found]
    assert [(one.ok, one.is_error) for one in found] == [(False, False)]
    assert "could not be tried" in found[0].found and "max_replication_slots" in found[0].remedy
    limited.drop_database(database)
    found = [one for one in run_checks(options, lambda table: True) if one.check == NAME and "loads" in one.found]
    assert [one.ok for one in found] == [True]

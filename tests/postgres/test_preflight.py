"""The checks before a start, on a server that is ready and on servers that are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_core.option import Secret
from cdc_core.postgres.connection import connect
from cdc_core.postgres.options import OutputPlugin, PostgresOptions, PublicationAutocreateMode
from cdc_core.postgres.preflight import Finding, FindingSeverity, run_checks, script
from cdc_core.postgres.replication import slot
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.schema.table import TableId
from cdc_core.selection.options import SelectionOptions
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.waits import wait_until

pytestmark = pytest.mark.postgres


@pytest.fixture
def options(each_pg: Cluster) -> PostgresOptions:
    database = each_pg.database("check")
    each_pg.execute(database, "create table a (id int primary key); create table keyless (v text)")
    return options_for(each_pg, database)


def public(table: TableId) -> bool:
    return table.schema == "public"


def failures(findings: list[Finding], severity: FindingSeverity = FindingSeverity.ERROR) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings if not finding.ok and finding.severity is severity}


def test_a_ready_server_has_only_good_findings(options: PostgresOptions) -> None:
    findings = run_checks(
        options, lambda table: table == ("public", "a"), SelectionOptions(table_include_list=("public.a",))
    )
    assert [finding for finding in findings if not finding.ok] == []
    assert {finding.check for finding in findings} >= {
        "connection", "server version", "wal_level", "max_wal_senders", "max_replication_slots", "wal_sender_timeout",
        "captured tables", "replication privilege", "select privilege", "replica identity", "publication", "slot",
        "replication connection",
    }  # fmt: skip
    with connect(options) as connection:
        assert not slot.inspect(connection, options.slot_name).exists, "a check changes nothing"


def test_a_server_that_cannot_be_reached_is_the_one_finding(options: PostgresOptions) -> None:
    [finding] = run_checks(replace(options, database_password=Secret("wrong")), public)
    assert (finding.check, finding.ok, finding.is_error) == ("connection", False, True)
    assert "password" in finding.found and "database.password" in finding.remedy


def test_a_table_without_identity_is_a_warning(options: PostgresOptions) -> None:
    findings = run_checks(options, public)
    assert failures(findings) == {}
    warned = failures(findings, FindingSeverity.WARNING)["replica identity"]
    assert "public.keyless" in warned.found and "public.a" not in warned.found


def test_an_include_list_that_leaves_nothing_is_a_warning(options: PostgresOptions) -> None:
    finding = failures(run_checks(options, lambda _: False), FindingSeverity.WARNING)["captured tables"]
    assert "None of the database's 2 tables" in finding.found


def test_all_missing_privileges_of_a_role_are_reported(each_pg: Cluster, options: PostgresOptions) -> None:
    role = f"poor_{options.database_dbname}"
    each_pg.execute(
        options.database_dbname,
        f"create role {role} login password 'pw'; create schema shut; create table shut.s (id int primary key)",
    )
    weak = replace(options, database_user=role, database_password=Secret("pw"))
    found = run_checks(weak, lambda table: table.schema in ("public", "shut"))
    wrong = [finding for finding in found if not finding.ok and finding.is_error]
    text = " ".join(finding.found + finding.remedy for finding in wrong)
    assert f'Role "{role}" lacks REPLICATION' in text
    assert "lacks USAGE on schema shut" in text
    assert "lacks SELECT on public.a, public.keyless" in text
    assert "only a superuser may create one FOR ALL TABLES" in text
    assert "is not permitted to start replication" in text

    each_pg.execute(
        options.database_dbname,
        f"alter role {role} replication; grant usage on schema shut to {role};"
        f"grant select on a, keyless, shut.s to {role};"
        f'create publication "{options.publication_name}" for table a, keyless, shut.s',
    )
    assert failures(run_checks(weak, lambda table: table.schema in ("public", "shut"))) == {}


def test_row_security_that_hides_rows_from_the_role_is_an_error(each_pg: Cluster, options: PostgresOptions) -> None:
    role = f"rls_{options.database_dbname}"
    each_pg.execute(
        options.database_dbname,
        f"create role {role} login replication password 'pw'; grant select on a, keyless to {role};"
        f"alter table a enable row level security; create policy p on a using (id > 5);"
        f'create publication "{options.publication_name}" for all tables',
    )
    weak = replace(options, database_user=role, database_password=Secret("pw"))
    assert "public.a" in failures(run_checks(weak, public))["row security"].found
    assert "row security" not in failures(run_checks(options, public))
    # The owner is exempt unless FORCE is set; BYPASSRLS exempts any role.
    each_pg.execute(options.database_dbname, f"alter table a owner to {role}")
    assert "row security" not in failures(run_checks(weak, public))
    each_pg.execute(options.database_dbname, "alter table a force row level security")
    assert "public.a" in failures(run_checks(weak, public))["row security"].found
    each_pg.execute(options.database_dbname, f"alter role {role} bypassrls")
    assert "row security" not in failures(run_checks(weak, public))


@pytest.mark.parametrize("mode", [PublicationAutocreateMode.ALL_TABLES, PublicationAutocreateMode.DISABLED])
def test_a_publication_that_lacks_a_captured_table_or_operation_is_a_warning(
    each_pg: Cluster, options: PostgresOptions, mode: PublicationAutocreateMode
) -> None:
    each_pg.execute(
        options.database_dbname,
        f"create publication \"{options.publication_name}\" for table a with (publish = 'insert')",
    )
    every = SelectionOptions(skipped_operations=())
    found = run_checks(replace(options, publication_autocreate_mode=mode), public, every)
    said = [f.found for f in found if f.check == "publication" and not f.ok]
    assert "does not include public.keyless" in said[0]
    assert "does not publish update, delete, truncate" in said[1]


def test_partitions_published_under_their_root_are_not_missed(each_pg: Cluster, options: PostgresOptions) -> None:
    each_pg.execute(
        options.database_dbname,
        "create table root (id int, at date, primary key (id, at)) partition by range (at);"
        "create table leaf partition of root for values from ('2020-01-01') to ('2021-01-01');"
        f'create publication "{options.publication_name}" for table root with (publish_via_partition_root = true)',
    )
    found = run_checks(options, lambda table: table.table in ("root", "leaf"))
    assert [finding for finding in found if not finding.ok] == []


def test_a_missing_publication_with_autocreate_disabled_is_an_error(options: PostgresOptions) -> None:
    wanted = replace(options, publication_autocreate_mode=PublicationAutocreateMode.DISABLED)
    finding = failures(run_checks(wanted, public))["publication"]
    assert "disabled" in finding.found and "CREATE PUBLICATION" in finding.sql[0]


def test_a_slot_in_use_is_a_warning_and_one_of_another_plugin_an_error(options: PostgresOptions) -> None:
    with connect(options) as connection, connect(options, replication=True) as replication:
        slot.create(replication, options.slot_name)
        connection.execute("create publication p for all tables")
        named = replace(options, publication_name="p")
        with ReplicationStream(named):
            assert "in use" in failures(run_checks(named, public), FindingSeverity.WARNING)["slot"].found
        other = replace(named, plugin_name=OutputPlugin.DECODERBUFS)
        assert "uses output plugin pgoutput" in failures(run_checks(other, public))["slot"].found
        slot.drop(connection, options.slot_name)


def test_an_administrator_sees_what_keeps_a_role_out(
    each_pg: Cluster, options: PostgresOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    pg = each_pg
    role, database = f"out_{options.database_dbname}", options.database_dbname
    pg.execute(database, f"create role {role} nologin password 'p'; revoke connect on database {database} from public")
    out = replace(options, database_user=role, database_password=Secret("p"), publication_name="p_out")
    monkeypatch.setenv("PGPASSWORD", pg.password)

    def missing(administrator: str = f"user={pg.user}") -> list[Finding]:
        found = run_checks(out, public, administrator=administrator)
        return [one for one in found if not one.ok and one.is_error]

    [refused, other] = missing(f"postgresql://{pg.user}@/postgres")
    assert refused.check == "connection" and f'database.dbname is "{database}"' in other.found
    said = " ".join(one.found for one in missing())
    assert "lacks LOGIN" in said and "lacks CONNECT" in said and "is not permitted to log in" not in said, said
    for statement in (statement for one in missing() for statement in one.sql):
        pg.execute(database, statement)
    assert missing() == []


def test_the_settings_of_a_server_without_logical_decoding_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.start(
        "embedded18",
        {"wal_level": "replica", "max_wal_senders": 1, "max_replication_slots": 0, "wal_sender_timeout": "2s"},
    )
    try:
        database = cluster.database("raw")
        cluster.execute(database, "create table t (id int primary key)")
        options = options_for(cluster, database)
        findings = run_checks(options, public)
        errors, warnings = failures(findings), failures(findings, FindingSeverity.WARNING)
        assert "wal_level is replica" in errors["wal_level"].found
        nobody = replace(options, database_user="nobody", database_password=Secret(), publication_name="p")
        monkeypatch.setenv("PGPASSWORD", cluster.password)
        asked = run_checks(nobody, public, administrator=f"user={cluster.user}")
        text = script(nobody, SelectionOptions(), asked)
        order = ("wal_level", "CREATE ROLE", "GRANT SELECT", "CREATE PUBLICATION")
        assert (places := [text.index(part) for part in order]) == sorted(places), text
        assert "0 of max_replication_slots = 0" in errors["max_replication_slots"].found
        assert "max_wal_senders" in warnings and "wal_sender_timeout is 2 s" in warnings["wal_sender_timeout"].found
        taken = "select count(*) from pg_stat_activity where backend_type = 'walsender'"
        # The server frees the only place a moment after the checks' own connection is closed.
        wait_until(lambda: cluster.execute(database, taken) == [(0,)], 20, "the WAL sender's end")
        with connect(options, replication=True):
            full = failures(run_checks(options, public))
            assert "1 of max_wal_senders = 1 are in use" in full["max_wal_senders"].found
            assert "All WAL senders" in full["replication connection"].found
        for statement in dict.fromkeys(one for finding in findings if not finding.ok for one in finding.sql):
            cluster.execute(database, statement)
        changed = cluster.execute(
            database, "select name, setting from pg_file_settings where sourcefile like '%auto.conf'"
        )
        cluster.restart(settings=dict(changed))
        assert [finding for finding in run_checks(options, public) if not finding.ok] == []
    finally:
        cluster.stop()

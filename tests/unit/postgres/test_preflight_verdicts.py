"""The verdicts as tables: what was found, and whether that is good, doubtful or bad."""

from __future__ import annotations

import pytest

from cdc_core.lsn import Lsn
from cdc_core.postgres.options import OutputPlugin, PostgresOptions, PublicationAutocreateMode
from cdc_core.postgres.preflight.context import listed
from cdc_core.postgres.preflight.finding import Finding
from cdc_core.postgres.preflight.server import (
    replication_slots,
    sender_timeout,
    server_version,
    slot_ready,
    wal_level,
    wal_senders,
)
from cdc_core.postgres.preflight.tables import (
    generated_columns,
    identities,
    include_list,
    privileges,
    publication_ready,
)
from cdc_core.postgres.replication.publication import PublicationInfo
from cdc_core.postgres.replication.slot import SlotInfo
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema

GOOD, DOUBTFUL, BAD = "good", "doubtful", "bad"
A, B = TableId("public", "a"), TableId("public", "b")


def grade(finding: Finding) -> str:
    assert finding.found.endswith(".")
    assert bool(finding.remedy) is not finding.ok, "what is wrong comes with a remedy, what is right without"
    return GOOD if finding.ok else BAD if finding.is_error else DOUBTFUL


@pytest.mark.parametrize(
    ("version", "is_standby", "expected"),
    [
        (180004, False, GOOD),
        (100000, False, GOOD),
        (90624, False, BAD),
        (160000, True, GOOD),
        (150018, True, BAD),
    ],
)
def test_server_version(version: int, is_standby: bool, expected: str) -> None:
    assert grade(server_version.verdict(version, "x", is_standby)) == expected


@pytest.mark.parametrize(("level", "expected"), [("logical", GOOD), ("replica", BAD), ("minimal", BAD)])
def test_wal_level(level: str, expected: str) -> None:
    assert grade(wal_level.verdict(level)) == expected


@pytest.mark.parametrize(
    ("allowed", "taken", "expected"), [(10, 0, GOOD), (10, 8, GOOD), (10, 9, DOUBTFUL), (10, 10, BAD), (0, 0, BAD)]
)
def test_wal_senders(allowed: int, taken: int, expected: str) -> None:
    assert grade(wal_senders.verdict(allowed, taken)) == expected


@pytest.mark.parametrize(
    ("allowed", "taken", "ours", "expected"),
    [(10, 0, False, GOOD), (10, 10, True, GOOD), (10, 10, False, BAD), (0, 0, False, BAD)],
)
def test_replication_slots(allowed: int, taken: int, ours: bool, expected: str) -> None:
    assert grade(replication_slots.verdict(allowed, taken, ours)) == expected


@pytest.mark.parametrize(("milliseconds", "expected"), [(0, GOOD), (60_000, GOOD), (10_000, GOOD), (9_999, DOUBTFUL)])
def test_wal_sender_timeout(milliseconds: int, expected: str) -> None:
    assert grade(sender_timeout.verdict(milliseconds)) == expected


@pytest.mark.parametrize(
    ("own", "service", "expected"), [(True, False, GOOD), (False, True, GOOD), (False, False, BAD)]
)
def test_replication_privilege(own: bool, service: bool, expected: str) -> None:
    assert grade(privileges.role_verdict("r", own, service)) == expected


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([(A, True, True), (B, True, True)], [GOOD]),
        ([(A, True, False), (B, True, True)], [BAD]),
        ([(A, False, True)], [BAD]),
        ([(A, False, False), (TableId("other", "x"), True, False)], [BAD, BAD]),
        ([], [GOOD]),
    ],
)
def test_select_privilege(tables: list[tuple[TableId, bool, bool]], expected: list[str]) -> None:
    assert [grade(finding) for finding in privileges.schema_verdicts("r", tables)] == expected


@pytest.mark.parametrize(
    ("mode", "is_superuser", "may_create", "foreign", "expected"),
    [
        ("all_tables", True, True, [A], GOOD),
        ("all_tables", False, True, [], BAD),
        ("filtered", False, True, [], GOOD),
        ("filtered", False, True, [A], BAD),
        ("filtered", False, False, [], BAD),
        ("no_tables", False, True, [A], GOOD),
        ("no_tables", False, False, [], BAD),
        ("disabled", True, True, [], BAD),
    ],
)  # fmt: skip
def test_a_missing_publication(
    mode: str, is_superuser: bool, may_create: bool, foreign: list[TableId], expected: str
) -> None:
    found = publication_ready.missing_verdict("p", PublicationAutocreateMode(mode), is_superuser, may_create, foreign)
    assert grade(found) == expected


@pytest.mark.parametrize(
    ("mode", "covered", "operations", "skipped", "expected"),
    [
        ("all_tables", [A, B], "insert update delete truncate", (), [GOOD]),
        ("all_tables", [A], "insert update delete truncate", (), [DOUBTFUL]),
        ("filtered", [A], "insert update delete truncate", (), [GOOD]),
        ("disabled", [A, B], "insert update delete", ("t",), [GOOD]),
        ("disabled", [A, B], "insert update delete", (), [DOUBTFUL]),
        ("disabled", [A], "insert", (), [DOUBTFUL, DOUBTFUL]),
    ],
)
def test_an_existing_publication(
    mode: str, covered: list[TableId], operations: str, skipped: tuple[str, ...], expected: list[str]
) -> None:
    info = PublicationInfo("p", True, operations=tuple(operations.split()))
    found = publication_ready.existing_verdicts(info, PublicationAutocreateMode(mode), [A, B], covered, skipped)
    assert [grade(finding) for finding in found] == expected


def test_a_filtered_publication_that_is_for_all_tables_is_bad() -> None:
    info = PublicationInfo("p", True, True, ("insert", "update", "delete", "truncate"))
    [found] = publication_ready.existing_verdicts(info, PublicationAutocreateMode.FILTERED, [A], [A])
    assert grade(found) == BAD


OPTIONS = PostgresOptions(database_dbname="d", slot_name="s", plugin_name=OutputPlugin.PGOUTPUT)
FREE = {"exists": True, "plugin": "pgoutput", "database": "d", "restart_lsn": Lsn(1), "confirmed_lsn": Lsn(2)}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, GOOD),
        (FREE, GOOD),
        ({**FREE, "wal_status": "extended"}, GOOD),
        ({**FREE, "wal_status": "unreserved"}, DOUBTFUL),
        ({**FREE, "wal_status": "lost"}, BAD),
        ({**FREE, "restart_lsn": None}, BAD),
        ({**FREE, "invalidation_reason": "idle_timeout"}, BAD),
        ({**FREE, "active": True, "active_pid": 7}, DOUBTFUL),
        ({**FREE, "plugin": "wal2json"}, BAD),
        ({**FREE, "plugin": None, "database": None}, BAD),
        ({**FREE, "database": "e"}, BAD),
    ],
)
def test_the_slot(facts: dict[str, object], expected: str) -> None:
    assert grade(slot_ready.verdict(SlotInfo("s", **facts), OPTIONS)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("identity", "key", "expected"),
    [
        ("d", ("id",), GOOD),
        ("d", (), DOUBTFUL),
        ("f", (), GOOD),
        ("i", (), GOOD),
        ("n", ("id",), DOUBTFUL),
    ],
)
def test_replica_identity(identity: str, key: tuple[str, ...], expected: str) -> None:
    table = TableSchema(A, 1, (Column("id", PgType(23, "int4")),), key, identity=ReplicaIdentity(identity))
    assert [grade(finding) for finding in identities.verdicts([table])] == [expected]


@pytest.mark.parametrize(("captured", "expected"), [(2, GOOD), (1, GOOD), (0, DOUBTFUL)])
def test_the_captured_tables(captured: int, expected: str) -> None:
    assert [grade(finding) for finding in include_list.verdicts([A, B], [A, B][:captured])] == [expected]
    listed_ones = include_list.verdicts([A, B], [A, B][:captured], is_listed=True)
    assert [grade(finding) for finding in listed_ones] == [GOOD if captured else BAD]


def test_long_lists_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefgh")) == "a, b, c, d, e and 3 more"


def test_generated_columns_that_the_stream_does_not_carry_are_named() -> None:
    plain = Column("a", PgType(23, "int4"), attnum=1)
    computed = Column("g", PgType(23, "int4"), is_generated=True, attnum=2, generated="s")
    with_it = TableSchema(A, 1, (plain, computed))
    found = generated_columns.verdicts([with_it, TableSchema(B, 2, (plain,))])
    assert [grade(finding) for finding in found] == [DOUBTFUL]
    assert "public.a.g" in found[0].found and "public.b" not in found[0].found
    assert generated_columns.verdicts([TableSchema(B, 2, (plain,))]) == []

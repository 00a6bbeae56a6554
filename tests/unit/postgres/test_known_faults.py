"""The table of known faults: which versions and plug-ins have which, and which tables they concern."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_core.postgres.known_faults import (
    KNOWN_FAULTS,
    NULL_FOR_DEFAULT,
    NULL_FOR_NAN,
    OUTDATED_CATALOGUE,
    TOO_MANY_INVALIDATIONS,
    ZONE_LOST,
    concerned_tables,
    faults_of,
)
from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from tools.gen_known_faults import PAGE, page_of

INT, TIMETZ, NUMERIC = (PgType(23, "int4", "pg_catalog"), PgType(1266, "timetz", "pg_catalog"),
                        PgType(1700, "numeric", "pg_catalog"))  # fmt: skip
KEYED = TableSchema(
    TableId("public", "keyed"),
    99,
    (Column("id", INT, optional=False), Column("z", TIMETZ), Column("n", NUMERIC), Column("d", INT, has_missing=True)),
    ("id",),
    identity_key=("id",),
)
KEYLESS = replace(KEYED, id=TableId("public", "bare"), primary_key=(), identity=ReplicaIdentity.FULL)


def options(name: OutputPlugin, *parameters: tuple[str, str]) -> PostgresOptions:
    return replace(
        PostgresOptions(database_hostname="h", database_user="u", database_dbname="d"),
        plugin_name=name,
        slot_stream_params=parameters,
    )


@pytest.mark.parametrize(
    ("version", "found"),
    [
        (100023, {OUTDATED_CATALOGUE}),
        (120022, {OUTDATED_CATALOGUE}),
        (130020, {OUTDATED_CATALOGUE}),
        (130021, {TOO_MANY_INVALIDATIONS}),
        (130022, set()),
        (140017, {OUTDATED_CATALOGUE}),
        (140018, {TOO_MANY_INVALIDATIONS}),
        (150000, {OUTDATED_CATALOGUE, NULL_FOR_DEFAULT}),
        (150005, {OUTDATED_CATALOGUE, NULL_FOR_DEFAULT}),
        (150006, {OUTDATED_CATALOGUE}),
        (150012, {OUTDATED_CATALOGUE}),
        (150013, {TOO_MANY_INVALIDATIONS}),
        (150014, set()),
        (160001, {OUTDATED_CATALOGUE, NULL_FOR_DEFAULT}),
        (160002, {OUTDATED_CATALOGUE}),
        (160009, {TOO_MANY_INVALIDATIONS}),
        (160010, set()),
        (170004, {OUTDATED_CATALOGUE}),
        (170005, {TOO_MANY_INVALIDATIONS}),
        (170006, set()),
        (180000, set()),
    ],
)
def test_the_faults_of_a_version(version: int, found: set[object]) -> None:
    assert set(faults_of(options(OutputPlugin.PGOUTPUT), version)) == found
    others = set(faults_of(options(OutputPlugin.WAL2JSON), version))
    assert others == (found - {NULL_FOR_DEFAULT}) | {NULL_FOR_NAN}


def test_the_version_that_repairs_a_fault() -> None:
    assert OUTDATED_CATALOGUE.repaired(150004) == "PostgreSQL 15.13"
    assert OUTDATED_CATALOGUE.repaired(120022) == "PostgreSQL 13.21; of version 12 none"
    assert NULL_FOR_DEFAULT.repaired(160000) == "PostgreSQL 16.2"


def concerned(name: OutputPlugin, version: int, *parameters: tuple[str, str]) -> list[tuple[object, ...]]:
    return [
        (one.fault, one.table.id.table, one.columns, one.identifying)
        for one in concerned_tables(options(name, *parameters), version, [KEYED, KEYLESS])
    ]


def test_the_tables_that_a_fault_concerns() -> None:
    assert concerned(OutputPlugin.DECODERBUFS, 180000) == [
        (ZONE_LOST, "keyed", ("z",), ()),
        (ZONE_LOST, "bare", ("z",), ("z",)),
    ]
    of_wal2json = [(NULL_FOR_NAN, "keyed", ("n",), ()), (NULL_FOR_NAN, "bare", ("n",), ("n",))]
    assert concerned(OutputPlugin.WAL2JSON, 180000) == of_wal2json
    assert concerned(OutputPlugin.WAL2JSON, 180000, ("numeric-data-types-as-string", "1")) == []
    assert concerned(OutputPlugin.WAL2JSON, 180000, ("numeric-data-types-as-string", "false")) == of_wal2json
    # Old rows of a table with a key are those of the key alone.
    assert concerned(OutputPlugin.PGOUTPUT, 150005) == [(NULL_FOR_DEFAULT, "bare", ("d",), ("d",))]
    assert concerned(OutputPlugin.PGOUTPUT, 150006) == []
    inserted_only = replace(KEYLESS, identity=ReplicaIdentity.DEFAULT)
    (one,) = concerned_tables(options(OutputPlugin.WAL2JSON), 180000, [inserted_only])
    assert (one.columns, one.identifying) == (("n",), ())
    by_zone = replace(KEYED, primary_key=("id", "z"))
    (one,) = concerned_tables(options(OutputPlugin.DECODERBUFS), 180000, [by_zone], lambda table: ("id", "z"))
    assert one.identifying == ("z",)
    assert "public.keyed" in one.reason
    assert "exclude it" in one.action


def test_the_docs_show_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_of(page), "run python -m tools.gen_known_faults"
    for fault in KNOWN_FAULTS:
        assert fault.effect in page

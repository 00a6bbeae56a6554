"""What is asked of an output plug-in, what it cannot send, and relations completed from the catalogue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_core.decode.plugin import SeenColumn
from cdc_core.errors import ConfigError
from cdc_core.postgres.options import InProgress, OutputPlugin, PostgresOptions
from cdc_core.postgres.preflight.server.output_plugin import limits
from cdc_core.postgres.replication import plugin
from cdc_core.postgres.replication.seen_relations import SeenRelations, modifier_of
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema

INT, TEXT, REAL = (
    PgType(23, "int4", "pg_catalog"),
    PgType(25, "text", "pg_catalog"),
    PgType(700, "float4", "pg_catalog"),
)
T = TableId("public", "t")
TABLE = TableSchema(
    T, 99, (Column("id", INT), Column("v", TEXT), Column("f", REAL)), ("id",), (), ReplicaIdentity.DEFAULT, ("id",)
)


def options(name: OutputPlugin, *parameters: tuple[str, str]) -> PostgresOptions:
    return replace(
        PostgresOptions(database_hostname="h", database_user="u", database_dbname="d"),
        plugin_name=name,
        slot_stream_params=parameters,
    )


def test_parameters_are_those_of_the_plug_in() -> None:
    assert plugin.parameters(options(OutputPlugin.PGOUTPUT), 'a"b', 150000) == {
        "proto_version": "1",
        "publication_names": '"a""b"',
        "messages": "true",
    }
    assert plugin.parameters(options(OutputPlugin.DECODERBUFS), "p", 150000) == {}
    given = plugin.parameters(options(OutputPlugin.WAL2JSON_RDS, ("add-tables", "*.t")), "p", 150000)
    assert given["format-version"] == "2"
    assert given["add-tables"] == "*.t"
    assert "write-in-chunks" not in given
    assert plugin.parameters(options(OutputPlugin.WAL2JSON, ("format-version", "1")), "p", 1)["write-in-chunks"] == "1"


def test_transactions_in_progress_are_asked_for_where_the_server_has_them() -> None:
    given = replace(options(OutputPlugin.PGOUTPUT), streaming_transactions=InProgress.ON)
    assert plugin.parameters(given, "p", 150000, in_progress=True) == {
        "proto_version": "2",
        "streaming": "on",
        "publication_names": '"p"',
        "messages": "true",
    }
    for version, in_progress in ((130000, True), (150000, False)):
        assert plugin.parameters(given, "p", version, in_progress=in_progress)["proto_version"] == "1"
    other = replace(options(OutputPlugin.DECODERBUFS), streaming_transactions=InProgress.ON)
    assert plugin.parameters(other, "p", 150000, in_progress=True) == {}
    with pytest.raises(ConfigError) as refused:
        plugin.checked(OutputPlugin.PGOUTPUT, (("streaming", "on"),))
    assert "wal2lake.streaming.transactions=on" in refused.value.remedy


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        (OutputPlugin.DECODERBUFS, ("debug-mode", "on")),
        (OutputPlugin.WAL2JSON, ("include-lsn", "off")),
        (OutputPlugin.WAL2JSON, ("pretty-print", "true")),
        (OutputPlugin.WAL2JSON, ("format-version", "3")),
    ],
)
def test_parameters_that_cannot_be_decoded_are_refused(name: OutputPlugin, pair: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=pair[0]):
        plugin.checked(name, (pair,))


def test_a_value_with_the_same_meaning_is_accepted() -> None:
    plugin.checked(OutputPlugin.WAL2JSON, (("include-lsn", "true"), ("pretty-print", "off")))


def test_changes_that_a_plug_in_does_not_send_are_reported() -> None:
    keyless = replace(TABLE, id=TableId("public", "bare"), primary_key=(), identity_key=())

    def said(*given: object) -> str:
        return " ".join(finding.found for finding in limits(options(*given), [TABLE, keyless]))  # type: ignore[arg-type]

    assert "TRUNCATE" in said(OutputPlugin.DECODERBUFS)
    assert "logical messages" in said(OutputPlugin.DECODERBUFS)
    assert "public.bare" in said(OutputPlugin.DECODERBUFS)
    assert "TRUNCATE" not in said(OutputPlugin.WAL2JSON)
    assert "TRUNCATE" in said(OutputPlugin.WAL2JSON, ("format-version", "1"))
    assert "TRUNCATE" in said(OutputPlugin.WAL2JSON, ("actions", "insert,update"))


def test_parameters_that_leave_changes_out_are_found() -> None:
    assert plugin.filters(options(OutputPlugin.WAL2JSON, ("actions", "insert, update,delete"))) == []
    assert plugin.filters(options(OutputPlugin.WAL2JSON, ("actions", "insert"), ("add-tables", "*.t"))) == [
        "actions",
        "add-tables",
    ]
    assert plugin.filters(options(OutputPlugin.PGOUTPUT, ("origin", "none"))) == ["origin"]


@pytest.mark.parametrize(
    ("warning", "message"),
    [
        ('no tuple identifier for UPDATE in table "a"."b c"', b'{"action":"?","schema":"a","table":"b c"}'),
        ('table "b" without primary key or replica identity is nothing', b'{"action":"?","name":"b"}'),
        ("something else", None),
    ],
)
def test_a_warning_about_a_change_becomes_a_message(warning: str, message: bytes | None) -> None:
    assert plugin.left_out(warning) == message


@pytest.mark.parametrize(
    ("oid", "text", "modifier"),
    [
        (1700, "numeric(10,2)", (10 << 16 | 2) + 4),
        (1700, "numeric(3,-2)", (3 << 16 | 0x7FE) + 4),
        (1231, "numeric(5,1)[]", (5 << 16 | 1) + 4),
        (1043, "character varying(20)", 24),
        (1042, "character(5)", 9),
        (1560, "bit(3)", 3),
        (1114, "timestamp(3) without time zone", 3),
        (1266, "time(0) with time zone", 0),
        (23, "integer", -1),
        (1186, "interval", -1),
    ],
)
def test_a_modifier_is_read_from_the_types_text(oid: int, text: str, modifier: int) -> None:
    assert modifier_of(SeenColumn("c", oid, text), None) == modifier


def test_a_modifier_that_the_text_does_not_show_is_the_catalogues() -> None:
    column = Column("g", PgType(5000, "geometry", "public"), 1107460)
    assert modifier_of(SeenColumn("g", 5000, "geometry(Point,4326)"), column) == 1107460
    assert modifier_of(SeenColumn("g", 5001, "geography(Point,4326)"), column) == -1


class FixedCatalog:
    """One table, until it is gone."""

    def __init__(self) -> None:
        self.table: TableSchema | None = TABLE

    def current(self, name: TableId) -> TableSchema | None:
        return self.table if name == T else None


def test_relations_are_completed_from_the_catalogue() -> None:
    catalog = FixedCatalog()
    relations = SeenRelations(catalog, lambda table: True, [TABLE])
    whole = relations.complete(T, [SeenColumn("id", 23, "integer"), SeenColumn("w", 1043, "character varying(9)")])
    assert [(c.name, c.type_modifier, c.is_identity) for c in whole.columns] == [("id", -1, True), ("w", 13, False)]
    assert (whole.oid, whole.identity) == (99, ReplicaIdentity.DEFAULT)
    part = relations.extended(T, [SeenColumn("id", 23, "integer"), SeenColumn("old", 25, "text")])
    assert [c.name for c in part.columns] == ["id", "v", "f", "old"]
    catalog.table = None
    assert relations.complete(T, [SeenColumn("id", 23)]).oid == 99
    assert relations.oid(TableId("public", "never")) == 0
    assert relations.named("t") == [T]

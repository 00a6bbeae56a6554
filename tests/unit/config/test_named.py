"""Every property that holds names or patterns: one that matches nothing is reported, one that matches is not."""

import re

import pytest

from cdc_core.config.catalogue import PACKAGES
from cdc_core.config.connector import from_entries
from cdc_core.config.named import Database, unmatched
from cdc_core.option import Named, Property, properties_of
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.unit.config.test_connector import LEAST

ORDERS = TableSchema(
    TableId("public", "orders"), 1, (Column("id", PgType(23, "int4")), Column("note", PgType(25, "text"))), ("id",)
)
DATABASE = Database(
    "shop",
    [ORDERS.id, TableId("public", "My.Table"), TableId("other", "plain"), TableId("other", "signals")],
    {TableId("public", "seen"): "view", TableId("public", "far"): "foreign table"},
    [ORDERS],
)
PROPERTIES = [declared for _, options in PACKAGES.values() for declared in properties_of(options).values()]
# Texts and lists that hold no names of schemas, tables or columns. A new property is here, or says what it names.
_TEXTS = """
    wal2lake.catalogs wal2lake.catalogs.database wal2lake.catalogs.table wal2lake.catalogs.owner
    wal2lake.catalogs.unity.url wal2lake.catalogs.unity.token wal2lake.catalogs.unity.catalog
    wal2lake.alerts.url wal2lake.telemetry.otlp.endpoint
    openlineage.integration.config.file.path openlineage.integration.job.namespace
    openlineage.integration.job.description openlineage.integration.job.tags openlineage.integration.job.owners
    openlineage.integration.dataset.kafka.bootstrap.servers
database.hostname database.user database.password database.dbname database.sslcert database.sslkey
database.sslpassword database.sslrootcert database.initial.statements slot.name slot.stream.params publication.name
heartbeat.action.query topic.prefix topic.delimiter topic.regex topic.replacement topic.key.field.name
topic.key.field.regex topic.key.field.replacement topic.transaction topic.heartbeat.prefix topic.heartbeat.name
skipped.operations unavailable.value.placeholder transforms transforms.NAME.* predicates predicates.NAME.*
converters wal2lake.converters.ignored
converter.* key.converter.* value.converter.* header.converter.* snapshot.mode.custom.name
snapshot.select.statement.overrides.SCHEMA.TABLE signal.enabled.channels signal.file signal.kafka.topic
custom.metric.tags signal.kafka.bootstrap.servers signal.kafka.groupId signal.consumer.* wal2lake.signal.actions
notification.enabled.channels notification.sink.topic.name wal2lake.lake.path wal2lake.storage.s3.endpoint
wal2lake.storage.s3.region wal2lake.storage.s3.access.key wal2lake.storage.s3.secret.key
wal2lake.storage.gcs.endpoint wal2lake.storage.gcs.account.file wal2lake.storage.azure.endpoint
wal2lake.storage.azure.account.name wal2lake.storage.azure.account.key wal2lake.storage.azure.tenant.id
wal2lake.storage.azure.client.id wal2lake.storage.azure.client.secret
wal2lake.lake.catalog.database bootstrap.servers producer.* admin.* topic.creation.* offsets.storage.topic
wal2lake.quality.rules.path wal2lake.quality.docs.path wal2lake.quality.docs.url wal2lake.sinks wal2lake.state.path
wal2lake.spark.NAME wal2lake.snapshot.schedule wal2lake.snapshot.schedule.timezone wal2lake.maintenance.schedule
wal2lake.reconcile.schedule wal2lake.metrics.host wal2lake.dagster.owners wal2lake.dagster.tags
wal2lake.dagster.checks key.converter value.converter header.converter
"""
OTHERS = set(_TEXTS.split())

NAMING = {declared.name: declared for declared in PROPERTIES if declared.names is not Named.NOTHING}
# Of each kind: an entry that matches, and one that does not, with what is proposed for it.
ENTRIES = {
    Named.SCHEMAS: ("publi.", "pubic"),
    Named.TABLES: (r"public\.o.*", r"public\.order"),
    Named.TABLE: ("public.orders", "public.order"),
    Named.CAPTURED: (r"PUBLIC\.ORDERS", r"public\.order"),
    Named.CAPTURED_TABLE: ("public.orders", "public.order"),
    Named.COLUMNS: (r"public\.orders\.note", r"public\.orders\.notes"),
    Named.TYPES: (r".*\.text", r"public\.orders\.txt"),
}
FORMS = {
    "message.key.columns": lambda entry: ":".join(entry.replace("\\", "").rsplit(".", 1)),
    "replica.identity.autoset.values": "{}:FULL".format,
    "wal2lake.dagster.freshness": "{}=1h".format,
    "wal2lake.quality.rule.NAME": "{}: after.id > 0".format,
}


def given(declared: Property, entry: str) -> dict[str, str]:
    """A file in which the property has the entry."""
    name = (
        declared.name.replace(".N.", ".5.")
        .replace("days.N", "days.5")
        .replace("seconds.N", "seconds.5")
        .replace("ALGORITHM", "SHA-256")
        .replace("NAME", "mine")
    )
    file = {**LEAST, name: FORMS.get(declared.name, str)(entry)}
    if declared.name == "snapshot.select.statement.overrides":
        file[f"{name}.{entry}"] = "select 1"
    return file


def reported(file: dict[str, str]):
    return unmatched(from_entries(file.items()), DATABASE)


@pytest.mark.parametrize("declared", PROPERTIES, ids=lambda declared: declared.name)
def test_every_property_of_texts_says_whether_it_names_something(declared):
    holds_texts = declared.kind in ("string", "list", "password") or "regular" in declared.kind
    if holds_texts and not declared.allowed:
        assert (declared.names is Named.NOTHING) is (declared.name in OTHERS), declared.name


@pytest.mark.parametrize("name", [name for name, one in NAMING.items() if one.names is not Named.LATER])
def test_an_entry_that_matches_nothing_is_reported(name):
    declared = NAMING[name]
    right, wrong = ENTRIES[declared.names]
    assert reported(given(declared, right)) == []
    (said,) = reported(given(declared, wrong))
    shown = re.sub(
        "SALT$",
        "*" * 8,
        name.replace(".N.", ".5.")
        .replace("days.N", "days.5")
        .replace("seconds.N", "seconds.5")
        .replace("ALGORITHM", "SHA-256"),
    ).replace("NAME", "mine")
    assert shown in said.found and wrong.split(r"\.")[-1] in said.found
    assert said.remedy.startswith("Did you mean "), said.remedy
    nothing = "zz.yyyyyy.xxxxx" if declared.names in (Named.COLUMNS, Named.TYPES) else "zz.yyyyyy"
    (said,) = reported(given(declared, nothing))
    assert not said.remedy.startswith("Did you mean"), said.remedy
    assert said.is_error is (name == "snapshot.select.statement.overrides")


def test_names_of_tables_are_read_as_debezium_reads_them():
    name = "snapshot.select.statement.overrides"

    def override(table):
        return reported({**LEAST, name: table, f"{name}.{table}": "select 1"})

    for right in ("public.orders", "shop.public.orders", '"public"."My.Table"', '"public".orders'):
        assert override(right) == [], right
        config = from_entries({**LEAST, name: right, f"{name}.{right}": "select 1"}.items())
        table = TableId("public", "orders" if "orders" in right else "My.Table")
        assert config.snapshot.statement_of(table) == "select 1"
        assert config.snapshot.statement_of(TableId("public", "Orders")) is None
    for wrong in ("public.ORDERS", "elsewhere.public.orders", "public.My.Table", "orders.public"):
        (said,) = override(wrong)
        assert said.is_error, wrong
    assert override("public.ORDERS")[0].remedy == "Did you mean public.orders?"
    assert override("elsewhere.public.orders")[0].remedy == "Did you mean public.orders?"


def test_a_view_and_a_foreign_table_are_distinguished():
    assert "public.seen, which is a view" in reported({**LEAST, "table.include.list": "public.seen"})[0].found
    assert reported({**LEAST, "table.include.list": "public.far"}) == []


def test_a_value_from_elsewhere_is_not_shown(monkeypatch):
    monkeypatch.setenv("HIDDEN", "public.hidden")
    (said,) = reported({**LEAST, "table.exclude.list": "${env:HIDDEN}"})
    assert "hidden" not in said.found and "${env:HIDDEN} of table.exclude.list" in said.found


def test_a_signal_table_is_found_regardless_of_case_and_in_quotes():
    for right in ("other.signals", "OTHER.Signals", '"other"."signals"', "shop.other.signals"):
        assert reported({**LEAST, "signal.data.collection": right}) == []
    (said,) = reported({**LEAST, "signal.data.collection": "other.signal"})
    assert "no signal can arrive" in said.found and said.remedy == "Did you mean other.signals?"

"""Any value of any property is valid, or refused by one sentence when the connector file is read."""

import random
import string

import pytest

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.events import envelope_context
from cdc_core.config.catalogue import PACKAGES
from cdc_core.config.connector import from_entries
from cdc_core.config.unsupported import unsupported_properties
from cdc_core.errors import ConfigError
from cdc_core.events.envelope.table_events import TableEvents
from cdc_core.events.kafka.settings import consumer_settings, producer_settings
from cdc_core.lake.delta.storage import Storage
from cdc_core.option import properties_of
from cdc_core.postgres.connection import connection_string, place
from cdc_core.postgres.replication import plugin
from cdc_core.postgres.replication.replica_identity import rule_for
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.selection.columns import plan_columns
from cdc_core.selection.event_key import key_columns
from cdc_core.selection.messages import MessageSelection
from cdc_core.snapshot.modes import mode_actions
from cdc_core.snapshot.signals.actions import load_actions
from cdc_core.types.registry import resolve
from tests.support.sampling import examples
from tests.unit.config.test_connector import LEAST

TYPES = {"id": (23, "int4"), "v": (25, "text"), "n": (1700, "numeric"), "b": (17, "bytea"), "d": (1082, "date")}
TABLE = TableSchema(
    TableId("public", "t"),
    1,
    tuple(Column(name, PgType(*type_)) for name, type_ in (*TYPES.items(), ("m", (790, "money")))),
    ("id",),
)
NAMES = [
    *(declared.name for _, options in PACKAGES.values() for declared in properties_of(options).values()),
    *(declared.name for declared in unsupported_properties()),
    "column.truncate.to.0.chars",
    "column.truncate.to.99999999999.chars",
    "column.mask.with.2147483648.chars",
    "column.mask.hash.v2.SHA-3.with.salt.s",
    "snapshot.select.statement.overrides.t",
    "toasted.value.placeholder",
    "truncate.handling.mode",
]
WRONG = (
    "", "-1", "0", "1.5", "9" * 25, "9" * 5000, "nan", "x", "hex:zz", "a(", "\\", "*", "🐘", ",", ";", ":", "=", ".",
    "a.b.c", "a.b:c", 'a."b', "%s", "${env:X", "${env:WAL2LAKE_NO_SUCH_VARIABLE}", "a\0b", "a\nb", "a=b", "public.t: (",
    "61 * * * *", "١",
)  # fmt: skip
SECRETS = (
    *("database.password", "database.sslpassword", "wal2lake.storage.s3.secret.key"),
    *("wal2lake.storage.azure.account.key", "wal2lake.storage.azure.client.secret"),
)


def uses(config):
    """What a run makes of its file before it reads a row. Raises ConfigError."""
    context = RunContext(config)
    selection = config.snapshot.selection(config.selection)
    assert selection.position(TABLE.id) and selection.includes(TABLE.id) in (True, False)
    selection.includes_in_snapshot(TABLE.id)
    plans = plan_columns(TABLE, config.selection)
    MessageSelection(config.selection).includes("p")
    mode_actions(config.snapshot)
    load_actions(config.signals.signal_actions)
    config.snapshot.statement_of(TABLE.id)
    config.lake.delete_modes.of(TABLE.id)
    storage = Storage.of(config.lake)
    for store in (storage.s3, storage.gcs, storage.azure):
        store.for_delta_rs()
    place(config.postgres)
    connection_string(config.postgres)
    rule_for(config.postgres.replica_identity_autoset_values, TABLE.id)
    plugin.parameters(config.postgres, config.postgres.publication_name, 150000)
    key_columns(TABLE, config.schema.message_key_columns)
    context.plan.typer(TABLE).change_schema  # noqa: B018
    outlet = config.outlet()
    records = envelope_context(context, outlet)
    records.names.topic(TABLE.id)
    TableEvents(TABLE, {column.name: resolve(column, config.types) for column in TABLE.columns}, records, plans)
    if "kafka" in config.engine.sinks:
        producer_settings(config.kafka)
    if "kafka" in config.signals.signal_enabled_channels:
        consumer_settings(config.kafka, "signal.consumer", dict(config.signals.signal_consumer), "h:1")
    config.state_path.resolve()


def judged(name, value):
    """Whether the value is accepted; what is said of one that is not is read."""
    concrete = (
        name.replace(".N.", ".5.")
        .replace("days.N", "days.5")
        .replace("seconds.N", "seconds.5")
        .replace("ALGORITHM", "MD5")
        .replace("SCHEMA.TABLE", "public.t")
    )
    concrete = concrete.replace("NAME.*", "mine.type").replace("NAME", "mine").replace(".*", ".some")
    concrete = concrete.replace("DRIVER_PROPERTY", "autosave")
    try:
        config = from_entries({**LEAST, "wal2lake.lake.path": "/lake", concrete: value}.items())
    except ConfigError as error:
        assert ".".join(concrete.split(".")[:2]) in str(error), f"{concrete}={value!r}: {error}"
        return False
    uses(config)
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_value_is_valid_or_refused_by_a_sentence(name):
    chance = random.Random(name)
    more = ["".join(chance.choices(string.printable, k=chance.randint(1, 12))) for _ in range(examples(4))]
    for value in (*WRONG, *more):
        try:
            judged(name, value)
        except ConfigError:
            # Of what is loaded or built once: classes of the user, transforms, formats. ``check`` says the same.
            assert name.startswith(("transforms", "predicates", "snapshot.mode.custom", "wal2lake.signal.act")) or (
                "converter" in name or name in ("slot.stream.params", *SECRETS)
            ), f"{name}={value!r}"


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("connector.class", "io.debezium.connector.mysql.MySqlConnector", False),
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector", True),
        ("connector.class", "PostgresCdcSource", True),
        ("max.batch.size", "0", False),
        ("max.batch.size", "2048", True),
        ("column.truncate.to.0.chars", "public.t.v", False),
        ("column.mask.with.0.chars", "public.t.v", True),
        ("toasted.value.placeholder", "hex:zz", False),
        ("unavailable.value.placeholder", "hex:C3BF", True),
        ("database.autosave", "always", True),
        ("database.sslmod", "require", False),
        ("snapshot.delay.ms", "99999999999", False),
    ],
)
def test_values_that_were_accepted_or_refused_by_mistake(name, value, valid):
    assert judged(name, value) is valid


def test_a_property_of_the_driver_is_ignored_with_the_reason():
    config = from_entries({**LEAST, "database.autosave": "always", "database.loginTimeout": "5"}.items())
    assert config.warnings == (
        "Ignored, because libpq connects, not a JDBC driver: database.autosave, database.loginTimeout.",
    )

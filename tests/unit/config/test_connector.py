"""A connector file as one value: what is taken, what is said, what is refused."""

import json

import pytest

from cdc_core.config.catalogue import find
from cdc_core.config.connector import from_entries, load
from cdc_core.config.explanation import explain
from cdc_core.errors import ConfigError
from cdc_core.postgres.options import IdentityRule, LsnFlushMode, SslMode
from cdc_core.quality.options import UserRule
from cdc_core.schema.options import KeyRule, NameAdjustmentMode
from cdc_core.snapshot.options import SnapshotMode
from cdc_core.types.options import DecimalHandlingMode

LEAST = {
    "database.hostname": "localhost",
    "database.user": "debezium",
    "database.dbname": "shop",
    "topic.prefix": "shop",
    "plugin.name": "pgoutput",
}
# A connector as recorded beside the golden events.
RECORDED = """\
name=golden
connector.class=io.debezium.connector.postgresql.PostgresConnector
offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore
offset.flush.interval.ms=500
database.hostname=127.0.0.1
database.port=55400
database.user=postgres
database.password=x
topic.prefix=fulfillment
plugin.name=pgoutput
schema.include.list=inventory
signal.data.collection=inventory.debezium_signal
skipped.operations=none
database.dbname=golden
slot.name=golden
publication.name=golden
snapshot.mode=no_data
column.mask.hash.SHA-256.with.salt.CzQMA0cB5K=inventory.customers.first_name,inventory.t_basic.vc
datatype.propagate.source.type=.+\\\\.timestamp
message.key.columns=inventory.customers:last_name,id;(.*).t_nopk:a
"""


def config_of(extra=None, without=()):
    entries = {name: text for name, text in LEAST.items() if name not in without}
    return from_entries((entries | (extra or {})).items())


def refusal(extra=None, without=()):
    with pytest.raises(ConfigError) as raised:
        config_of(extra, without)
    return str(raised.value)


def test_a_recorded_file_is_taken_as_it_is(tmp_path):
    path = tmp_path / "golden.properties"
    path.write_text(RECORDED)
    config = load(path)
    assert config.connector_name == "golden"
    assert config.postgres.database_port == 55400
    assert config.postgres.database_password.reveal() == "x"
    assert config.selection.schema_include_list == ("inventory",)
    assert config.selection.skipped_operations == ()
    assert config.selection.column_mask_hash == (
        ("SHA-256", "CzQMA0cB5K", ("inventory.customers.first_name", "inventory.t_basic.vc")),
    )
    assert config.selection.datatype_propagate_source_type == (r".+\.timestamp",)
    assert config.schema.message_key_columns == (
        KeyRule("inventory.customers", ("last_name", "id")),
        KeyRule("(.*).t_nopk", ("a",)),
    )
    assert config.snapshot.snapshot_mode is SnapshotMode.NO_DATA
    # What configures Kafka Connect changes nothing here: it is listed by check --explain, and no warning.
    assert config.warnings == ()
    shown = {row.name: row.status for row in explain(config)}
    for name in ("name", "connector.class", "offset.storage", "offset.flush.interval.ms"):
        assert "ignored" in shown[name]


@pytest.mark.parametrize("wrapped", [True, False])
def test_json_is_read_with_its_own_kinds_of_values(tmp_path, wrapped):
    body = {
        **LEAST,
        "database.port": 6000,
        "slot.drop.on.stop": True,
        "wal2lake.freshness.seconds": 0.5,
        "tasks.max": None,
    }
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({"name": "shop-connector", "config": body} if wrapped else body))
    config = load(path)
    assert config.postgres.database_port == 6000
    assert config.postgres.slot_drop_on_stop is True
    assert config.engine.freshness_seconds == 0.5
    assert config.connector_name == ("shop-connector" if wrapped else "shop")


@pytest.mark.parametrize(
    ("text", "part"),
    [("{", "not JSON"), ("[1]", "not a JSON object"), ('{"topic.prefix": {"a": 1}}', "holds an object or a list")],
)
def test_json_of_another_shape_is_refused(tmp_path, text, part):
    path = tmp_path / "connector.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=part):
        load(path)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "none.properties")


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("databse.hostname", "database.hostname"),
        ("decimal.handling.mod", "decimal.handling.mode"),
        ("table.includelist", "table.include.list"),
        ("database.tcpkeepalive", "database.tcpKeepAlive"),
        ("wal2lake.lake.paht", "wal2lake.lake.path"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_right_one(name, right):
    assert f"{name} is not a property of the connector. Did you mean {right}?" in refusal({name: "x"})


def test_a_name_like_nothing_is_refused():
    assert refusal({"zzz.qqq": "1"}).endswith("zzz.qqq is not a property of the connector.")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("decimal.handling.mode", "exact", "one of precise, double, string"),
        ("time.precision.mode", "micro", "one of adaptive, adaptive_time_microseconds, connect, isostring, micro"),
        ("snapshot.mode", "sometimes", "one of always, initial, initial_only, no_data, when_needed"),
        ("tombstones.on.delete", "yes", "true or false"),
        ("database.port", "0", "a whole number from 1 to 65535"),
        ("database.port", "99999", "a whole number from 1 to 65535"),
        ("money.fraction.digits", "-1", "a whole number of 0 or more"),
        ("slot.name", "Shop", "1 to 63 lower-case letters, digits and underscores"),
        ("slot.name", "a" * 64, "1 to 63 lower-case letters, digits and underscores"),
        ("slot.name", "a-b", "1 to 63 lower-case letters, digits and underscores"),
        ("publication.name", "p" * 64, "a name of 1 to 63 bytes"),
        ("topic.prefix", "a b", "letters, digits, hyphens, dots and underscores"),
        ("skipped.operations", "c,x", "a comma-separated list of c, u, d, t, or none"),
        ("skipped.operations", "none,c", "a comma-separated list of c, u, d, t, or none"),
        ("message.key.columns", "inventory.customers", "schema.table:column"),
        ("replica.identity.autoset.values", "a.b:SOME", "schema.table:DEFAULT, FULL, NOTHING or INDEX name"),
        ("signal.data.collection", "signals", "schema.table"),
        ("slot.stream.params", "add-tables", "name=value pairs"),
        ("topic.naming.strategy", "com.acme.Mine", "io.debezium.schema.SchemaTopicNamingStrategy"),
        ("wal2lake.sinks", "kafka,noop", "lake, kafka, lake,kafka or noop"),
        ("wal2lake.quality.failure.limit", "1.5", "a number from 0 to 1"),
        ("wal2lake.freshness.seconds", "nan", "a number"),
        ("wal2lake.freshness.seconds", "-1", "a number from 0"),
        ("wal2lake.slice.split.rows", "0", "a whole number"),
        ("wal2lake.merge.rewrite.max.bytes", "0", "a whole number"),
        ("wal2lake.lake.history.minutes", "-1", "a whole number"),
        ("wal2lake.quality.rule.positive", "amount > 0", "schema.table: a SQL predicate"),
        ("truncate.handling.mode", "drop", "one of skip, include"),
    ],
)
def test_a_wrong_value_says_what_is_allowed(name, value, expected):
    text = refusal({name: value})
    assert f"{name} is {value!r}: expected" in text
    assert expected in text


@pytest.mark.parametrize("name", ["database.hostname", "database.user", "database.dbname", "topic.prefix"])
def test_a_missing_property_is_named(name):
    assert f"{name} is missing" in refusal(without=(name,))
    assert f"{name} is missing" in refusal({name: " "})


def test_all_problems_are_reported_at_once():
    text = refusal({"slot.name": "A", "nonsense.key.here": "1"}, without=("database.user",))
    assert "has 3 problems" in text
    assert text.count("\n- ") == 3


@pytest.mark.parametrize("kind", ["schema", "table", "column", "message.prefix"])
def test_an_include_and_an_exclude_list_of_one_kind_are_refused(kind):
    text = refusal({f"{kind}.include.list": "a", f"{kind}.exclude.list": "b"})
    assert f"{kind}.include.list and {kind}.exclude.list are both set: keep one of them." in text


def test_a_broken_regular_expression_names_its_property():
    assert "table.include.list: 'a(' is not a regular expression" in refusal({"table.include.list": "a("})
    assert "column.mask.with.N.chars: 'b['" in refusal({"column.mask.with.5.chars": "b["})


def test_an_unknown_digest_is_refused_and_its_salt_not_shown():
    text = refusal({"column.mask.hash.v2.SHA-257.with.salt.Pepper": "a.b.c"})
    assert "'SHA-257': expected one of MD5" in text
    assert "Pepper" not in text


def test_a_listed_override_needs_its_statement():
    name = "snapshot.select.statement.overrides"
    assert f"{name}.inventory.orders is missing" in refusal({name: "inventory.orders"})
    config = config_of({name: "inventory.orders", f"{name}.inventory.orders": "select 1"})
    assert config.snapshot.snapshot_select_statements == (("inventory.orders", "select 1"),)


def test_a_connection_class_is_refused_with_the_way_out():
    text = refusal({"database.connection.factory.class": "io.debezium.PostgresAwsIamConnectionFactory"})
    assert "database.connection.factory.class is refused, because" in text
    assert "${file:PATH}" in text


def test_the_choice_of_an_engine_is_refused():
    text = refusal({"wal2lake.merge.engine": "auto"})
    assert "wal2lake.merge.engine is refused, because one engine writes lake tables" in text


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("database.server.name", "topic.prefix", "other"),
        ("toasted.value.placeholder", "unavailable.value.placeholder", "hex:00"),
        ("table.whitelist", "table.include.list", "a.b"),
        ("heartbeat.topics.prefix", "topic.heartbeat.prefix", "hb"),
    ],
)
def test_an_older_name_is_taken_with_one_warning(old, new, value):
    config = config_of({old: value}, without=(new,))
    assert config.warnings == (f"{old} is the older name of {new}.",)
    packages = (config.schema, config.selection, config.types)
    field = new.replace(".", "_")
    assert next(getattr(package, field) for package in packages if hasattr(package, field)) in (value, (value,))


def test_the_present_name_wins_over_the_older_one():
    config = config_of({"database.server.name": "old"})
    assert config.schema.topic_prefix == "shop"
    assert config.warnings == ("database.server.name is ignored, because topic.prefix, which replaced it, is set too.",)


def test_older_values_and_forms_still_mean_what_they_meant():
    assert config_of({"snapshot.mode": "never"}).snapshot.snapshot_mode is SnapshotMode.NO_DATA
    assert config_of({"snapshot.mode": "exported"}).snapshot.snapshot_mode is SnapshotMode.INITIAL
    assert config_of({"truncate.handling.mode": "include"}).selection.skipped_operations == ()
    assert config_of({"truncate.handling.mode": "skip"}).selection.skipped_operations == ("t",)
    both = {"truncate.handling.mode": "include", "skipped.operations": "t,d"}
    assert config_of(both).selection.skipped_operations == ("t", "d")
    assert config_of({"sanitize.field.names": "true"}).schema.field_adjustment is NameAdjustmentMode.AVRO
    assert config_of({"flush.lsn.source": "false"}).postgres.lsn_flush_mode is LsnFlushMode.MANUAL
    given = {"flush.lsn.source": "false", "lsn.flush.mode": "connector"}
    assert config_of(given).postgres.lsn_flush_mode is LsnFlushMode.CONNECTOR


def test_what_is_not_carried_yet_is_one_line_a_reason():
    config = config_of(
        {
            "guardrail.collections.max": "1",
            "guardrail.collections.limit.action": "warn",
            "statistics.metrics.enabled": "true",
        }
    )
    assert config.warnings == (
        "Not supported yet (a limit on the number of captured tables): guardrail.collections.max, "
        "guardrail.collections.limit.action.",
        "Not supported yet (metrics): statistics.metrics.enabled.",
    )


def test_what_a_converter_or_transform_heads_is_ignored_with_it():
    given = {"converters": "isbn", "isbn.type": "com.acme.Isbn", "transforms.x.type": "y"}
    config = config_of(given)
    assert any("converters, isbn.type" in line for line in config.warnings)
    with pytest.raises(ConfigError, match=r"converters names the Java class of isbn, .*converters\.ignored=isbn"):
        config.require_carried()
    config_of({**given, "wal2lake.converters.ignored": "isbn"}).require_carried()
    assert "isbn.type is not a property" in refusal({"isbn.type": "com.acme.Isbn"})


def test_transforms_and_converters_are_read_and_checked():
    given = {
        "transforms": "u",
        "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.u.drop.tombstones": "false",
        "key.converter.schemas.enable": "false",
    }
    config = config_of({**given, "wal2lake.lake.path": "/lake"})
    assert config.warnings == (
        f"No effect on the lake, because transforms and formats are for events: {', '.join(given)}.",
        "transforms.u.drop.tombstones: replaced by transforms.u.delete.tombstone.handling.mode=tombstone.",
    )
    assert config.outlet() is not None and config_of().outlet() is None
    wrong = config_of({**given, "transforms.u.type": "com.acme.Mine"})
    said = "transforms.u.type is com.acme.Mine, which wal2lake does not have."
    assert wrong.warnings == (f"wal2lake envelopes cannot run with this file: {said}",)
    with pytest.raises(ConfigError, match=r"com\.acme\.Mine"):
        wrong.outlet()


def test_field_names_are_adjusted_for_avro():
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://r",
    }
    assert config_of(avro).schema.field_adjustment is NameAdjustmentMode.AVRO
    unicode = config_of({**avro, "field.name.adjustment.mode": "avro_unicode"})
    assert unicode.schema.field_adjustment is NameAdjustmentMode.AVRO_UNICODE
    assert config_of().schema.field_adjustment is NameAdjustmentMode.NONE


def test_topics_that_are_renamed_need_valid_expressions():
    strategy = {"topic.naming.strategy": "io.debezium.schema.SchemaRegexTopicNamingStrategy"}
    assert "topic.regex is missing" in refusal(strategy)
    assert "topic.replacement is missing" in refusal({**strategy, "topic.regex": "a"})
    assert "not valid" in refusal({**strategy, "topic.regex": "(", "topic.replacement": "x"})


def test_credentials_of_a_registry_are_not_shown():
    config = config_of({"value.converter.basic.auth.user.info": "me:hunter2"})
    assert "hunter2" not in repr(config) and "hunter2" not in repr(config.settings)


def test_the_mode_of_ones_own_needs_its_class_and_the_switches_their_mode():
    assert "snapshot.mode.custom.name is missing" in refusal({"snapshot.mode": "custom"})
    named = {"snapshot.mode": "custom", "snapshot.custom.class": "mine.Mode"}
    assert config_of(named).snapshot.snapshot_mode_custom_name == "mine.Mode"
    switch = "snapshot.mode.configuration.based.start.stream"
    assert any("not configuration_based" in line for line in config_of({switch: "true"}).warnings)
    config = config_of({"snapshot.mode": "configuration_based", switch: "true"})
    assert config.snapshot.snapshot_mode_configuration_based_start_stream
    assert config.warnings == ()


def test_a_value_not_carried_yet_can_be_read_but_not_run():
    config = config_of({"snapshot.locking.mode": "custom"})
    with pytest.raises(ConfigError, match=r"snapshot.locking.mode=custom is not supported yet"):
        config.require_carried()
    config_of().require_carried()


def test_a_plug_in_without_publications_says_that_their_properties_have_no_effect():
    config = config_of({"plugin.name": "wal2json_rds", "publication.name": "p"})
    assert config.postgres.plugin_name.on_server == "wal2json"
    config.require_carried()
    (warning,) = [text for text in config.warnings if "no publications" in text]
    assert "publication.name" in warning


def test_a_lake_needs_a_path_only_when_something_goes_there():
    with pytest.raises(ConfigError, match=r"wal2lake.lake.path is missing"):
        config_of().require_lake()
    config_of({"wal2lake.sinks": "noop"}).require_lake()
    config_of({"wal2lake.lake.path": "/lake"}).require_lake()


def test_a_name_given_twice_is_reported_and_the_last_value_is_used():
    config = from_entries([*LEAST.items(), ("database.port", "1"), ("database.port", "2")])
    assert config.postgres.database_port == 2
    assert "database.port is set twice; the last value is used." in config.warnings


def test_families_keep_their_order_and_parts():
    config = config_of(
        {
            "column.mask.with.10.chars": "a.b.c",
            "column.mask.with.0.chars": r"a.b.d{1\,2}, a.b.e",
            "wal2lake.spark.spark.sql.shuffle.partitions": "8",
            "wal2lake.spark.spark.hadoop.fs.s3a.secret.key": "Clear",
            "wal2lake.quality.rule.positive": "inventory.orders: after.amount > 0 or x = ':'",
        }
    )
    assert config.selection.column_mask_with_n_chars == (("10", ("a.b.c",)), ("0", ("a.b.d{1,2}", "a.b.e")))
    assert config.engine.spark == (
        ("spark.sql.shuffle.partitions", "8"),
        ("spark.hadoop.fs.s3a.secret.key", "Clear"),
    )
    assert config.quality.quality_rules == (("positive", UserRule("inventory.orders", "after.amount > 0 or x = ':'")),)
    assert "Clear" not in repr(config)


def test_texts_with_structure_become_values():
    config = config_of(
        {
            "database.initial.statements": "SET a TO 'x;;y'; SET b TO 1;",
            "replica.identity.autoset.values": "inventory.*:FULL,public.t:index t_u",
            "slot.stream.params": "a=1;b=2",
            "database.sslmode": "verify-full",
            "decimal.handling.mode": "DOUBLE",
        }
    )
    assert config.postgres.database_initial_statements == ("SET a TO 'x;y'", "SET b TO 1")
    assert config.postgres.replica_identity_autoset_values == (
        IdentityRule("inventory.*", "FULL"),
        IdentityRule("public.t", "INDEX", "t_u"),
    )
    assert config.postgres.slot_stream_params == (("a", "1"), ("b", "2"))
    assert config.postgres.database_sslmode is SslMode.VERIFY_FULL
    assert config.types.decimal_handling_mode is DecimalHandlingMode.DOUBLE


@pytest.mark.parametrize(
    ("extra", "part"),
    [
        ({"heartbeat.action.query": "select 1"}, "heartbeat.action.query has no effect"),
        ({"skipped.operations": "d", "wal2lake.lake.path": "/l"}, "lake tables will differ from the source"),
        ({"skipped.operations": "t", "wal2lake.lake.path": "/l"}, "excludes t: lake tables will differ"),
        ({"plugin.name": ""}, "pgoutput is used, where Debezium would use decoderbufs"),
        (
            {"plugin.name": "decoderbufs", "message.prefix.include.list": "a"},
            "decoderbufs, which sends no logical messages: message.prefix.include.list",
        ),
        ({"snapshot.select.statement.overrides.a.b": "select 1"}, "The statements for a.b have no effect"),
        (
            {"publish.via.partition.root": "true", "publication.autocreate.mode": "disabled"},
            "publish.via.partition.root has no effect",
        ),
    ],
)
def test_settings_without_effect_or_with_too_much_are_reported(extra, part):
    assert any(part in line for line in config_of(extra).warnings)


@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("wal2lake.batch.max.seconds", "wal2lake.freshness.seconds"),
        ("wal2lake.merge.interval.seconds", "wal2lake.freshness.seconds"),
        ("wal2lake.merge.parallelism", "one Spark job over all tables"),
    ],
)
def test_settings_of_the_former_rounds_are_named_and_ignored(tmp_path, name, because):
    path = tmp_path / "shop.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in {**LEAST, name: "5"}.items()))
    config = load(path)
    assert [warning for warning in config.warnings if name in warning]
    assert because in find(name).property.reason

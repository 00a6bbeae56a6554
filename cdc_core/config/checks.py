"""Checks of combinations of properties that are each valid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cdc_core.config.reach import out_of_reach
from cdc_core.config.references import has_reference
from cdc_core.errors import ConfigError
from cdc_core.events import FormatOptions, KafkaOptions
from cdc_core.lake import LakeOptions
from cdc_core.option import MASK, properties_of
from cdc_core.postgres import InProgress, OutputPlugin, PostgresOptions
from cdc_core.schema import NameAdjustmentMode, SchemaOptions, TableId
from cdc_core.selection import DIGESTS, SelectionOptions, compile_pattern
from cdc_core.snapshot import SignalOptions, SnapshotOptions
from cdc_core.types import TypeOptions

_EXCLUSIVE = (
    ("schema_include_list", "schema_exclude_list", "schema.include.list", "schema.exclude.list"),
    ("table_include_list", "table_exclude_list", "table.include.list", "table.exclude.list"),
    ("column_include_list", "column_exclude_list", "column.include.list", "column.exclude.list"),
    (
        "message_prefix_include_list",
        "message_prefix_exclude_list",
        "message.prefix.include.list",
        "message.prefix.exclude.list",
    ),
)
_LONGEST_DIGITS = 10
_SWITCHES = "snapshot.mode.configuration.based."
_FAMILIES = ("column_truncate_to_n_chars", "column_mask_with_n_chars", "column_mask_hash", "column_mask_hash_v2")


def check(packages: Mapping[str, Any], properties: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return (problems, warnings) of a complete configuration. ``properties`` are the file's entries."""
    problems = [
        *_both_lists(packages["selection"]),
        *_bad_patterns(packages, properties),
        *_bad_digests(packages["selection"]),
        *_bad_lengths(packages["selection"]),
        *_overrides_without_statement(packages["snapshot"]),
        *packages["snapshot"].problems,
        *_topic_routing(packages["schema"]),
        *_kafka(packages),
    ]
    warnings: list[str] = []
    for warn in (
        _older_values,
        _idle_settings,
        _signals_not_heard,
        _lake_that_differs,
        _default_plugin,
        _no_publication,
        out_of_reach,
        _events_outlet,
    ):
        warnings += warn(packages, properties)
    return problems, warnings


def unready(snapshot: SnapshotOptions, types: TypeOptions) -> list[str]:
    """Return one sentence for each chosen value that is not supported yet, or would change values unseen."""
    missing = []
    unconfirmed = types.unconfirmed_converters
    if unconfirmed:
        missing.append(
            f"converters names the Java class of {', '.join(unconfirmed)}, which wal2lake cannot load: the values "
            "of its columns would be those without it. To run without it, set wal2lake.converters.ignored="
            f"{','.join(types.converters)}."
        )
    return [*missing, *snapshot.unsupported]


def _events_outlet(packages: Mapping[str, Any], properties: Mapping[str, str]) -> Iterable[str]:
    """A file for Kafka Connect may name classes of transforms and formats that wal2lake does not have."""
    if not packages["transforms"].transforms and packages["formats"] == FormatOptions():
        return
    from cdc_core.events import make_chain, make_outlet

    try:
        make_outlet(packages["transforms"], packages["formats"])
        chain = make_chain(packages["transforms"])
    except ConfigError as error:
        yield f"wal2lake envelopes cannot run with this file: {error}"
        return
    yield from chain.older
    if chain.unread:
        yield f"No effect, because the transform does not have the property: {', '.join(chain.unread)}."


def _kafka(packages: Mapping[str, Any]) -> Iterable[str]:
    """Yield what keeps events from being written to Kafka: settings, transforms and formats."""
    if "kafka" not in packages["engine"].sinks:
        return
    from cdc_core.events import TopicRules, admin_settings, make_outlet, producer_settings

    kafka: KafkaOptions = packages["kafka"]
    for examine in (
        lambda: producer_settings(kafka),
        lambda: admin_settings(kafka),
        TopicRules(kafka.topic_creation).check,
        lambda: make_outlet(packages["transforms"], packages["formats"], is_raw=True),
    ):
        try:
            examine()
        except ConfigError as error:
            yield str(error)
            return


def _topic_routing(schema: SchemaOptions) -> Iterable[str]:
    if not schema.topic_naming_strategy.is_regex:
        return
    for regex, replacement in (
        ("topic_regex", "topic_replacement"),
        ("topic_key_field_regex", "topic_key_field_replacement"),
    ):
        names = [properties_of(SchemaOptions)[field].name for field in (regex, replacement)]
        if not getattr(schema, regex) and regex == "topic_regex":
            yield f"{names[0]} is missing: topic.naming.strategy needs it."
        if getattr(schema, regex) and not getattr(schema, replacement):
            yield f"{names[1]} is missing: {names[0]} is set."
    from cdc_core.events import routing_of

    try:
        routing_of(schema)
    except ValueError as error:
        yield f"topic.regex, topic.replacement or topic.key.field.*: not valid in Java and wal2lake alike ({error})."


def _both_lists(selection: SelectionOptions) -> Iterable[str]:
    for included, excluded, include_name, exclude_name in _EXCLUSIVE:
        if getattr(selection, included) and getattr(selection, excluded):
            yield f"{include_name} and {exclude_name} are both set: keep one of them."


def _bad_patterns(packages: Mapping[str, Any], properties: Mapping[str, str]) -> Iterable[str]:
    selection: SelectionOptions = packages["selection"]
    snapshot: SnapshotOptions = packages["snapshot"]
    schema: SchemaOptions = packages["schema"]
    lake: LakeOptions = packages["lake"]
    postgres: PostgresOptions = packages["postgres"]
    named: list[tuple[str, tuple[str, ...]]] = []
    for field, declared in properties_of(SelectionOptions).items():
        if declared.kind == "list of regular expressions":
            value = getattr(selection, field)
            named += [(declared.name, entry[-1]) for entry in value] if declared.pattern else [(declared.name, value)]
    named.append(("snapshot.include.collection.list", snapshot.snapshot_include_collection_list))
    keys = [f"{rule.table}.{column}" for rule in schema.message_key_columns for column in rule.columns]
    named.append(("message.key.columns", tuple(keys)))
    identities = tuple(rule.table for rule in postgres.replica_identity_autoset_values)
    named.append(("replica.identity.autoset.values", identities))
    named += [(f"wal2lake.lake.delete.mode.{mode.value}", patterns) for mode, patterns in lake.delete_modes.patterns]
    for name, patterns in named:
        for pattern in patterns:
            try:
                compile_pattern(pattern)
            except ValueError as error:
                # The resolved value of a reference is not printed.
                subject = "its value" if has_reference(properties.get(name, "")) else repr(pattern)
                yield f"{name}: {subject} is not a regular expression that Java and wal2lake read alike ({error})."


def _bad_digests(selection: SelectionOptions) -> Iterable[str]:
    for version, entries in (("", selection.column_mask_hash), ("v2.", selection.column_mask_hash_v2)):
        for algorithm, _, _ in entries:
            if algorithm.upper() not in DIGESTS:
                allowed = ", ".join(DIGESTS)
                yield (
                    f"column.mask.hash.{version}{algorithm!r}.with.salt.{MASK} uses the digest {algorithm!r}: "
                    f"expected one of {allowed}."
                )


def _bad_lengths(selection: SelectionOptions) -> Iterable[str]:
    for name, least, entries in (
        ("column.truncate.to.{}.chars", 1, selection.column_truncate_to_n_chars),
        ("column.mask.with.{}.chars", 0, selection.column_mask_with_n_chars),
    ):
        for length, _ in entries:
            if len(length) > _LONGEST_DIGITS or not least <= int(length) < 2**31:
                yield f"{name.format(length)}: the length is expected to be a whole number from {least} to {2**31 - 1}."


def _overrides_without_statement(snapshot: SnapshotOptions) -> Iterable[str]:
    stated = set()
    for table, _ in snapshot.snapshot_select_statements:
        try:
            stated.add(TableId.of_text(table))
        except ValueError as error:
            yield f"snapshot.select.statement.overrides.{table} names no table: expected {error}."
    for table in snapshot.snapshot_select_statement_overrides:
        if TableId.of_text(table) not in stated:
            name = f"snapshot.select.statement.overrides.{table}"
            yield f"{name} is missing: snapshot.select.statement.overrides lists the table {table}."


def _older_values(packages: Mapping[str, Any], properties: Mapping[str, str]) -> Iterable[str]:
    mode = properties.get("snapshot.mode", "").strip().lower()
    if mode in ("never", "exported", "schema_only"):
        yield f"snapshot.mode={mode} is the older name of {packages['snapshot'].snapshot_mode}."
    schema: SchemaOptions = packages["schema"]
    if schema.sanitize_field_names:
        if schema.field_name_adjustment_mode is NameAdjustmentMode.NONE:
            yield "sanitize.field.names=true is the older form of field.name.adjustment.mode=avro."
        else:
            yield "sanitize.field.names is ignored, because field.name.adjustment.mode is set too."
    if "flush.lsn.source" in properties:
        if "lsn.flush.mode" in properties:
            yield "flush.lsn.source is ignored, because lsn.flush.mode, which replaced it, is set too."
        else:
            yield "flush.lsn.source is the older form of lsn.flush.mode."


def _idle_settings(packages: Mapping[str, Any], properties: Mapping[str, str]) -> Iterable[str]:
    postgres: PostgresOptions = packages["postgres"]
    if postgres.heartbeat_action_query and not postgres.heartbeat_interval_ms:
        yield "heartbeat.action.query has no effect, because heartbeat.interval.ms is 0."
    snapshot: SnapshotOptions = packages["snapshot"]
    listed = set(map(_table, snapshot.snapshot_select_statement_overrides))
    unlisted = [table for table, _ in snapshot.snapshot_select_statements if _table(table) not in listed]
    if unlisted:
        names = ", ".join(unlisted)
        yield f"The statements for {names} have no effect: snapshot.select.statement.overrides does not list them."
    switches = [name for name in properties if name.startswith(_SWITCHES)]
    yield from snapshot.ineffective(switches)
    if postgres.publish_via_partition_root and properties.get("publication.autocreate.mode", "").strip() == "disabled":
        yield "publish.via.partition.root has no effect, because publication.autocreate.mode is disabled."
    channels = packages["signals"].signal_enabled_channels
    for channel, of_channel in (
        ("kafka", ("signal.kafka.", "signal.consumer.")),
        ("file", ("signal.file", "signal.poll.interval.ms")),
    ):
        idle = [name for name in properties if name.startswith(of_channel)]
        if idle and channel not in channels:
            yield f"No effect, because signal.enabled.channels does not list {channel}: {', '.join(idle)}."


def _table(text: str) -> TableId | None:
    try:
        return TableId.of_text(text)
    except ValueError:
        return None


def _signals_not_heard(packages: Mapping[str, Any], properties: Mapping[str, str]) -> Iterable[str]:
    signals: SignalOptions = packages["signals"]
    yield from signals.unsupported()
    sinks, topic = packages["engine"].sinks, signals.notification_sink_topic_name
    if "sink" in signals.notification_enabled_channels and not packages["lake"].lake_path:
        if "kafka" not in sinks:
            yield "The notification channel sink has no effect without wal2lake.lake.path or wal2lake.sinks=kafka."
        elif not topic:
            yield "The notification channel sink has no effect without notification.sink.topic.name."


def _lake_that_differs(packages: Mapping[str, Any], given: Mapping[str, str]) -> Iterable[str]:
    told = "skipped.operations" in given  # the default has t, which a lake needs
    skipped = [op for op in packages["selection"].skipped_operations if op != "t" or told]
    if skipped and "lake" in packages["engine"].sinks and packages["lake"].lake_path:
        yield f"skipped.operations excludes {', '.join(skipped)}: lake tables will differ from the source."


def _default_plugin(packages: Mapping[str, Any], given: Mapping[str, str]) -> Iterable[str]:
    if not given.get("plugin.name", "").strip():
        yield "plugin.name is not set: pgoutput is used, where Debezium would use decoderbufs."


def _no_publication(packages: Mapping[str, Any], given: Mapping[str, str]) -> Iterable[str]:
    postgres: PostgresOptions = packages["postgres"]
    names = [name for name in given if name.startswith("publication.") or name == "publish.via.partition.root"]
    if names and not postgres.plugin_name.has_publication:
        yield f"No effect with plugin.name={postgres.plugin_name}, which has no publications: {', '.join(names)}."
    lists = [name for name in given if name.startswith("message.prefix.")]
    if lists and postgres.plugin_name is OutputPlugin.DECODERBUFS:
        yield f"No effect with plugin.name=decoderbufs, which sends no logical messages: {', '.join(lists)}."
    if postgres.streaming_transactions is InProgress.ON and not postgres.sends_in_progress:
        yield f"wal2lake.streaming.transactions has no effect with plugin.name={postgres.plugin_name}."

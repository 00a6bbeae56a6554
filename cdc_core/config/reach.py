"""What each supported property has an effect on: the lake, events, or both; and why not on the other.

One table: from it a start and ``wal2lake check`` report properties without effect, and docs/configuration.md has
its column. A property that is not in it is a defect (tests/house/test_properties).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from cdc_core.config.catalogue import KnownProperty, find


class Reach(StrEnum):
    """What a property has an effect on."""

    BOTH = "lake and events"
    LAKE = "lake"
    EVENTS = "events"


# Properties of events alone, by the reason why the lake does not need them.
_EVENTS = {
    "lake tables have types of their own, whose values are exact (docs/types.md)": """
        decimal.handling.mode time.precision.mode interval.handling.mode hstore.handling.mode binary.handling.mode
        money.fraction.digits include.unknown.datatypes unavailable.value.placeholder""",
    "a lake has no topics, keys and schemas of events": """
        topic.delimiter topic.naming.strategy topic.regex topic.replacement topic.key.enforce.uniqueness
        topic.key.field.name topic.key.field.regex topic.key.field.replacement topic.transaction topic.heartbeat.prefix
        topic.heartbeat.name schema.name.adjustment.mode field.name.adjustment.mode sanitize.field.names
        column.propagate.source.type datatype.propagate.source.type extended.headers.enabled tombstones.on.delete
        xmin.fetch.interval.ms""",
    "a lake table has the key of its source table: the primary key, else a unique index": "message.key.columns",
    "its tables have every change": "skip.messages.without.change",
    "a table with a change that cannot be processed is paused, and the others continue": """
        event.processing.failure.handling.mode""",
    "transforms and formats are for events": """
        transforms transforms.NAME.* predicates predicates.NAME.* errors.tolerance key.converter value.converter
        header.converter key.converter.* value.converter.* header.converter.* converter.*""",
    "its incremental snapshots write nothing to the source": "incremental.snapshot.watermarking.strategy read.only",
    "its stream begins once the snapshot's rows are committed": "streaming.delay.ms",
    "only events are written to Kafka": """
        notification.sink.topic.name bootstrap.servers producer.* admin.* topic.creation.* exactly.once.support
        offsets.storage.topic wal2lake.kafka.stall.timeout.ms wal2lake.kafka.backlog.max.bytes
        openlineage.integration.dataset.kafka.bootstrap.servers""",
}
_LAKE = """
    offset.mismatch.strategy snapshot.max.threads wal2lake.lake.path wal2lake.storage.s3.endpoint
    wal2lake.storage.s3.region wal2lake.storage.s3.access.key wal2lake.storage.s3.secret.key
    wal2lake.storage.s3.path.style wal2lake.storage.gcs.endpoint wal2lake.storage.gcs.account.file
    wal2lake.storage.azure.endpoint wal2lake.storage.azure.account.name wal2lake.storage.azure.account.key
    wal2lake.storage.azure.tenant.id wal2lake.storage.azure.client.id wal2lake.storage.azure.client.secret
    wal2lake.changelog.reads wal2lake.changelog.retention.days
    wal2lake.changelog.retention.days.N
    wal2lake.merge.rewrite.max.bytes wal2lake.merge.index.max.bytes wal2lake.merge.part.max.bytes
    wal2lake.lake.history.minutes wal2lake.vacuum.hours wal2lake.lake.schema.changes wal2lake.lake.features
    wal2lake.lake.clustered.tables wal2lake.lake.row.tracking.tables wal2lake.lake.change.feed.tables
    wal2lake.lake.change.feed.hours wal2lake.lake.commit.timestamps wal2lake.lake.catalog.database
    wal2lake.lake.dropped.columns wal2lake.lake.delete.mode wal2lake.lake.delete.mode.hard
    wal2lake.lake.delete.mode.soft wal2lake.lake.delete.mode.history wal2lake.quality.enabled
    wal2lake.quality.failure.limit wal2lake.quality.quarantine.limit.rows wal2lake.quality.rules.path
    wal2lake.quality.docs.path wal2lake.quality.docs.url wal2lake.quality.rule.NAME wal2lake.batch.max.rows
    wal2lake.batch.max.bytes wal2lake.freshness.seconds wal2lake.freshness.seconds.N wal2lake.slice.split.rows
    wal2lake.spool.max.bytes
    wal2lake.snapshot.rows.per.partition wal2lake.snapshot.threads wal2lake.spark.NAME
    wal2lake.reconcile.rows.per.second wal2lake.reconcile.wait.seconds wal2lake.reconcile.changelog.bytes
    wal2lake.reconcile.spark.bytes wal2lake.reconcile.keep.days wal2lake.maintenance.schedule
    wal2lake.reconcile.schedule wal2lake.dagster.freshness wal2lake.dagster.checks
    wal2lake.alerts.quarantine.rows wal2lake.catalogs wal2lake.catalogs.database wal2lake.catalogs.table
    wal2lake.catalogs.owner wal2lake.catalogs.unity.url wal2lake.catalogs.unity.token wal2lake.catalogs.unity.catalog
"""
_BOTH = """
    database.hostname database.port database.user database.password database.dbname database.sslmode database.sslcert
    database.sslkey database.sslpassword database.sslrootcert database.tcpKeepAlive database.initial.statements
    database.query.timeout.ms connection.validation.timeout.ms plugin.name slot.name slot.drop.on.stop slot.max.retries
    slot.retry.delay.ms slot.stream.params slot.failover publication.name publication.autocreate.mode
    publish.via.partition.root replica.identity.autoset.values status.update.interval.ms heartbeat.interval.ms
    heartbeat.action.query lsn.flush.mode flush.lsn.source wal2lake.streaming.transactions
    wal2lake.streaming.transactions.max.bytes topic.prefix
    schema.include.list schema.exclude.list table.include.list table.exclude.list table.ignore.builtin
    column.include.list column.exclude.list column.truncate.to.N.chars column.mask.with.N.chars
    column.mask.hash.ALGORITHM.with.salt.SALT column.mask.hash.v2.ALGORITHM.with.salt.SALT skipped.operations
    message.prefix.include.list message.prefix.exclude.list provide.transaction.metadata
    signal.data.collection event.converting.failure.handling.mode snapshot.mode snapshot.mode.custom.name
    snapshot.mode.configuration.based.snapshot.data snapshot.mode.configuration.based.start.stream
    snapshot.mode.configuration.based.snapshot.on.data.error snapshot.include.collection.list
    snapshot.select.statement.overrides snapshot.select.statement.overrides.SCHEMA.TABLE snapshot.locking.mode
    snapshot.lock.timeout.ms snapshot.delay.ms snapshot.tables.order.by.row.count incremental.snapshot.chunk.size
    signal.enabled.channels signal.poll.interval.ms signal.file signal.kafka.topic signal.kafka.bootstrap.servers
    signal.kafka.groupId signal.kafka.poll.timeout.ms signal.consumer.* wal2lake.signal.actions
    notification.enabled.channels wal2lake.converters.ignored wal2lake.sinks wal2lake.state.path
    errors.max.retries errors.retry.delay.initial.ms
    errors.retry.delay.max.ms retriable.restart.connector.wait.ms wal2lake.snapshot.schedule
    wal2lake.snapshot.schedule.tables wal2lake.snapshot.schedule.timezone wal2lake.metrics.port
    wal2lake.metrics.required wal2lake.metrics.host
    custom.metric.tags
    wal2lake.telemetry.otlp.endpoint wal2lake.telemetry.otlp.interval.seconds
    wal2lake.alerts.url wal2lake.alerts.after.seconds wal2lake.alerts.lag.bytes
    wal2lake.log.format wal2lake.dagster.owners wal2lake.dagster.tags
    openlineage.integration.enabled openlineage.integration.config.file.path openlineage.integration.job.namespace
    openlineage.integration.job.description openlineage.integration.job.tags openlineage.integration.job.owners
"""
# The channel kafka of signals has them, too.
_OF_SIGNALS = ("bootstrap.servers", "producer.*")


@cache
def reaches() -> dict[str, tuple[Reach, str]]:
    """Return the name of each supported property → its reach, and the reason if the lake is not in it."""
    table: dict[str, tuple[Reach, str]] = {}
    for reason, names in _EVENTS.items():
        table |= dict.fromkeys(names.split(), (Reach.EVENTS, reason))
    return table | dict.fromkeys(_LAKE.split(), (Reach.LAKE, "")) | dict.fromkeys(_BOTH.split(), (Reach.BOTH, ""))


def out_of_reach(packages: Mapping[str, Any], properties: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each reason why configured properties have no effect, as their output is not written.

    A property with its default value changes nothing anywhere, and is left out.
    """
    sinks = packages["engine"].sinks
    changed = [(name, known) for name in properties if (known := find(name)) and _is_changed(packages, known)]
    if sinks == ("lake",) and packages["lake"].lake_path:
        kept = _OF_SIGNALS if "kafka" in packages["signals"].signal_enabled_channels else ()
        bundles: dict[str, list[str]] = {}
        for name, known in changed:
            reach, reason = reaches().get(known.property.name, (Reach.BOTH, ""))
            if reach is Reach.EVENTS and known.property.name not in kept:
                bundles.setdefault(reason, []).append(name)
        for reason, names in bundles.items():
            yield f"No effect on the lake, because {reason}: {_listed(names)}."
    if sinks == ("kafka",):
        names = [
            name for name, known in changed if reaches().get(known.property.name, (Reach.BOTH, ""))[0] is Reach.LAKE
        ]
        if names:
            yield f"No effect without a lake, because wal2lake.sinks is kafka: {_listed(names)}."


def _is_changed(packages: Mapping[str, Any], found: KnownProperty) -> bool:
    if not found.package:
        return False
    declared = found.property
    return bool(declared.pattern) or getattr(packages[found.package], found.field) != declared.default


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)

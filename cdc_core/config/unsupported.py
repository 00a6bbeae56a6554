"""Properties without effect in any package: Kafka Connect's, Java's classes, and those not supported yet.

Each is declared once with its reason, so that a connector file made for Debezium is read completely and nothing in it
is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc_core.option import Property, PropertyStatus, at_least

CONNECT = "it configures Kafka Connect, which wal2lake does not use"
JAVA_CLASS = "it names a Java class, which wal2lake cannot load"
QUEUE = "memory is bounded by wal2lake.batch.* and wal2lake.spool.max.bytes"
CHUNKS = "large tables are split by wal2lake.snapshot.rows.per.partition"
INTERNAL = "it is internal to Debezium"
ROUNDS = "rounds are scheduled by wal2lake.freshness.seconds"
POOL = "a round is one Spark job over all tables"
THREADS = "a run waits for its own threads to end"
TIMEOUT = "connection.validation.timeout.ms sets the limit"
MANY_DATABASES = "a connector captures one database, set by database.dbname"
FEEDBACK = "positions are confirmed by a status message that has no reply"

LATER_SIGNALS = "repeating a signal whose snapshot failed"
LATER_CLASSES = "custom classes for locking tables or building queries"
LATER_METRICS = "metrics"
LATER_GUARDRAIL = "a limit on the number of captured tables"

_IGNORED: dict[str, tuple[str, ...]] = {
    CONNECT: (
        "name",
        "connector.class",
        "tasks.max",
        "tasks.max.enforce",
        "group.id",
        "plugin.path",
        "topic.cache.size",
        "config.action.reload",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "max.request.size",
    ),
    JAVA_CLASS: (
        "post.processors",
        "sourceinfo.struct.maker",
        "transaction.metadata.factory",
        "memory.management.schemas.class",
        "memory.management.tables.class",
    ),
    QUEUE: ("max.batch.size", "max.queue.size", "max.queue.size.in.bytes", "queue.provider.type", "query.fetch.size"),
    ROUNDS: (
        "poll.interval.ms",
        "wal2lake.batch.max.seconds",
        "wal2lake.merge.interval.seconds",
    ),
    POOL: ("wal2lake.merge.parallelism",),
    CHUNKS: ("snapshot.max.threads.multiplier", "legacy.snapshot.max.threads"),
    MANY_DATABASES: ("database.include.list", "database.exclude.list"),
    FEEDBACK: ("lsn.flush.timeout.ms", "lsn.flush.timeout.action"),
    "the PostgreSQL connector has no schema history": ("include.schema.changes",),
    THREADS: ("executor.shutdown.timeout.ms",),
    "secret properties are declared as such": ("custom.sanitize.pattern",),
    "libpq makes TLS connections; database.sslmode and database.sslrootcert decide": ("database.sslfactory",),
    TIMEOUT: ("database.connection.timeout.ms",),
    "events have the source block of Debezium 3.6": ("source.struct.version",),
}
# pgjdbc's properties, which Debezium passes on to it.
_DRIVER = """
    adaptiveFetch adaptiveFetchMaximum adaptiveFetchMinimum allowEncodingChanges ApplicationName assumeMinServerVersion
    authenticationPluginClassName autosave binaryTransfer binaryTransferDisable binaryTransferEnable
    cancelSignalTimeout channelBinding cleanupSavepoints connectTimeout convertBooleanToNumeric currentSchema
    databaseMetadataCacheFields databaseMetadataCacheFieldsMiB defaultRowFetchSize disableColumnSanitiser
    escapeSyntaxCallMode groupStartupParameters gssEncMode gsslib gssResponseTimeout gssUseDefaultCreds
    hideUnprivilegedObjects hostRecheckSeconds jaasApplicationName jaasLogin kerberosServerName loadBalanceHosts
    localSocketAddress loggerFile loggerLevel loginTimeout logServerErrorDetail logUnclosedConnections maxResultBuffer
    maxSendBufferSize options pemKeyAlgorithm prepareThreshold preparedStatementCacheQueries
    preparedStatementCacheSizeMiB preferQueryMode protocolVersion queryTimeout quoteReturningIdentifiers readOnly
    readOnlyMode receiveBufferSize replication reWriteBatchedInserts sendBufferSize service socketFactory
    socketFactoryArg socketTimeout ssl sslfactoryarg sslhostnameverifier sslNegotiation sslpasswordcallback
    sslResponseTimeout sspiServiceClass stringtype targetServerType tcpNoDelay unknownLength useSpnego
    xmlFactoryFactory
"""
_IGNORED_FAMILIES: dict[str, tuple[tuple[str, str], ...]] = {
    CONNECT: (
        ("offset.*", r"offset\.(storage|flush|commit)(\..+)?"),
        ("errors.*", r"errors\.(?!max\.retries$|retry\.delay\.(initial|max)\.ms$|tolerance$).+"),
        ("consumer.*", r"consumer\..+"),
        ("config.providers.*", r"config\.providers(\..+)?"),
        ("record.processing.*", r"record\.processing\..+"),
        ("schema.history.internal.*", r"(schema\.history\.internal|database\.history)(\..+)?"),
        ("debezium.embedded.*", r"debezium\.embedded\..+"),
    ),
    "libpq connects, not a JDBC driver": (
        ("driver.*", r"driver\..+"),
        ("database.DRIVER_PROPERTY", rf"database\.(?i:{'|'.join(_DRIVER.split())})"),
    ),
    INTERNAL: (("internal.*", r"internal\..+"),),
}
_REFUSED: dict[str, tuple[str, ...]] = {
    "one engine writes lake tables: it rewrites small files and marks rows of others in deletion vectors, or rewrites "
    "them too with wal2lake.lake.features=widest": ("wal2lake.merge.engine",),
    "prepared transactions are read at COMMIT PREPARED; large ones are received earlier with "
    "wal2lake.streaming.transactions=on": ("wal2lake.streaming.transactions.two.phase",),
    "the source enforces its foreign keys; a test of dbt or Dagster compares two lake tables with one statement": (
        "wal2lake.quality.references",
        "wal2lake.quality.references.severity",
    ),
    "it names a Java class that makes connections; give the password by ${file:PATH} instead": (
        "database.connection.factory.class",
        "database.connection.class.factory",
    ),
}
_NOT_YET: dict[str, tuple[str, ...]] = {
    LATER_CLASSES: ("snapshot.locking.mode.custom.name", "snapshot.query.mode.custom.name"),
    LATER_SIGNALS: ("signal.emit.failure.max.retries",),
    LATER_METRICS: ("statistics.metrics.enabled", "advanced.metrics.enable"),
    LATER_GUARDRAIL: ("guardrail.collections.max", "guardrail.collections.limit.action"),
}
# Ignoring these changes nothing that is captured: ``check --explain`` lists them, a run does not warn.
WITHOUT_EFFECT = frozenset({CONNECT, QUEUE, CHUNKS, INTERNAL, FEEDBACK, THREADS, TIMEOUT})
# Their values are prefixes of further properties: with ``converters=a``, everything under ``a.``
NAMING_LISTS = ("converters", "post.processors")


def _parse_class(text: str) -> str:
    """Parse a class of Debezium's PostgreSQL connector, by its full or simple name, or a managed service's name."""
    if "postgres" not in text.lower():
        raise ValueError("Debezium's connector for PostgreSQL, io.debezium.connector.postgresql.PostgresConnector")
    return text


# Without effect, but refused by Debezium if their values are not valid: a file that it does not start with.
_PARSERS: dict[str, Callable[[str], Any]] = {
    "connector.class": _parse_class,
    "tasks.max": at_least(1),
    "max.batch.size": at_least(1),
    "max.queue.size": at_least(1),
    "max.queue.size.in.bytes": at_least(0),
    "poll.interval.ms": at_least(1),
    "query.fetch.size": at_least(0),
}


def unsupported_properties() -> tuple[Property, ...]:
    """Return all of them, in the order of the tables above."""
    properties: list[Property] = []
    for status, names in (
        (PropertyStatus.IGNORED, _IGNORED),
        (PropertyStatus.REFUSED, _REFUSED),
        (PropertyStatus.NOT_YET, _NOT_YET),
    ):
        for reason, group in names.items():
            properties += [_property(name, status, reason) for name in group]
    for reason, members in _IGNORED_FAMILIES.items():
        properties += [_property(name, PropertyStatus.IGNORED, reason, pattern) for name, pattern in members]
    return tuple(properties)


def _property(name: str, status: PropertyStatus, reason: str, pattern: str = "") -> Property:
    return Property(name, None, "", _PARSERS.get(name, str), status, reason, pattern=pattern)

"""Options of connection, slot and publication."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from cdc_core.option import Named, Secret, at_least, option

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
_IDENTITY = re.compile(r"(?i:(DEFAULT|FULL|NOTHING)|INDEX\s+(\S.*))")


class SslMode(StrEnum):
    """libpq's sslmode."""

    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


class OutputPlugin(StrEnum):
    """The server's logical decoding plugin. The last three are Debezium 1.9's names of variants of wal2json."""

    PGOUTPUT = "pgoutput"
    DECODERBUFS = "decoderbufs"
    WAL2JSON = "wal2json"
    WAL2JSON_STREAMING = "wal2json_streaming"
    WAL2JSON_RDS = "wal2json_rds"
    WAL2JSON_RDS_STREAMING = "wal2json_rds_streaming"

    @property
    def on_server(self) -> str:
        """The plug-in's name on the server."""
        return "wal2json" if self.startswith("wal2json") else self.value

    @property
    def has_publication(self) -> bool:
        """Whether a publication selects what is sent; the other plug-ins send every table of the database."""
        return self is OutputPlugin.PGOUTPUT


class PublicationAutocreateMode(StrEnum):
    """What to do if the publication does not exist.

    ``all_tables``: FOR ALL TABLES. ``filtered``: for the captured tables, and an existing one is altered accordingly.
    ``no_tables``: an empty one. ``disabled``: refuse to start.
    """

    ALL_TABLES = "all_tables"
    DISABLED = "disabled"
    FILTERED = "filtered"
    NO_TABLES = "no_tables"


class InProgress(StrEnum):
    """``wal2lake.streaming.transactions``: PostgreSQL's values of ``streaming``, without ``parallel``."""

    OFF = "off"
    ON = "on"


class OffsetStrategy(StrEnum):
    """``offset.mismatch.strategy``: Debezium's values, and strict, the default of a lake."""

    STRICT = "strict"
    NO_VALIDATION = "no_validation"
    TRUST_OFFSET = "trust_offset"
    TRUST_SLOT = "trust_slot"
    TRUST_GREATER_LSN = "trust_greater_lsn"


class LsnFlushMode(StrEnum):
    """``manual``: never confirmed to the slot. The others: once a position is durable; keepalives are answered."""

    MANUAL = "manual"
    CONNECTOR = "connector"
    CONNECTOR_AND_DRIVER = "connector_and_driver"


@dataclass(frozen=True, slots=True)
class IdentityRule:
    """``table``: regex over schema.table. ``identity``: DEFAULT, FULL, NOTHING or INDEX; ``index`` its name."""

    table: str
    identity: str
    index: str = ""


def parse_slot_name(text: str) -> str:
    """Parse a slot name by PostgreSQL's rule."""
    if _SLOT_NAME.fullmatch(text.strip()) is None:
        raise ValueError("1 to 63 lower-case letters, digits and underscores")
    return text.strip()


def parse_publication_name(text: str) -> str:
    """Parse a PostgreSQL identifier: 1 to 63 bytes."""
    name = text.strip()
    if not 1 <= len(name.encode()) <= 63 or "\0" in name:
        raise ValueError("a name of 1 to 63 bytes")
    return name


def parse_port(text: str) -> int:
    """Parse a TCP port."""
    if not text.strip().isdecimal() or not 1 <= int(text) <= 65535:
        raise ValueError("a whole number from 1 to 65535")
    return int(text)


def parse_statements(text: str) -> tuple[str, ...]:
    """Parse statements separated by ``;``; ``;;`` is a semicolon inside one."""
    parts = re.split(r"(?<!;);(?!;)", text)
    return tuple(part.strip().replace(";;", ";") for part in parts if part.strip())


def parse_stream_params(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``name=value`` pairs separated by ``;``."""
    pairs = []
    for part in text.split(";"):
        name, separator, value = part.partition("=")
        if not part.strip():
            continue
        if not separator or not name.strip():
            raise ValueError("name=value pairs separated by semicolons")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


def parse_identity_rules(text: str) -> tuple[IdentityRule, ...]:
    """Parse ``table-regex:DEFAULT|FULL|NOTHING|INDEX name``, comma-separated."""
    rules = []
    for part in text.split(","):
        if not part.strip():
            continue
        table, _, identity = part.strip().rpartition(":")
        match = _IDENTITY.fullmatch(identity.strip())
        if not table or match is None:
            raise ValueError("schema.table:DEFAULT, FULL, NOTHING or INDEX name, separated by commas")
        rules.append(IdentityRule(table.strip(), (match[1] or "INDEX").upper(), match[2] or ""))
    return tuple(rules)


parse_port.kind = "integer"  # type: ignore[attr-defined]
parse_statements.kind = "list"  # type: ignore[attr-defined]
parse_stream_params.kind = "list"  # type: ignore[attr-defined]
parse_identity_rules.kind = "list"  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """Options of the connections to the server."""

    database_hostname: str = option(
        "database.hostname",
        "",
        "Host name, address, or the folder of a Unix socket. A list (host:port, host:port; without a port that of "
        "database.port) names servers of which one is the primary: the run connects to that one.",
        required=True,
    )
    database_port: int = option("database.port", 5432, "TCP port.", parse=parse_port)
    database_user: str = option("database.user", "", "Role to connect as; needs LOGIN and REPLICATION.", required=True)
    database_password: Secret = option("database.password", Secret(), "Its password.", secret=True)
    database_dbname: str = option("database.dbname", "", "Database to capture.", required=True)
    database_sslmode: SslMode = option("database.sslmode", SslMode.PREFER, "Whether and how TLS is used.")
    database_sslcert: str = option("database.sslcert", "", "File of the client's certificate.")
    database_sslkey: str = option("database.sslkey", "", "File of the client's private key.")
    database_sslpassword: Secret = option("database.sslpassword", Secret(), "Password of the private key.", secret=True)
    database_sslrootcert: str = option(
        "database.sslrootcert", "", "File of the certificates that the server's is verified against."
    )
    database_tcp_keep_alive: bool = option(
        "database.tcpKeepAlive", True, "Whether TCP keepalive probes are sent on idle connections, by the server too."
    )
    database_initial_statements: tuple[str, ...] = option(
        "database.initial.statements",
        (),
        "SQL run on each new connection except the replication connection; statements are separated by "
        "semicolons, ;; is a literal semicolon.",
        parse=parse_statements,
    )
    database_query_timeout_ms: int = option(
        "database.query.timeout.ms", 600_000, "Maximum duration of a statement; 0 for no limit.", parse=at_least(0)
    )
    connection_validation_timeout_ms: int = option(
        "connection.validation.timeout.ms", 60_000, "Maximum time for opening a connection.", parse=at_least(1)
    )
    plugin_name: OutputPlugin = option(
        "plugin.name",
        OutputPlugin.PGOUTPUT,
        "Logical decoding output plugin (docs/plugins.md). pgoutput is part of the server; Debezium's default is "
        "decoderbufs. wal2json_streaming, wal2json_rds and wal2json_rds_streaming mean wal2json.",
    )
    slot_name: str = option(
        "slot.name",
        "debezium",
        "Name of the replication slot; it is created if it does not exist.",
        parse=parse_slot_name,
    )
    slot_drop_on_stop: bool = option(
        "slot.drop.on.stop",
        False,
        "Whether a normal stop drops the slot. For tests: changes made until the next start are lost. Without effect "
        "in Dagster, where runs end and begin again.",
    )
    slot_max_retries: int = option(
        "slot.max.retries", 6, "Number of retries when the slot is in use.", parse=at_least(0)
    )
    slot_retry_delay_ms: int = option("slot.retry.delay.ms", 10_000, "Wait between these retries.", parse=at_least(0))
    slot_stream_params: tuple[tuple[str, str], ...] = option(
        "slot.stream.params",
        (),
        "Additional parameters of the output plugin: name=value;name=value.",
        parse=parse_stream_params,
    )
    streaming_transactions: InProgress = option(
        "wal2lake.streaming.transactions",
        InProgress.OFF,
        "Whether the server sends transactions larger than its logical_decoding_work_mem while they are in progress "
        "(PostgreSQL 14 and later, pgoutput). They are kept in wal2lake.state.path until they commit, in files without "
        "names, and nothing of them is visible before.",
    )
    streaming_transactions_max_bytes: int = option(
        "wal2lake.streaming.transactions.max.bytes",
        16 * 1024**3,
        "Limit of the transactions in progress that are kept in memory and in wal2lake.state.path. Beyond it a run "
        "logs a warning and reads each transaction after its commit until it ends, as with "
        "wal2lake.streaming.transactions=off.",
        parse=at_least(1),
    )
    slot_failover: bool = option(
        "slot.failover",
        False,
        "Whether a slot created by wal2lake is synchronized to standbys (PostgreSQL 17 and later).",
    )
    publication_name: str = option(
        "publication.name", "dbz_publication", "Name of the publication.", parse=parse_publication_name
    )
    publication_autocreate_mode: PublicationAutocreateMode = option(
        "publication.autocreate.mode",
        PublicationAutocreateMode.ALL_TABLES,
        "What to do if the publication does not exist.",
    )
    publish_via_partition_root: bool = option(
        "publish.via.partition.root",
        False,
        "Whether a publication created by wal2lake publishes changes of partitions as changes of the "
        "partitioned table.",
    )
    replica_identity_autoset_values: tuple[IdentityRule, ...] = option(
        "replica.identity.autoset.values",
        (),
        "Replica identities set at start: schema.table:FULL, schema.other:INDEX name, ….",
        parse=parse_identity_rules,
        names=Named.CAPTURED,
    )
    status_update_interval_ms: int = option(
        "status.update.interval.ms",
        10_000,
        "Interval of status updates to the server: at most 10 s, and a third of its wal_sender_timeout.",
        parse=at_least(1),
    )
    xmin_fetch_interval_ms: int = option(
        "xmin.fetch.interval.ms",
        0,
        "Interval at which the slot's xmin is read for source.xmin; 0 for never.",
        parse=at_least(0),
    )
    heartbeat_interval_ms: int = option(
        "heartbeat.interval.ms", 0, "Time between heartbeat records; 0 for none.", parse=at_least(0)
    )
    heartbeat_action_query: str = option(
        "heartbeat.action.query",
        "",
        "SQL that every run executes at its start and after each heartbeat.interval.ms, with or without a lake.",
    )
    lsn_flush_mode: LsnFlushMode = option(
        "lsn.flush.mode", LsnFlushMode.CONNECTOR, "Whether durable positions are confirmed to the slot."
    )
    offset_mismatch_strategy: OffsetStrategy = option(
        "offset.mismatch.strategy",
        OffsetStrategy.STRICT,
        "What a start does if the slot's position is not one that the lake recorded (docs/continuity.md): strict, "
        "no_validation, trust_offset, trust_slot or trust_greater_lsn.",
    )
    flush_lsn_source: bool = option("flush.lsn.source", True, "Older form of lsn.flush.mode: false is manual.")

    @property
    def sends_in_progress(self) -> bool:
        "Whether the server sends transactions in progress."
        return self.streaming_transactions is InProgress.ON and self.plugin_name is OutputPlugin.PGOUTPUT

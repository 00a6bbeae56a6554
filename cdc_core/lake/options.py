"""Options of the lake's location and of how it is written."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.object_stores import parse_lake_path
from cdc_core.option import Named, Secret, at_least, option, parse_patterns
from cdc_core.schema import DroppedColumns, LakeFeatures, Policy, SchemaChanges
from cdc_core.selection import NumberByTable


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Options of the lake's tables."""

    lake_path: str = option(
        "wal2lake.lake.path",
        "",
        "Root of the lake: a folder, s3://bucket/folder, gs://bucket/folder, "
        "abfss://container@account.dfs.core.windows.net/folder or az://container/folder. Needed by the sink lake.",
        parse=parse_lake_path,
    )
    storage_s3_endpoint: str = option(
        "wal2lake.storage.s3.endpoint",
        "",
        "URL of an S3-compatible store other than AWS, for a lake at s3a://; http:// is allowed. Used by Spark "
        "and delta-rs.",
    )
    storage_s3_region: str = option("wal2lake.storage.s3.region", "", "Region of the S3 store.")
    storage_s3_access_key: str = option(
        "wal2lake.storage.s3.access.key",
        "",
        "Access key of the S3 store; empty for the environment's credentials (variables, profiles, roles).",
    )
    storage_s3_secret_key: Secret = option(
        "wal2lake.storage.s3.secret.key", Secret(), "Secret key of the S3 store: ${env:NAME}.", secret=True
    )
    storage_s3_path_style: bool = option(
        "wal2lake.storage.s3.path.style",
        False,
        "Whether the bucket is part of the path instead of the host name, as most S3-compatible stores require.",
    )
    storage_gcs_endpoint: str = option(
        "wal2lake.storage.gcs.endpoint",
        "",
        "URL of a server of Google Cloud Storage's API other than Google's, for a lake at gs://; http:// is allowed.",
    )
    storage_gcs_account_file: str = option(
        "wal2lake.storage.gcs.account.file",
        "",
        "File with the JSON key of a service account, for a lake at gs://; empty for the environment's credentials "
        "(GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_SERVICE_ACCOUNT, the machine's account). Each machine that runs tasks "
        "needs the file.",
    )
    storage_azure_endpoint: str = option(
        "wal2lake.storage.azure.endpoint",
        "",
        "URL of a blob service other than that of the account at Azure, for a lake at abfss:// or az://; http:// is "
        "allowed.",
    )
    storage_azure_account_name: str = option(
        "wal2lake.storage.azure.account.name",
        "",
        "Storage account of a lake at az://container/folder; empty for AZURE_STORAGE_ACCOUNT_NAME. A path abfss:// "
        "names its account itself.",
    )
    storage_azure_account_key: Secret = option(
        "wal2lake.storage.azure.account.key",
        Secret(),
        "Key of the storage account: ${env:NAME}. Without it and a client secret, the environment's credentials "
        "(AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, "
        "AZURE_FEDERATED_TOKEN_FILE, a managed identity).",
        secret=True,
    )
    storage_azure_tenant_id: str = option(
        "wal2lake.storage.azure.tenant.id", "", "Tenant of the application that accesses the storage account."
    )
    storage_azure_client_id: str = option(
        "wal2lake.storage.azure.client.id", "", "Application (service principal) that accesses the storage account."
    )
    storage_azure_client_secret: Secret = option(
        "wal2lake.storage.azure.client.secret", Secret(), "Secret of the application: ${env:NAME}.", secret=True
    )
    changelog_reads: bool = option(
        "wal2lake.changelog.reads",
        False,
        "Whether snapshot rows are also written to the changelog tables, as op r.",
    )
    changelog_retention_days: int = option(
        "wal2lake.changelog.retention.days",
        30,
        "Days for which merged changes are kept in the changelog tables; 0 to keep them forever: then changelogs grow "
        "without bound. The files are removed by Delta's VACUUM. A run logs the number when it starts to stream.",
        parse=at_least(0),
    )
    changelog_retention_tables: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "wal2lake.changelog.retention.days.N",
        (),
        "Tables whose merged changes are kept for N days instead, 0 for ever: regular expressions that match "
        "schema.table. The first of these properties that matches is used.",
        parse=NumberByTable.parse_tables,
        pattern=r"wal2lake\.changelog\.retention\.days\.(\d{1,5})",
        names=Named.CAPTURED,
    )
    merge_rewrite_max_bytes: int = option(
        "wal2lake.merge.rewrite.max.bytes",
        64 * 1024 * 1024,
        "Size in bytes of the lake files of one table up to which a schema change rewrites them instead of using a "
        "Delta table feature. Also the size of files with changed rows from which rows are marked in deletion vectors, "
        "where it is less than 8 KiB; with wal2lake.lake.features=widest files of any size are rewritten instead.",
        parse=at_least(1),
    )
    merge_index_max_bytes: int = option(
        "wal2lake.merge.index.max.bytes",
        8 * 1024 * 1024 * 1024,
        "Maximum size in bytes of the indexes of keys of large lake tables, in the folder index of "
        "wal2lake.state.path on each machine. Those that were not used longest are removed and made again when needed. "
        "As many bytes of copies of a lake's recent files in an object store are in its folder objects, and as many of "
        "uncompressed copies of files of tables with a change data feed in the folder index.",
        parse=at_least(1),
    )
    merge_part_max_bytes: int = option(
        "wal2lake.merge.part.max.bytes",
        64 * 1024 * 1024,
        "Maximum size in bytes, in memory, of the changes of one table that a task decodes or merges at a time. Larger "
        "transactions and backlogs are divided into parts of this size, which are committed together. A task needs "
        "several times as much memory; a part has at least one row.",
        parse=at_least(1),
    )
    lake_history_minutes: int = option(
        "wal2lake.lake.history.minutes",
        15,
        "How long earlier versions of lake and changelog tables are kept for time travel. Replaced data files "
        "are kept for half an hour at least, for running queries; where they are more than twice the table's files and "
        "1 MiB, the oldest only for this time, or 15 minutes. 0 to keep everything, if OPTIMIZE and VACUUM are run by "
        "other means.",
        parse=at_least(0),
    )
    vacuum_hours: int = option(
        "wal2lake.vacuum.hours",
        168,
        "Age at which maintenance removes data files that no commit refers to, left by killed runs or failed "
        "snapshots. It must be longer than a snapshot of the largest table takes. Replaced files are removed "
        "according to wal2lake.lake.history.minutes.",
        parse=at_least(1),
    )
    lake_schema_changes: SchemaChanges = option(
        "wal2lake.lake.schema.changes",
        SchemaChanges.REREAD,
        "What happens to a table whose rows were rewritten in the source, or changed in another way that the "
        "stream does not contain: only this table is re-read, or only this table is paused until it is resumed. "
        "schema-changes.md lists the cases.",
    )
    lake_features: LakeFeatures = option(
        "wal2lake.lake.features",
        LakeFeatures.AUTO,
        "When Delta table features that some readers do not support (column mapping, type widening, deletion vectors) "
        "are enabled: when a schema change first needs one of the first two and the lake table is larger than "
        "wal2lake.merge.rewrite.max.bytes, or a merge first changes rows in large files (auto), never (widest: such "
        "changes rewrite files), or the first two from the start (modern). schema-changes.md lists the readers that "
        "support them.",
    )
    lake_clustered_tables: tuple[str, ...] = option(
        "wal2lake.lake.clustered.tables",
        (),
        "Lake tables that are clustered by their key (Delta's liquid clustering): regular expressions that "
        "match schema.table. Merges and queries by key then open fewer files of a large table. Every reader can "
        "read such a table.",
        parse=NumberByTable.parse_tables,
        names=Named.CAPTURED,
    )
    lake_row_tracking_tables: tuple[str, ...] = option(
        "wal2lake.lake.row.tracking.tables",
        (),
        "Lake tables with Delta's row tracking: regular expressions that match schema.table. A row then keeps its id "
        "(_metadata.row_id in Spark) when it is updated, and its commit version when it is only moved. Every reader "
        "can read such a table.",
        parse=NumberByTable.parse_tables,
        names=Named.CAPTURED,
    )
    lake_change_feed_tables: tuple[str, ...] = option(
        "wal2lake.lake.change.feed.tables",
        (),
        "Lake tables with Delta's change data feed: regular expressions that match schema.table. The rows that a "
        "commit changes are then also written to files of their own, which Spark and deltalake read as changes. Every "
        "reader can read such a table.",
        parse=NumberByTable.parse_tables,
        names=Named.CAPTURED,
    )
    lake_change_feed_hours: int = option(
        "wal2lake.lake.change.feed.hours",
        24,
        "How long the changes of a table with a change data feed can be read, so that a stream reader which was away "
        "continues; as long as wal2lake.lake.history.minutes at least. Only log entries and files of changes are kept "
        "for this time, no replaced data files: earlier versions of the table cannot be read for longer. A table whose "
        "own property delta.logRetentionDuration is longer keeps them for that time.",
        parse=at_least(0),
    )
    lake_commit_timestamps: bool = option(
        "wal2lake.lake.commit.timestamps",
        False,
        "Whether lake tables have in-commit timestamps, so that time travel by timestamp still works in a copy "
        "of the lake.",
    )
    lake_catalog_database: str = option(
        "wal2lake.lake.catalog.database",
        "",
        "Database of Spark's catalogue in which snapshots and wal2lake maintain register lake tables as schema_table; "
        "empty for none. wal2lake.spark.spark.sql.catalogImplementation=hive makes it a Hive metastore.",
    )
    lake_dropped_columns: DroppedColumns = option(
        "wal2lake.lake.dropped.columns",
        DroppedColumns.KEEP,
        "Whether a column that was dropped in the source is kept in the lake, with null in new rows, or dropped.",
    )

    lake_delete_mode: DeleteMode = option(
        "wal2lake.lake.delete.mode",
        DeleteMode.HARD,
        "How a delete in the source is applied to a lake table: the row is deleted (hard), it is kept with "
        "__deleted set to true (soft), or all versions of all rows are kept with their validity period "
        "(history). delete-modes.md describes the columns and queries.",
    )
    lake_delete_mode_hard: tuple[str, ...] = option(
        "wal2lake.lake.delete.mode.hard",
        (),
        "Tables (schema.table) with delete mode hard, regardless of wal2lake.lake.delete.mode.",
        parse=parse_patterns,
        names=Named.CAPTURED,
    )
    lake_delete_mode_soft: tuple[str, ...] = option(
        "wal2lake.lake.delete.mode.soft",
        (),
        "Tables (schema.table) with delete mode soft, regardless of wal2lake.lake.delete.mode.",
        parse=parse_patterns,
        names=Named.CAPTURED,
    )
    lake_delete_mode_history: tuple[str, ...] = option(
        "wal2lake.lake.delete.mode.history",
        (),
        "Tables (schema.table) with delete mode history, regardless of wal2lake.lake.delete.mode.",
        parse=parse_patterns,
        names=Named.CAPTURED,
    )

    @property
    def delete_modes(self) -> DeleteModes:
        """The delete mode of each table."""
        lists = {
            DeleteMode.HARD: self.lake_delete_mode_hard,
            DeleteMode.SOFT: self.lake_delete_mode_soft,
            DeleteMode.HISTORY: self.lake_delete_mode_history,
        }
        return DeleteModes(
            self.lake_delete_mode, tuple((mode, patterns) for mode, patterns in lists.items() if patterns)
        )

    @property
    def retention_days(self) -> NumberByTable:
        """The days for which merged changes of each table are kept; 0 for ever."""
        return NumberByTable.of(self.changelog_retention_days, self.changelog_retention_tables)

    @property
    def schema_policy(self) -> Policy:
        """The three options that determine how a schema change is applied to the lake."""
        return Policy(self.lake_schema_changes, self.lake_features, self.lake_dropped_columns)

"""One Delta transaction on Spark: schema, content and any number of ``txn`` positions in a single commit.

ALTER TABLE and DataFrame writers make a separate commit each, with at most one position; so this uses Delta's own
transaction class, on which they are built. It checks conflicts and the protocol; column ids, physical names and the
record of type changes are maintained by Delta too (docs/decisions/0007).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.features import PROPERTIES, FeaturePolicy, announce
from cdc_core.lake.spark.expressions import quoted
from cdc_core.schema.changes import DeltaFeature
from cdc_core.schema.table import TableSchema

Fields = list[dict[str, Any]]
"""A schema's fields in the JSON form of Delta's log, with their metadata."""


class Transaction:
    """A transaction on the table's newest version. ``session`` is a separate session for reads and writes."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.session = session
        self._path = path
        self._jvm: Any = session._jvm
        self._delta: Any = self._jvm.org.apache.spark.sql.delta
        log = self._delta.DeltaLog.forTable(_java(session), path)
        self._txn = log.startTransaction()
        self._actions = self._jvm.java.util.ArrayList()
        self._replaces = False

    @property
    def fields(self) -> Fields:
        """The table's current schema."""
        found: Fields = json.loads(self._txn.metadata().schemaString())["fields"]
        return found

    @property
    def content(self) -> DataFrame:
        """The table's rows."""
        return self.session.read.format("delta").load(self._path)

    def position(self, app: str) -> int | None:
        """Return the version of the newest ``txn`` with this id. Other commits with this id conflict from now on."""
        found = int(self._txn.txnVersion(app))
        return None if found < 0 else found

    def set_fields(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Set the schema of the existing files; a field corresponds to the one with the same physical name."""
        before = self._txn.metadata()
        recorded = getattr(getattr(self._delta, "TypeWideningMetadata$"), "MODULE$")
        schema = recorded.addTypeWideningMetadata(self._txn, self._struct(fields), before.schema())
        self._txn.updateMetadata(_with_schema(before, schema.json()), False)

    def replace(self, rows: DataFrame | None, fields: Sequence[Mapping[str, Any]]) -> None:
        """Replace the table's entire content by ``rows`` (None for none) in the schema ``fields``."""
        before = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(self._txn.filterFiles())
        for file in before:
            self._actions.add(file.remove())
        self._txn.updateMetadataForTableOverwrite(_with_schema(self._txn.metadata(), self._struct(fields).json()))
        if rows is not None:
            for file in self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(self._txn.writeFiles(_java(rows))):
                self._actions.add(file)
        self._replaces = True

    def commit(self, txns: Mapping[str, int], metadata: Mapping[str, Any]) -> int:
        """Commit with these positions; returns the new version. Raises Delta's error if another commit conflicts."""
        some, none = self._jvm.scala.Option.apply, self._jvm.scala.Option.empty()
        now = int(time.time() * 1000)
        for app, version in txns.items():
            self._txn.txnVersion(app)
            self._txn.updateSetTransaction(app, int(version), some(now))
        modes = self._jvm.org.apache.spark.sql.SaveMode
        mode = modes.Overwrite if self._replaces else modes.Append
        write = getattr(self._delta, "DeltaOperations$Write")
        told = write(mode, none, none, some(json.dumps(dict(metadata))), none, none, none, none, none)
        actions = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(self._actions).toSeq()
        return int(self._txn.commit(actions, told))

    def _struct(self, fields: Sequence[Mapping[str, Any]]) -> Any:
        text = json.dumps({"type": "struct", "fields": list(fields)})
        return self._jvm.org.apache.spark.sql.types.DataType.fromJson(text)


@contextmanager
def transaction(spark: SparkSession, path: str) -> Iterator[Transaction]:
    """Begin a transaction on the table at ``path``; nothing is changed unless it is committed."""
    session = spark.newSession()
    jvm: Any = session._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    # Delta reads its settings from the thread's active session.
    sessions.setActiveSession(_java(session))
    try:
        yield Transaction(session, path)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def enable(spark: SparkSession, path: str, features: Iterable[DeltaFeature]) -> None:
    """Enable features, in a separate commit that changes no row, name or type. Not for clustering."""
    wanted = [PROPERTIES[feature] for feature in sorted(features) if feature in PROPERTIES]
    if wanted:
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in wanted)
        spark.newSession().sql(f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ({listed})")


def enable_missing(spark: SparkSession, lake: DeltaTable, policy: FeaturePolicy, table: TableSchema) -> None:
    """Enable the features that a table is to have from the start, and log them."""
    missing = policy.missing(lake, table)
    enable(spark, lake.path, missing)
    cluster(spark, lake.path, policy.cluster_by(lake, table))
    announce(str(table.id), missing)


def cluster(spark: SparkSession, path: str, columns: Sequence[str]) -> None:
    """Cluster the table by these columns (none: not at all) unless it is clustered already, by whichever columns.

    This is a commit of metadata; OPTIMIZE clusters the existing files.
    """
    if columns and clustered_by(spark, path) != list(columns):
        listed = ", ".join(quoted(name) for name in columns)
        spark.newSession().sql(f"ALTER TABLE delta.{quoted(path)} CLUSTER BY ({listed})")


def forget_lost(spark: SparkSession, path: str, columns: Iterable[str]) -> None:
    """Remove clustering by a column that the table will no longer have: Delta would fail to find it."""
    if not set(clustered_by(spark, path)) <= set(columns):
        spark.newSession().sql(f"ALTER TABLE delta.{quoted(path)} CLUSTER BY NONE")


def clustered_by(spark: SparkSession, path: str) -> list[str]:
    """The columns by which a table is clustered."""
    found = spark.newSession().sql(f"DESCRIBE DETAIL delta.{quoted(path)}").select("clusteringColumns").collect()
    return [str(name) for name in found[0][0] or ()]


def _java(wrapped: Any) -> Any:
    return wrapped._jsparkSession if isinstance(wrapped, SparkSession) else wrapped._jdf


def _with_schema(metadata: Any, schema: str) -> Any:
    m = metadata
    return m.copy(
        m.id(), m.name(), m.description(), m.format(), schema, m.partitionColumns(), m.configuration(), m.createdTime()
    )

"""One Delta transaction on Spark: schema, content and any number of ``txn`` positions in a single commit.

ALTER TABLE and DataFrame writers make a separate commit each, with at most one position; so this uses Delta's own
transaction class, on which they are built. It checks conflicts and the protocol; column ids, physical names and the
record of type changes are maintained by Delta too (docs/decisions/0007).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession


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
    def content(self) -> DataFrame:
        """The table's rows."""
        return self.session.read.format("delta").load(self._path)

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


def _java(wrapped: Any) -> Any:
    return wrapped._jsparkSession if isinstance(wrapped, SparkSession) else wrapped._jdf


def _with_schema(metadata: Any, schema: str) -> Any:
    m = metadata
    return m.copy(
        m.id(), m.name(), m.description(), m.format(), schema, m.partitionColumns(), m.configuration(), m.createdTime()
    )

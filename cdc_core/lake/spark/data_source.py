"""Spark's format ``wal2lake``: a lake table at a round, and its change events, in batch and as a stream.

    wal2lake.register(spark)
    spark.read.format("wal2lake").option("table", "shop.orders").load("/data/lake/shop")
    spark.readStream.format("wal2lake").option("changes", True).option("table", "shop.orders").load("/data/lake/shop")

Options
    path          ``<wal2lake.lake.path>/<topic.prefix>``, the argument of ``load``
    table         ``schema.table``
    at            an LSN or a commit time: the newest round at or before it; default the newest
    allrows       true: also rows that the source no longer has (delete modes soft and history)
    changes       true: change events in place of the table's rows; required for a stream
    startinglsn   changes after this LSN of the present epoch; default all that are kept
    s3.*, gcs.*, azure.*
                  as the properties ``wal2lake.storage.*``; s3.endpoint is ``wal2lake.storage.s3.endpoint``

A stream's offset is a position of the changelog (epoch and commit LSN) with the changelog's id, so a query continues
from its checkpoint with the first change that it did not read. Each change is in one micro-batch, whole transactions of
the table at a time; columns that the changelog gets later are there when the query is started again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from cdc_core.errors import ConfigError, LakeError
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.storage import Storage
from cdc_core.lake.readers.opened_lake import OpenedLake, open_lake
from cdc_core.lake.readers.table_at_version import TableAtVersion
from cdc_core.lake.readers.table_changes import ChangePosition, TableChanges
from cdc_core.lsn import Lsn

FORMAT = "wal2lake"
_OPTIONS = {"path", "table", "at", "allrows", "changes", "startinglsn"}
_STORES = ("s3.", "gcs.", "azure.")


@dataclass(frozen=True)
class SourceOptions:
    """The options of a query, checked. Pickled into the tasks; secrets remain as they were given."""

    given: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Take a query's options. Raises ConfigError if one is unknown or missing, or they exclude each other."""
        by_name = {name.lower(): value for name, value in options.items()}
        unknown = sorted(name for name in set(by_name) - _OPTIONS if not name.startswith(_STORES))
        if unknown:
            raise ConfigError(
                f"Unknown option {unknown[0]} of format {FORMAT}.",
                f"Known are {sorted(_OPTIONS)}, s3.*, gcs.* and azure.*.",
            )
        for name in ("path", "table"):
            if not by_name.get(name):
                raise ConfigError(f"Format {FORMAT} needs {name}.", "Set the option, or give load() the lake's path.")
        made = cls(by_name)
        excluded = ("at", "allrows") if made.are_changes else ("startinglsn",)
        for name in excluded:
            if name in by_name:
                raise ConfigError(f"Option {name} has no effect if changes is {made.are_changes}.", "Remove it.")
        return made

    @property
    def are_changes(self) -> bool:
        """Whether change events are read."""
        return self._flag("changes")

    def lake(self) -> OpenedLake:
        """Open the lake. Raises LakeError."""
        settings = {name: value for name, value in self.given.items() if name.startswith(_STORES)}
        return open_lake(self.given["path"], Storage.named(settings))

    def table(self) -> TableAtVersion:
        """The table at the requested round. Raises LakeError."""
        try:
            tables = self.lake().read(self.given["table"], at=self.given.get("at"), all_rows=self._flag("allrows"))
        except ValueError as error:
            raise ConfigError(f"Option at: {error}.") from None
        (table,) = tables.values()
        return table

    def changes(self) -> TableChanges:
        """The table's changes, newly opened. Raises LakeError."""
        return self.lake().changes(self.given["table"])

    def start(self) -> ChangePosition:
        """The position at which changes start. Raises ConfigError."""
        changes, text = self.changes(), self.given.get("startinglsn")
        if text is None:
            return changes.oldest
        try:
            return changes.at(Lsn.parse(text))
        except ValueError as error:
            raise ConfigError(f"Option startingLsn: {error}.") from None

    def _flag(self, name: str) -> bool:
        text = self.given.get(name, "false").lower()
        if text not in ("true", "false"):
            raise ConfigError(f"Option {name} must be true or false, found {text!r}.")
        return text == "true"


@dataclass
class Files(InputPartition):
    """Data files of one task."""

    paths: tuple[str, ...]
    version: int = 0


@dataclass
class ChangeFiles(InputPartition):
    """Files of the changelog for one task, which reads the changes between two positions."""

    paths: tuple[str, ...]
    start: ChangePosition
    end: ChangePosition


class LakeDataSource(DataSource):
    """The format ``wal2lake`` (see the module's docstring)."""

    @classmethod
    def name(cls) -> str:
        """``wal2lake``."""
        return FORMAT

    def schema(self) -> StructType:
        """The table's columns now, or those of its changelog."""
        options = SourceOptions.of(self.options)
        schema = options.changes().schema if options.are_changes else options.table().schema
        return from_arrow_schema(schema, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a table at a round, or the changes up to now."""
        options = SourceOptions.of(self.options)
        return ChangesReader(options, schema) if options.are_changes else TableReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (PySpark's name)
        """Read changes as they come."""
        options = SourceOptions.of(self.options)
        if not options.are_changes:
            raise ConfigError("A stream of format wal2lake reads change events.", 'Set option("changes", True).')
        return ChangesStream(options, schema)


class TableReader(DataSourceReader):
    """Reads the table at the round that was the newest when the query was planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._table = options.table()
        self._schema = schema

    def partitions(self) -> Sequence[Files]:
        """One for each data file."""
        return [Files((path,), self._table.version) for path in self._table.files()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        assert isinstance(partition, Files)
        return _as_spark(self._table.batches(files=partition.paths), self._schema)


class ChangesReader(DataSourceReader):
    """Reads the changes from the start to the newest complete transaction."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[ChangeFiles]:
        """One for each file of the changelog."""
        return _partitions(self._options.changes(), self._options.start(), self._options.changes().newest)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes in a file."""
        return _changes(self._options, partition, self._schema)


class ChangesStream(DataSourceStreamReader):
    """Reads changes in micro-batches; offsets are positions."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The position at which the first micro-batch starts."""
        return _offset(self._options.changes(), self._options.start())

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        """The newest position."""
        changes = self._options.changes()
        return _offset(changes, max(changes.newest, _position(changes, start)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ChangeFiles]:
        """One for each file of the changelog that may have changes of the micro-batch."""
        changes = self._options.changes()
        return _partitions(changes, _position(changes, start), _position(changes, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes in a file."""
        return _changes(self._options, partition, self._schema)


def _partitions(changes: TableChanges, start: ChangePosition, end: ChangePosition) -> list[ChangeFiles]:
    if start >= end:
        return []
    return [ChangeFiles((path,), start, end) for path in changes.files(start, end)]


def _changes(options: SourceOptions, partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, ChangeFiles)
    changes = options.changes()
    return _as_spark(changes.batches(partition.start, partition.end, changes.schema, partition.paths), schema)


def _as_spark(batches: Iterator[pa.RecordBatch] | pa.RecordBatchReader, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Convert batches to the columns that Spark expects."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        if batch.num_rows:
            yield from conform(pa.Table.from_batches([batch]), arrow_schema).to_batches()


def _offset(changes: TableChanges, at: ChangePosition) -> dict[str, Any]:
    return {"epoch": at.epoch, "lsn": str(Lsn(at.lsn)), "changelog": changes.identity}


def _position(changes: TableChanges, offset: dict[str, Any]) -> ChangePosition:
    if offset["changelog"] not in ("", changes.identity):
        raise LakeError(
            f"The checkpoint is of another changelog of {changes.table} than the one in {changes.path}.",
            "Start the query with another checkpoint; set startingLsn to the LSN of the round from which it continues.",
        )
    return ChangePosition(int(offset["epoch"]), Lsn.parse(offset["lsn"]))

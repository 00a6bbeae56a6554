"""A Delta table without a JVM: its log through delta-rs, its data files through Arrow. Wraps ``deltalake``.

delta-rs implements the protocol: the log, its checkpoints, and the conflict check of a commit. The data files are
written here: by Arrow, with the statistics that pruning needs, and a commit lists the files that it adds and removes.
So a change of a table is one commit, whatever it does, and includes its positions as ``txn`` actions (``positions``).

A commit is made on the version that this object has loaded. A commit that only adds files fails with
``CommitConflictError`` if another commit was made first that has one of the same ``txn`` ids; other appends and
compactions do not conflict. A commit that removes files fails if any other commit was made first. This is also the
fence against a writer that outlasts its run: its commit has the same id as this run's.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_core.errors import CommitConflictError, InvariantError, UnreadableError
from cdc_core.lake.delta.bounds import Bounds
from cdc_core.lake.delta.conform import conform, has_local_timestamps, plain_schema
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.deletion_vectors import file_name, kept_rows
from cdc_core.lake.delta.log_text import stats_json, texts, unreadable_file, unreadable_log
from cdc_core.lake.delta.physical import physical_schema, renamed
from cdc_core.lake.delta.row_groups import (
    bytes_in_memory,
    has_large_values,
    parquet_writer,
    repeated_columns,
    row_groups,
)
from cdc_core.lake.delta.storage import options_for

_NTZ = "timestampNtz"
_MAPPING = "columnMapping"
_DICTIONARY_ROWS = 100_000
# Errors of one file or folder; others (network, full disk) concern more than one table.
_NO_ACCESS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
# In memory, without compression: a file is read as a whole where some of its rows change.
_FILE_BYTES = 256 << 20
_BATCH_ROWS, _BATCH_BYTES = 2_048, 8 << 20


class DeltaTable:
    """One table at the version that was loaded; ``refresh`` loads later commits. For one thread."""

    def __init__(self, path: str, storage: Mapping[str, str] | None, opened: Any) -> None:
        self.path = path
        self._storage = dict(storage or {})
        self._table = opened
        self._schema: pa.Schema | None = None
        self._files: list[DataFile] | None = None
        self._selections: dict[str, pa.Array] | None = None

    @classmethod
    def open(cls, path: str, storage: Mapping[str, str] | None = None) -> DeltaTable | None:
        """Open the table at its newest version; None if it does not exist. LakeError if its log cannot be read."""
        import deltalake
        from deltalake.exceptions import DeltaError, TableNotFoundError

        uri, options = delta_uri(path), options_for(path, storage)
        try:
            return cls(path, options, deltalake.DeltaTable(uri, storage_options=options))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise unreadable_log(path, error) from None

    @classmethod
    def open_version(cls, path: str, version: int, storage: Mapping[str, str] | None = None) -> DeltaTable | None:
        """Open the table at a version; None if there is no table, or its log no longer has the version."""
        import deltalake
        from deltalake.exceptions import DeltaError

        options = options_for(path, storage)
        try:
            return cls(path, options, deltalake.DeltaTable(delta_uri(path), version=version, storage_options=options))
        except (DeltaError, OSError):
            return None

    @classmethod
    def create(
        cls,
        path: str,
        schema: pa.Schema,
        properties: Mapping[str, str],
        storage: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> DeltaTable:
        """Create an empty table of ``schema``; returns the existing one if another writer created it first."""
        import deltalake
        from deltalake.exceptions import DeltaError

        uri = delta_uri(path)
        if "://" not in uri:
            Path(uri).mkdir(parents=True, exist_ok=True)
        try:
            deltalake.DeltaTable.create(
                uri,
                deltalake.Schema.from_arrow(schema),
                mode="error",
                configuration=dict(properties),
                storage_options=options_for(path, storage),
                commit_properties=deltalake.CommitProperties(custom_metadata=texts(metadata)),
            )
        except DeltaError:
            there = cls.open(path, storage)
            if there is None:
                raise
            return there
        made = cls.open(path, storage)
        assert made is not None
        return made

    def refresh(self) -> None:
        """Load the commits made since. LakeError if the log no longer exists or cannot be read."""
        from deltalake.exceptions import DeltaError

        if self._is_newest():
            return
        before = self._table.version()
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise unreadable_log(self.path, error) from None
        if self._table.version() != before:
            self._schema = self._files = self._selections = None

    def _is_newest(self) -> bool:
        """Whether the log's folder shows that nothing was committed since; cheaper than listing it."""
        uri = delta_uri(self.path)
        if "://" in uri:
            return False
        log = Path(uri) / "_delta_log"
        return (log / f"{self.version:020}.json").exists() and not (log / f"{self.version + 1:020}.json").exists()

    @property
    def version(self) -> int:
        """The loaded version."""
        return int(self._table.version())

    @property
    def identity(self) -> str:
        """The id that Delta gave the table when it was created; a table created again at the path has another."""
        return str(self._table.metadata().id)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns as Arrow schema, all nullable, without metadata."""
        if self._schema is None:
            self._schema = plain_schema(pa.schema(self._table.schema().to_arrow()))
        return self._schema

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties (``delta.…``)."""
        return {str(key): str(value) for key, value in self._table.metadata().configuration.items()}

    @property
    def features(self) -> frozenset[str]:
        """Reader and writer features in the protocol."""
        protocol = self._table.protocol()
        return frozenset([*(protocol.reader_features or ()), *(protocol.writer_features or ())])

    def txn(self, app: str) -> int | None:
        """Return the version of the newest ``txn`` with this id; None if there is none."""
        found = self._table.transaction_version(app)
        return None if found is None else int(found)

    @property
    def files(self) -> list[DataFile]:
        """The table's data files, with their statistics in the log."""
        if self._files is None:
            self._files = _listed(pa.table(self._table.get_add_actions()))
        return self._files

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether files may have rows marked as deleted."""
        return "deletionVectors" in self.features

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        """Return the rows of one file, in the table's schema, or ``columns`` of it; a column missing in it is null.

        ``whole``: none of its rows is marked as deleted, so deletion vectors are not read.
        """
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        stored = self._stored(schema)
        with self._parquet(file) as parquet:
            have = set(parquet.schema_arrow.names)
            wanted = [name for name in stored.names if name in have]
            found = parquet.read(columns=wanted, use_threads=False)
        kept = None if whole else self._kept_of(file)
        rows = conform(found if kept is None else found.filter(kept), stored)
        return rows if stored.equals(schema) else renamed(rows, schema)

    def bytes_in_memory(self, file: DataFile) -> int:
        """Estimate the size of a file's rows in memory, from its footer; values of a dictionary are counted once."""
        with self._parquet(file) as parquet:
            return bytes_in_memory(parquet.metadata)

    def batches(self, file: DataFile) -> Iterator[pa.Table]:
        """As ``read``, in the file's order, a few megabytes at a time."""
        stored, kept, at = self._stored(self.schema), self._kept_of(file), 0
        with self._parquet(file) as parquet:
            have, facts = set(parquet.schema_arrow.names), parquet.metadata
            few = _BATCH_BYTES * max(1, facts.num_rows) // max(1, bytes_in_memory(facts))
            wanted = [name for name in stored.names if name in have]
            for batch in parquet.iter_batches(max(1, min(_BATCH_ROWS, few)), columns=wanted, use_threads=False):
                found, at = pa.Table.from_batches([batch]), at + batch.num_rows
                if kept is not None:
                    found = found.filter(kept.slice(at - batch.num_rows, batch.num_rows))
                rows = conform(found, stored)
                yield rows if stored.equals(self.schema) else renamed(rows, self.schema)

    def read_as(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        """Return the rows of a file that was written by this object under ``schema`` and not committed yet."""
        with self._open_input(file.path) as source:
            found = pq.ParquetFile(source).read(columns=schema.names, use_threads=False)
        return conform(found, schema)

    def kept(self, file: DataFile) -> pa.Array | None:
        """Return a mask of a file's rows that are not marked as deleted; None if none is. Shape: bool[N]"""
        return self._kept_of(file)

    def has(self, file: DataFile) -> bool:
        """Whether the file exists with the size with which it was written."""
        try:
            return self._size(file.path) == file.size
        except OSError:
            return False

    def write(self, rows: pa.Table, name: str = "part") -> DataFile:
        """Write rows of the table's schema to a new file, which is not part of the table until a commit adds it."""
        return self.write_as(rows, self.schema, name)

    def write_as(self, rows: pa.Table, schema: pa.Schema, name: str = "part") -> DataFile:
        """As ``write``, with another schema, for a commit that puts it in force."""
        path = f"{name}-{uuid.uuid4()}.zstd.parquet"
        ready = conform(rows, schema)
        is_large = has_large_values(ready)
        with (
            self._open_output(path) as target,
            # With few rows a dictionary costs more time and bytes than it saves.
            parquet_writer(target, ready.schema, ready.num_rows >= _DICTIONARY_ROWS, statistics=not is_large) as writer,
        ):
            writer.write_table(ready)
        if is_large:
            pa.default_memory_pool().release_unused()
        size = self._size(path)
        bounds = Bounds()
        bounds.cover(ready)
        return DataFile(path, size, ready.num_rows, bounds.minimum, bounds.maximum, bounds.nulls)

    def write_stream(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_per_file: int,
        bytes_per_file: int | None = _FILE_BYTES,
        name: str = "part",
    ) -> list[DataFile]:
        """Write batches of ``schema`` to new files of at least ``rows_per_file`` rows, fewer if they are large.

        A file ends with the row group that reaches ``bytes_per_file`` in memory (None: no limit).

        At most one row group is in memory. Without rows no file is written.
        """
        found: list[DataFile] = []
        groups = row_groups(batches, schema)
        rows = next(groups, None)
        while rows is not None:
            path = f"{name}-{uuid.uuid4()}.zstd.parquet"
            bounds, count, octets, is_large = Bounds(), 0, 0, has_large_values(rows)
            with (
                self._open_output(path) as target,
                parquet_writer(target, schema, repeated_columns(rows), statistics=not is_large) as writer,
            ):
                while rows is not None and count < rows_per_file and octets < (bytes_per_file or octets + 1):
                    writer.write_table(rows)
                    bounds.cover(rows)
                    count, octets = count + rows.num_rows, octets + rows.nbytes
                    rows = None
                    if is_large:
                        pa.default_memory_pool().release_unused()
                    rows = next(groups, None)
                    if rows is not None and has_large_values(rows) != is_large:
                        break
            found.append(DataFile(path, self._size(path), count, bounds.minimum, bounds.maximum, bounds.nulls))
        return found

    def commit(
        self,
        added: Iterable[DataFile] = (),
        removed: Iterable[DataFile] = (),
        *,
        txns: Mapping[str, int] | None = None,
        metadata: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
        replace: bool = False,
        data_change: bool = True,
    ) -> int:
        """Add and remove files in one commit, with the positions it reaches; returns the new version.

        ``replace`` removes all existing files instead, and puts ``schema`` in force if it differs. Raises
        CommitConflictError if another commit was made first (see the module's docstring), InvariantError for a file in
        ``removed`` with rows marked as deleted: nothing was changed.
        """
        import deltalake
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        removed = list(removed)
        # A removal without the file's deletion vector removes nothing: its other rows would remain in the table.
        if any(self._kept_of(file) is not None for file in removed):
            raise InvariantError(f"Files of {self.path} with rows marked as deleted were to be removed one by one.")
        now = int(time.time() * 1000)
        actions: list[Any] = [AddAction(f.path, f.size, {}, now, data_change, stats_json(f)) for f in added]
        gone = [RemoveAction(f.path, data_change, now, f.size, {}) for f in removed]
        actions += gone
        properties = deltalake.CommitProperties(
            custom_metadata=texts(metadata),
            # delta-rs does not detect that another compaction removed the same files, and lets appends succeed.
            max_commit_retries=0 if gone or replace else None,
            app_transactions=[deltalake.Transaction(app, version, now) for app, version in (txns or {}).items()],
        )
        wanted = self._table.schema() if schema is None else deltalake.Schema.from_arrow(schema)
        if schema is not None and has_local_timestamps(schema) and _NTZ not in self.features:
            self._allow_local_timestamps()
        try:
            self._table.create_write_transaction(
                actions,
                "overwrite" if replace else "append",
                wanted,
                commit_properties=properties,
                post_commithook_properties=deltalake.PostCommitHookProperties(
                    create_checkpoint=True, cleanup_expired_logs=False
                ),
            )
        except CommitFailedError:
            raise CommitConflictError() from None
        self._schema = self._files = self._selections = None
        self.refresh()
        return self.version

    def widen(self, schema: pa.Schema, metadata: Mapping[str, Any] | None = None) -> None:
        """Add the columns, also in structs, that only ``schema`` has, in one commit without data."""
        import deltalake
        from deltalake.exceptions import CommitFailedError

        empty = schema.empty_table()
        try:
            deltalake.write_deltalake(
                self._table,
                empty,
                mode="append",
                schema_mode="merge",
                commit_properties=deltalake.CommitProperties(custom_metadata=texts(metadata)),
            )
        except CommitFailedError:
            raise CommitConflictError() from None
        self._schema = self._files = self._selections = None
        self.refresh()

    def missing_files(self) -> list[str]:
        """Return paths of data files of the loaded version that do not exist; checks each file of a local table."""
        uri = delta_uri(self.path)
        if "://" not in uri:
            return [file.path for file in self.files if not (Path(uri) / file.path).exists()]
        import pyarrow.fs

        infos = self._filesystem().get_file_info([file.path for file in self.files]) if self.files else []
        return [info.path for info in infos if info.type is pyarrow.fs.FileType.NotFound]

    def raw(self) -> Any:
        """Return delta-rs' own object, for operations that this class does not have (compaction, VACUUM)."""
        return self._table

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove files that ``write_stream`` wrote and no commit references."""
        for file in files:
            uri = delta_uri(self.path)
            if "://" not in uri:
                (Path(uri) / file.path).unlink(missing_ok=True)
            else:
                self._filesystem().delete_file(file.path)

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the column names in the table's files."""
        if _MAPPING not in self.features:
            return schema
        whole = pa.schema(self._table.schema().to_arrow())
        return plain_schema(physical_schema(pa.schema([whole.field(name) for name in schema.names])))

    @contextmanager
    def _parquet(self, file: DataFile) -> Iterator[pq.ParquetFile]:
        """Open a data file. Raises UnreadableError if it does not exist or cannot be read."""
        try:
            with self._open_input(file.path) as source:
                yield pq.ParquetFile(source)
        except (*_NO_ACCESS, pa.ArrowInvalid) as error:
            raise unreadable_file(self.path, file.path, error) from None

    def _kept_of(self, file: DataFile) -> pa.Array | None:
        """Return a mask of the rows of a file that are not marked as deleted; None without a deletion vector."""
        if not self.has_deletion_vectors:
            return None
        if self._selections is None:
            self._selections = kept_rows(self._table)
        return self._selections.get(file_name(file.path))

    def _allow_local_timestamps(self) -> None:
        import deltalake

        self._table.alter.add_feature(
            deltalake.TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
        )
        self.refresh()

    def _open_input(self, path: str) -> Any:
        uri = delta_uri(self.path)
        if "://" not in uri:
            return pa.memory_map(str(Path(uri) / path))
        return self._filesystem().open_input_file(path)

    def _open_output(self, path: str) -> Any:
        uri = delta_uri(self.path)
        if "://" in uri:
            return self._filesystem().open_output_stream(path)
        try:
            return pa.OSFile(str(Path(uri) / path), "wb")
        except _NO_ACCESS as error:
            raise UnreadableError(
                f"No file can be written to the folder of the Delta table {self.path} ({type(error).__name__}).",
                "Restore the folder and its permissions.",
                self.path,
            ) from None

    def _size(self, path: str) -> int:
        uri = delta_uri(self.path)
        return (
            (Path(uri) / path).stat().st_size if "://" not in uri else int(self._filesystem().get_file_info(path).size)
        )

    def _filesystem(self) -> Any:
        import pyarrow.fs
        from deltalake.fs import DeltaStorageHandler

        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(delta_uri(self.path), self._storage))


def schema_json(schema: pa.Schema) -> str:
    """Return the schema in the JSON form of Delta's log."""
    import deltalake

    return str(deltalake.Schema.from_arrow(plain_schema(schema)).to_json())


def delta_uri(path: str) -> str:
    """Convert a lake path for delta-rs: a plain local path, or a URI of one of its object stores."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return "s3://" + path[len("s3a://") :] if path.startswith("s3a://") else path


def _listed(actions: pa.Table) -> list[DataFile]:
    # row-wise: one row per data file, of which a table has a few dozen
    found = []
    for row in actions.to_pylist():
        low = {name: value for name, value in (row.get("min") or {}).items() if value is not None}
        high = {name: value for name, value in (row.get("max") or {}).items() if value is not None}
        nulls = {name: count for name, count in (row.get("null_count") or {}).items() if isinstance(count, int)}
        found.append(DataFile(row["path"], int(row["size_bytes"]), int(row["num_records"] or 0), low, high, nulls))
    return found

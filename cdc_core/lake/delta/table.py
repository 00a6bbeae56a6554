"""A Delta table without a JVM: its log through delta-rs, its data files through Arrow. Wraps ``deltalake``.

delta-rs implements the protocol: the log, its checkpoints, and the conflict check of a commit. The data files are
written here: by Arrow, with the statistics that pruning needs, and a commit lists the files that it adds and removes.
So a change of a table is one commit, whatever it does, and includes its positions as ``txn`` actions (``positions``).

A commit is made on the version that this object has loaded. A commit that only adds files fails with
``CommitConflictError`` if another commit was made first that has one of the same ``txn`` ids; other appends and
compactions do not conflict. A commit that removes files fails if any other commit was made first. This is also the
fence against a writer that outlasts its run: its commit has the same id as this run's.

A commit that only changes files has an entry of our own (``log_entry``), created if the log has none of its version:
delta-rs cannot name deletion vectors, and takes ten times as long. What breaks if two commits could have the same
version: rows of one of them are lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cdc_core import failpoints
from cdc_core.errors import CommitConflictError, InvariantError
from cdc_core.lake.delta.conform import has_local_timestamps, plain_schema
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.deletion_vectors import as_bitmap, as_places, vector_file
from cdc_core.lake.delta.folder import Folder, delta_uri
from cdc_core.lake.delta.loaded import Loaded
from cdc_core.lake.delta.log_entry import LogEntry, with_vectors
from cdc_core.lake.delta.log_text import failed_commit, stats_json, texts, unreadable_log, with_vector
from cdc_core.lake.delta.owner import check_owner, owner_property
from cdc_core.lake.delta.parquet_files import BATCH_ROWS, FILE_BYTES, Columns, ParquetFiles
from cdc_core.lake.delta.physical import physical_schema
from cdc_core.lake.delta.recent import Recent, open_newest
from cdc_core.lake.delta.storage import options_for
from cdc_core.lake.delta.vector_log import VectorLog, entry_name

_NTZ = "timestampNtz"
_MAPPING = "columnMapping"
_VECTORS = "deletionVectors"
_ENABLED = "delta.enableDeletionVectors"
_INTERVAL, _DEFAULT_INTERVAL = "delta.checkpointInterval", 100
_APPENDS_ONLY = "delta.appendOnly"
_PLAIN_WRITER = 2
_PLAIN_FEATURES = frozenset({_VECTORS, _NTZ, "appendOnly", "invariants"})


class DeltaTable:
    """One table at the version that was loaded; ``refresh`` loads later commits. For one thread."""

    def __init__(self, path: str, storage: Mapping[str, str] | None, opened: Recent) -> None:
        self.path = path
        self.folder = Folder(path, storage)
        self._parquet = ParquetFiles(self.folder)
        self._vectors = VectorLog(self.folder)
        self._loaded = Loaded(path, storage, opened)
        self._schema: pa.Schema | None = None
        self._files: list[DataFile] | None = None
        check_owner(path, opened.raw.metadata().configuration)

    @classmethod
    def open(cls, path: str, storage: Mapping[str, str] | None = None) -> DeltaTable | None:
        """Open the table at its newest version; None if there is none. LakeError: it is unreadable, or another's."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        options = options_for(path, storage)
        try:
            return cls(path, options, open_newest(delta_uri(path), options))
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
            return cls(path, options, Recent(deltalake.DeltaTable(delta_uri(path), version, options)))
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
                configuration={**properties, **owner_property(path)},
                storage_options=options_for(path, storage),
                raise_if_key_not_exists=False,
                commit_properties=deltalake.CommitProperties(custom_metadata=texts(metadata)),
            )
        except DeltaError:
            if cls.open(path, storage) is None:
                raise
        made = cls.open(path, storage)
        assert made is not None
        return made

    def refresh(self) -> None:
        """Load the commits made since. LakeError if the log no longer exists or cannot be read."""
        if not self._is_newest():
            self._load_newest()

    def _load_newest(self) -> None:
        before = self.version
        self._loaded.refresh()
        if self.version != before:
            self._schema = self._files = None

    def _is_newest(self) -> bool:
        """Whether the log's folder shows that nothing was committed since; cheaper than listing it."""
        if not self.folder.is_local:
            return False
        root = Path(self.folder.uri)
        return (root / entry_name(self.version)).exists() and not (root / entry_name(self.version + 1)).exists()

    @property
    def version(self) -> int:
        """The loaded version."""
        return self._loaded.version

    @property
    def identity(self) -> str:
        """The id that Delta gave the table when it was created; a table created again at the path has another."""
        return str(self._loaded.facts.metadata().id)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns as Arrow schema, all nullable, without metadata."""
        if self._schema is None:
            self._schema = plain_schema(pa.schema(self._loaded.facts.schema().to_arrow()))
        return self._schema

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties (``delta.…``)."""
        return {str(key): str(value) for key, value in self._loaded.facts.metadata().configuration.items()}

    @property
    def features(self) -> frozenset[str]:
        """Reader and writer features in the protocol."""
        protocol = self._loaded.facts.protocol()
        return frozenset([*(protocol.reader_features or ()), *(protocol.writer_features or ())])

    def txn(self, app: str) -> int | None:
        """Return the version of the newest ``txn`` with this id; None if there is none."""
        return self._loaded.txn(app)

    @property
    def files(self) -> list[DataFile]:
        """The table's data files, with their statistics and deletion vectors in the log."""
        if self._files is None:
            vectors = self._vectors.at(self.version) if self.has_deletion_vectors else {}
            self._files = self._loaded.files(vectors)
        return self._files

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether files may have rows marked as deleted."""
        return _VECTORS in self.features

    @property
    def marks_rows(self) -> bool:
        """Whether a commit may mark rows as deleted (``enable_vectors``)."""
        return self.has_deletion_vectors and self.properties.get(_ENABLED) == "true"

    @property
    def removed(self) -> dict[str, int]:
        """The files of data and vectors that the log removed: ``VectorLog.removed``. For tables with vectors."""
        self._vectors.at(self.version)
        return self._vectors.removed

    def forget_removed(self, before: float) -> None:
        """Forget the files of ``removed`` that were removed before a time, in milliseconds since 1970."""
        self._vectors.forget(before)

    def live(self, file: DataFile) -> np.ndarray | None:
        """Return which rows of a file are not marked as deleted; None for all. Shape: bool[rows]"""
        if file.vector is None:
            return None
        return self._vectors.live(file.vector, self.row_count(file))

    def unmarked(self, file: DataFile, places: np.ndarray) -> np.ndarray:
        """Return which positions of a file are not marked as deleted. Shape: int64[P] -> bool[P]"""
        if file.vector is None:
            return np.ones(len(places), dtype=bool)
        gone = self._vectors.deleted(file.vector) & as_bitmap(places)
        return ~np.isin(places, as_places(gone)) if gone else np.ones(len(places), dtype=bool)

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        """Return the rows of one file, in the table's schema, or ``columns`` of it; a column missing in it is null.

        Without the rows marked as deleted; with ``whole`` also those.
        """
        return self._parquet.read(file, self._columns(columns), None if whole else self.live(file))

    def read_at(self, file: DataFile, places: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows at ascending positions in a file, marked or not; reads only their row groups.

        Shape: int64[P] -> table[P]
        """
        return self._parquet.read_at(file, self._columns(columns), places)

    def row_count(self, file: DataFile) -> int:
        """Return the number of rows of a file, marked or not, also if the log does not have it."""
        return file.rows or self._parquet.row_count(file)

    def bytes_in_memory(self, file: DataFile) -> int:
        """Estimate the size of a file's rows in memory, from its footer; values of a dictionary are counted once."""
        return self._parquet.bytes_in_memory(file)

    def batches(self, file: DataFile, names: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """As ``read``, in the file's order, a few megabytes and at most ``rows`` rows at a time."""
        return self._parquet.batches(file, self._columns(names), self.live(file), rows)

    def read_as(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        """Return the rows of a file that was written by this object under ``schema`` and not committed yet."""
        return self._parquet.read_as(file, schema)

    def has(self, file: DataFile) -> bool:
        """Whether the file exists with the size with which it was written."""
        try:
            return self.folder.size(file.path) == file.size
        except OSError:
            return False

    def write(self, rows: pa.Table, name: str = "part") -> DataFile:
        """Write rows of the table's schema to a new file, which is not part of the table until a commit adds it."""
        return self.write_as(rows, self.schema, name)

    def write_as(self, rows: pa.Table, schema: pa.Schema, name: str = "part") -> DataFile:
        """As ``write``, with another schema, for a commit that puts it in force."""
        return self._parquet.write(rows, schema, name)

    def write_stream(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_per_file: int,
        bytes_per_file: int | None = FILE_BYTES,
        name: str = "part",
    ) -> list[DataFile]:
        """Write batches of ``schema`` to new files of at least ``rows_per_file`` rows, fewer if they are large.

        A file ends with the row group that reaches ``bytes_per_file`` in memory (None: no limit).
        At most one row group is in memory. Without rows no file is written.
        """
        return self._parquet.write_stream(batches, schema, rows_per_file, bytes_per_file, name)

    def commit(
        self,
        added: Iterable[DataFile] = (),
        removed: Iterable[DataFile] = (),
        *,
        marked: Iterable[MarkedRows] = (),
        txns: Mapping[str, int] | None = None,
        metadata: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
        replace: bool = False,
        data_change: bool = True,
    ) -> int:
        """Add and remove files and mark rows, in one commit with the positions it reaches; returns the new version.

        ``replace`` removes all existing files instead, and puts ``schema`` in force if it differs. Files that are added
        may have marked rows, too. Raises CommitConflictError if another commit was made first (see the module's
        docstring): nothing was changed.
        """
        added, removed, marked = list(added), list(removed), list(marked)
        has_vectors = bool(marked) or any(file.vector is not None for file in removed)
        changes_table = replace or schema is not None
        if has_vectors and (changes_table or (marked and not self.marks_rows)):
            raise InvariantError(f"A commit to {self.path} with deletion vectors cannot change the table as well.")
        if marked:
            again, gone = self._with_vectors(marked)
            failpoints.hit(failpoints.AFTER_VECTORS)
            new, changed = {file.path for file in added}, {file.path for file in gone}
            added = [file for file in added if file.path not in changed] + again
            removed += [file for file in gone if file.path not in new]
        if has_vectors or (not changes_table and self._takes_entries):
            try:
                return self._commit_files(LogEntry(added, removed, txns or {}, metadata, data_change))
            except CommitConflictError:
                if has_vectors or removed:
                    raise
        self._commit_by_delta_rs(added, removed, txns or {}, metadata, schema, replace, data_change)
        self._schema = self._files = None
        self.refresh()
        return self.version

    def _commit_by_delta_rs(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        txns: Mapping[str, int],
        metadata: Mapping[str, Any] | None,
        schema: pa.Schema | None,
        replace: bool,
        data_change: bool,
    ) -> None:
        import deltalake
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        now = int(time.time() * 1000)
        actions: list[Any] = [AddAction(f.path, f.size, {}, now, data_change, stats_json(f)) for f in added]
        gone = [RemoveAction(f.path, data_change, now, f.size, {}) for f in removed]
        actions += gone
        properties = deltalake.CommitProperties(
            custom_metadata=texts(metadata),
            # delta-rs does not detect that another compaction removed the same files, and lets appends succeed.
            max_commit_retries=0 if gone or replace else None,
            app_transactions=[deltalake.Transaction(app, version, now) for app, version in txns.items()],
        )
        raw = self._loaded.changeable()
        wanted = raw.schema() if schema is None else deltalake.Schema.from_arrow(schema)
        if schema is not None and has_local_timestamps(schema) and _NTZ not in self.features:
            self._allow_local_timestamps()
        try:
            raw.create_write_transaction(
                actions,
                "overwrite" if replace else "append",
                wanted,
                commit_properties=properties,
                post_commithook_properties=deltalake.PostCommitHookProperties(
                    create_checkpoint=True, cleanup_expired_logs=False
                ),
            )
        except CommitFailedError as error:
            is_fixed = bool(gone) and self.properties.get(_APPENDS_ONLY) == "true"
            raise failed_commit(error, self.path if is_fixed else "") from None

    def _with_vectors(self, marked: Sequence[MarkedRows]) -> tuple[list[DataFile], list[DataFile]]:
        """Write one file with the vectors of files in which rows are marked; returns the files with it, and before.

        A file without any other row is only removed.
        """
        again, bitmaps, gone = list[DataFile](), list[BitMap64](), list[DataFile]()
        for each in marked:
            bitmap = as_bitmap(each.places)
            if each.file.vector is not None:
                bitmap |= self._vectors.deleted(each.file.vector)
            rows = self.row_count(each.file)
            gone.append(each.file)
            if len(bitmap) < rows:
                again.append(each.file if each.file.rows else replace(each.file, rows=rows))
                bitmaps.append(bitmap)
        if not bitmaps:
            return [], gone
        name, content, vectors = vector_file(bitmaps)
        self.folder.write(name, content)
        for vector, bitmap in zip(vectors, bitmaps, strict=True):
            self._vectors.keep(vector, bitmap)
        return [with_vector(file, vector) for file, vector in zip(again, vectors, strict=True)], gone

    @property
    def _takes_entries(self) -> bool:
        """Whether commits without vectors may have entries of our own, too, which delta-rs takes ten times as long for.

        Not if a feature may ask for more than files and positions.
        """
        protocol = self._loaded.facts.protocol()
        is_plain = protocol.min_writer_version <= _PLAIN_WRITER or self.features <= _PLAIN_FEATURES
        return self.folder.is_local and is_plain and self.properties.get(_APPENDS_ONLY) != "true"

    def _commit_files(self, entry: LogEntry) -> int:
        """Make a commit that changes files by an entry of our own, and take over what it did; returns its version.

        Raises CommitConflictError if the log has an entry of its version.
        """
        files = self.files
        self._create_entry(entry)
        self._loaded.follow(entry.txns)
        self._vectors.follow(self.version, entry)
        self._files = entry.applied_to(files)
        self._write_checkpoint()
        return self.version

    def _create_entry(self, entry: LogEntry) -> None:
        if not self.folder.create(entry_name(self.version + 1), entry.content()):
            raise CommitConflictError()

    def _write_checkpoint(self) -> None:
        """Write a checkpoint if this version is due to have one."""
        if (self.version + 1) % int(self.properties.get(_INTERVAL, _DEFAULT_INTERVAL)) == 0:
            self._load_newest()
            self._loaded.changeable().create_checkpoint()

    def enable_vectors(self) -> bool:
        """Allow commits to mark rows as deleted, for good; returns whether the table did not allow it yet.

        Raises CommitConflictError if another commit was made first.
        """
        if self.marks_rows:
            return False
        raw = self._loaded.facts
        protocol, told = raw.protocol(), raw.metadata()
        features = with_vectors(
            (protocol.min_reader_version, protocol.min_writer_version),
            protocol.reader_features or (),
            protocol.writer_features or (),
        )
        metadata = {
            "id": str(told.id),
            "name": told.name,
            "description": told.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": raw.schema().to_json(),
            "partitionColumns": list(told.partition_columns),
            "createdTime": told.created_time,
            "configuration": {**told.configuration, _ENABLED: "true"},
        }
        self._create_entry(LogEntry(actions=({"protocol": features}, {"metaData": metadata})))
        self._files = None
        self._load_newest()
        self._write_checkpoint()
        return True

    def widen(self, schema: pa.Schema, metadata: Mapping[str, Any] | None = None) -> None:
        """Add the columns, also in structs, that only ``schema`` has, in one commit without data."""
        import deltalake
        from deltalake.exceptions import CommitFailedError

        try:
            deltalake.write_deltalake(
                self._loaded.changeable(),
                schema.empty_table(),
                mode="append",
                schema_mode="merge",
                commit_properties=deltalake.CommitProperties(custom_metadata=texts(metadata)),
            )
        except CommitFailedError as error:
            raise failed_commit(error) from None
        self._schema = self._files = None
        self.refresh()

    def missing_files(self) -> list[str]:
        """Return paths of data files of the loaded version that do not exist; checks each file of a local table."""
        return self.folder.missing([file.path for file in self.files])

    def raw(self, *, to_change: bool = True) -> Any:
        """Return delta-rs' own object, for what this class does not have (VACUUM)."""
        return self._loaded.changeable() if to_change else self._loaded.exact()

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove files that ``write_stream`` wrote and no commit references."""
        for file in files:
            self.folder.delete(file.path)

    def _columns(self, names: Sequence[str] | None) -> Columns:
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        return Columns(schema, self._stored(schema))

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the column names in the table's files."""
        if _MAPPING not in self.features:
            return schema
        whole = pa.schema(self._loaded.facts.schema().to_arrow())
        return plain_schema(physical_schema(pa.schema([whole.field(name) for name in schema.names])))

    def _allow_local_timestamps(self) -> None:
        import deltalake

        self._loaded.changeable().alter.add_feature(
            deltalake.TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
        )
        self.refresh()


def schema_json(schema: pa.Schema) -> str:
    """Return the schema in the JSON form of Delta's log."""
    import deltalake

    return str(deltalake.Schema.from_arrow(plain_schema(schema)).to_json())

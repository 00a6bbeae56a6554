"""A Delta table without a JVM: its log through delta-rs, its data files through Arrow. Wraps ``deltalake``.

delta-rs reads the log, and makes its checkpoints. Files are written by Arrow, with the statistics that pruning needs. A
change of a table is one commit: files added, removed and marked, columns and features (``definition``), and positions
as ``txn``. Its entry (``log_entry``) is created only if the log has none of its version: else rows would be lost.

A commit is made on the version that this object has loaded. A commit that only adds files fails with
``CommitConflictError`` if another commit was made first that has one of the same ``txn`` ids, or changed the columns;
other appends and compactions do not conflict. Every other commit fails if any other was made first. This is also the
fence against a writer that outlasts its run: its commit has the same id as this run's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.arrays import Bools
from cdc_core.errors import CommitConflictError, InvariantError
from cdc_core.lake.delta.checkpoints import write_checkpoint
from cdc_core.lake.delta.conform import plain_schema
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.definition import CLUSTERING, VECTORS, VECTORS_ENABLED, Definition
from cdc_core.lake.delta.deletion_vectors import as_bitmap, as_places
from cdc_core.lake.delta.file_columns import CHANGES, FileColumns
from cdc_core.lake.delta.folder import Folder, delta_uri
from cdc_core.lake.delta.loaded import Loaded
from cdc_core.lake.delta.log_entry import LogEntry
from cdc_core.lake.delta.log_text import appends_only, unreadable_log
from cdc_core.lake.delta.own_commits import is_newest, newer_commits
from cdc_core.lake.delta.owner import check_owner, owner_property
from cdc_core.lake.delta.parquet_files import BATCH_ROWS, FILE_BYTES, ParquetFiles
from cdc_core.lake.delta.recent import RecentTable, open_newest
from cdc_core.lake.delta.row_copies import RowCopies
from cdc_core.lake.delta.shared_log import SharedLog, entry_content
from cdc_core.lake.delta.storage import options_for
from cdc_core.lake.delta.vector_log import LOG, VectorLog, commit_time, entry_name

_INTERVAL, _DEFAULT_INTERVAL = "delta.checkpointInterval", 100
_APPENDS_ONLY = "delta.appendOnly"
# Entries are followed while they cannot have been removed: a log keeps them for an hour at least.
_FOLLOW_SECONDS = 600.0
# Appends of others between which one of ours was never the next.
_APPENDS_PASSED = 20


class DeltaTable:
    """One table at the version that was loaded; ``refresh`` loads later commits. For one thread."""

    def __init__(self, path: str, storage: Mapping[str, str] | None, opened: RecentTable) -> None:
        self.path = path
        self.folder = Folder(path, storage)
        self._parquet = ParquetFiles(self.folder)
        self._vectors = VectorLog(self.folder, lambda version: entry_content(self.folder, self.shared, version))
        self._loaded = Loaded(path, storage, opened)
        self._schema: pa.Schema | None = None
        self._files: list[DataFile] | None = None
        self._defined: tuple[Any, int, Definition] | None = None  # with delta-rs' object and its version
        self._committed: tuple[int, int] | None = None  # a version and the time of its commit, where commits have one
        self._seen_at = time.monotonic()  # when the loaded version was the newest one
        self.shared = SharedLog.of(path, self.identity)
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
    def open_version(cls, path: str, version: int) -> DeltaTable | None:
        """Open the table at a version; None if there is no table, or its log no longer has the version."""
        import deltalake
        from deltalake.exceptions import DeltaError

        options = options_for(path)
        try:
            return cls(path, options, RecentTable(deltalake.DeltaTable(delta_uri(path), version, options)))
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
        """Create an empty table of ``schema``; returns the existing one if there is one, also if it comes meanwhile."""
        if (there := cls.open(path, storage)) is not None:
            return there
        folder = Folder(path, storage)
        folder.make(LOG)
        definition = Definition.new(schema, {**properties, **owner_property(path)})
        entry = LogEntry(metadata=metadata, actions=definition.actions())
        folder.create(entry_name(0), entry.content())
        made = cls.open(path, storage)
        assert made is not None
        return made

    def refresh(self) -> None:
        """Load the commits made since. LakeError if the log no longer exists or cannot be read."""
        if self.shared is not None:
            self._follow_own(self.shared)
        if is_newest(self.folder, self.version) or self._follow_own(self.folder):
            self._seen_at = time.monotonic()
        else:
            self._load_newest()

    def expect_newest(self) -> None:
        """As ``refresh``, for who commits next, by the ``shared`` log: if it lacks a commit, the next one conflicts.

        A worker asks the store once a minute whether the log is there: a table may be removed while commits go on.
        """
        if self.shared is None or not self._follow_own(self.shared) or self.shared.lacks(self.folder, self.version):
            self.refresh()

    def _follow_own(self, source: Folder | SharedLog) -> bool:
        """Take over the commits that wal2lake made since; False if delta-rs has to load the log."""
        if time.monotonic() - self._seen_at > _FOLLOW_SECONDS:
            return False
        entries, are_all = newer_commits(source, self.version, self.schema, self.definition.physical_names())
        for entry in entries if are_all else ():
            self._follow(entry)
        return are_all

    def _follow(self, entry: LogEntry) -> None:
        """Take over what the commit of the next version did, which changed nothing but files."""
        version = self.version + 1
        self._files = None if self._files is None else entry.applied_to(self._files)
        self._loaded.follow(entry.txns)
        self._vectors.follow(version, entry)
        if entry.has_commit_time:
            self._committed = version, entry.committed

    def _load_newest(self) -> None:
        before = self.version
        self._loaded.refresh()
        self._seen_at = time.monotonic()
        if self.version != before:
            self._schema = self._files = None

    @property
    def version(self) -> int:
        """The loaded version."""
        return self._loaded.version

    @property
    def identity(self) -> str:
        """The id that Delta gave the table when it was created; a table created again at the path has another."""
        return self.definition.identity

    @property
    def schema(self) -> pa.Schema:
        """The table's columns as Arrow schema, all nullable, without metadata."""
        if self._schema is None:
            self._schema = plain_schema(pa.schema(self._loaded.facts.schema().to_arrow()))
        return self._schema

    @property
    def tracked_schema(self) -> pa.Schema:
        """The columns, and with row tracking those of ids and commit versions, which rows that are written may lack."""
        return self._columns.tracked_schema

    @property
    def _columns(self) -> FileColumns:
        return FileColumns(self.definition, self.schema)

    @property
    def definition(self) -> Definition:
        """The table's protocol, properties and columns, as its log has them."""
        version = int((raw := self._loaded.facts).version())
        if self._defined is None or self._defined[0] is not raw or self._defined[1] != version:
            self._defined = raw, version, Definition.of(raw)
        return self._defined[2]

    @property
    def clustered_by(self) -> tuple[str, ...]:
        """The columns by which the table is clustered; empty for none."""
        if CLUSTERING not in self.features:
            return ()
        names = {physical: name for name, physical in self.definition.physical_names().items()}
        return tuple(names.get(column, column) for column in self._vectors.clustered_by(self.version))

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties (``delta.…``)."""
        return self.definition.properties

    @property
    def features(self) -> frozenset[str]:
        """Reader and writer features in the protocol."""
        return self.definition.readers | self.definition.writers

    def txn(self, app: str) -> int | None:
        """Return the version of the newest ``txn`` with this id; None if there is none."""
        return self._loaded.txn(app)

    @property
    def files(self) -> list[DataFile]:
        """The table's data files, with their statistics and deletion vectors in the log."""
        if self._files is None:
            vectors = self._vectors.at(self.version) if self.has_deletion_vectors else {}
            row_ids = self._vectors.row_ids(self.version) if self.definition.assigns_row_ids else {}
            physical = self.definition.physical_names()
            self._files = self._loaded.files(vectors, row_ids, {stored: name for name, stored in physical.items()})
        return self._files

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether files may have rows marked as deleted."""
        return VECTORS in self.features

    @property
    def marks_rows(self) -> bool:
        """Whether a commit may mark rows as deleted (``enable_vectors``)."""
        return self.has_deletion_vectors and self.properties.get(VECTORS_ENABLED) == "true"

    @property
    def removed(self) -> dict[str, int]:
        """The files of data and vectors that the log removed: ``VectorLog.removed``. For tables with vectors."""
        self._vectors.at(self.version)
        return self._vectors.removed

    def forget_removed(self, before: float) -> None:
        """Forget the files of ``removed`` that were removed before a time, in milliseconds since 1970."""
        self._vectors.forget(before)

    def live(self, file: DataFile) -> Bools | None:
        """Return which rows of a file are not marked as deleted; None for all. Shape: bool[rows]"""
        return None if file.vector is None else self._vectors.live(file.vector, self.row_count(file))

    def unmarked(self, file: DataFile, places: np.ndarray) -> Bools:
        """Return which positions of a file are not marked as deleted. Shape: int64[P] -> bool[P]"""
        if file.vector is None:
            return np.ones(len(places), dtype=bool)
        gone = self._vectors.deleted(file.vector) & as_bitmap(places)
        return ~np.isin(places, as_places(gone)) if gone else np.ones(len(places), dtype=bool)

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        """Return the rows of one file, in the table's schema, or ``columns`` of it; a column missing in it is null.

        Without the rows marked as deleted; with ``whole`` also those. ``columns`` may be of ``tracked_schema``.
        """
        read_columns, live = self._columns.named(columns), None if whole else self.live(file)
        rows = self._parquet.read(file, read_columns, live)
        return self._columns.filled(rows, file, self._places(file, live)) if read_columns.hidden else rows

    def read_at(self, file: DataFile, places: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows at ascending positions in a file, marked or not; reads only their row groups.

        Shape: int64[P] -> table[P]
        """
        read_columns = self._columns.named(columns)
        rows = self._parquet.read_at(file, read_columns, places)
        return self._columns.filled(rows, file, places) if read_columns.hidden else rows

    def use_copies(self, copies: RowCopies) -> None:
        """In this round read rows at some positions from copies of files, which are made when they are worth it."""
        self._parquet.copies = copies
        copies.begin(self.path, (f"{self.path}/{file.path}" for file in self.files))

    def row_count(self, file: DataFile) -> int:
        """Return the number of rows of a file, marked or not, also if the log does not have it."""
        return file.rows or self._parquet.row_count(file)

    def bytes_in_memory(self, file: DataFile) -> int:
        """Estimate the size of a file's rows in memory, from its footer; values of a dictionary are counted once."""
        return self._parquet.bytes_in_memory(file)

    def is_all_null(self, file: DataFile, column: str) -> bool:
        """Whether a column has no value in any row of a file, marked or not, by the file's footer."""
        return self._parquet.is_all_null(file, self._columns.named([column]))

    def batches(self, file: DataFile, names: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """As ``read``, in the file's order, a few megabytes and at most ``rows`` rows at a time."""
        read_columns, live = self._columns.named(names), self.live(file)
        batches = self._parquet.batches(file, read_columns, live, rows)
        return self._columns.filled_batches(batches, file, self._places(file, live)) if read_columns.hidden else batches

    def _places(self, file: DataFile, live: np.ndarray | None) -> np.ndarray:
        return np.arange(self.row_count(file)) if live is None else np.flatnonzero(live)

    def read_as(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        """Return the rows of a file that was written by this object under ``schema`` and not committed yet."""
        return self._parquet.read_as(file, self._columns.of_commit(schema))

    def batches_as(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
        """As ``read_as``, in the file's order, a few megabytes at a time."""
        return self._parquet.batches_as(file, self._columns.of_commit(schema))

    def has(self, file: DataFile) -> bool:
        """Whether the file exists with the size with which it was written."""
        return self.folder.has(file.path, file.size)

    def write(self, rows: pa.Table, name: str = "part") -> DataFile:
        """Write rows of the table's schema to a new file, which is not part of the table until a commit adds it."""
        return self._parquet.write(rows, self._columns.of_rows(rows), name)

    def write_changes(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[DataFile]:
        """Write rows of ``schema`` with their kind of change (CHANGE_TYPE) to files of a commit's ``changes``."""
        return self._parquet.write_stream(batches, self._columns.of_changes(schema), name=f"{CHANGES}/cdc")

    def write_as(self, rows: pa.Table, schema: pa.Schema, name: str = "part") -> DataFile:
        """As ``write``, with another schema, for a commit that puts it in force and replaces all files."""
        return self._parquet.write(rows, self._columns.of_rows_of_commit(rows, schema), name)

    def write_stream(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_per_file: int,
        bytes_per_file: int | None = FILE_BYTES,
        name: str = "part",
    ) -> list[DataFile]:
        """Write batches of ``schema`` to new files of at least ``rows_per_file`` rows, fewer if they are large.

        ``schema`` may have the columns of row tracking (``tracked_schema``). A file ends with the row group that
        reaches ``bytes_per_file`` in memory (None: no limit). At most one row group is in memory. Without rows no file
        is written.
        """
        return self._parquet.write_stream(batches, self._columns.of_stream(schema), rows_per_file, bytes_per_file, name)

    def write_one(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, group_bytes: int, name: str) -> DataFile:
        """Write batches of ``schema`` to one new file without statistics, in row groups of about so many bytes."""
        return self._parquet.write_one(batches, self._columns.of_stream(schema), group_bytes, name)

    def commit(
        self,
        added: Iterable[DataFile] = (),
        removed: Iterable[DataFile] = (),
        *,
        marked: Iterable[MarkedRows] = (),
        changes: list[DataFile] | None = None,
        txns: Mapping[str, int] | None = None,
        metadata: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
        replace: bool = False,
        definition: Definition | None = None,
        clustered_by: Sequence[str] | None = None,
        data_change: bool = True,
        keeps_row_ids: bool = True,
    ) -> int:
        """Add and remove files and mark rows, in one commit with the positions it reaches; returns the new version.

        ``replace`` removes all existing files instead. ``schema`` puts columns in force, with ``replace`` those under
        which the files were written (``write_as``). ``definition`` is derived from the table's own and put in force,
        with the columns that it is ``clustered_by``. Added files may have marked rows, too. ``changes`` are the
        files of its change data feed, none if no row differs; None: readers go by the rows of files. ``keeps_row_ids``:
        rows that were in the table before have the ids that they had (``tracked_schema``).

        Raises CommitConflictError if another commit was made first (see the module's docstring), UnreadableError if
        another program allows appends only: nothing was changed.
        """
        added, marked = list(added), list(marked)
        removed = list(self.files) if replace else list(removed)
        before, after = self.definition, self._defined_by(definition, schema, replace)
        if clustered_by is None and not set(self.clustered_by) <= {field["name"] for field in after.fields}:
            clustered_by = ()  # readers of the log look for each of them among the columns
        if marked and (after is not before or not self.marks_rows):
            raise InvariantError(f"A commit to {self.path} that marks rows cannot change the table as well.")
        if (removed or marked) and self.properties.get(_APPENDS_ONLY) == "true":
            raise appends_only(self.path, _APPENDS_ONLY)
        if marked:
            added, removed = self._with_marks(added, removed, marked)
        if after.assigns_row_ids and not before.assigns_row_ids:
            added, data_change = self._with_row_ids(added, removed), False
        actions = after.actions(before)
        entry = LogEntry(
            added,
            removed,
            txns or {},
            metadata,
            data_change and changes != [],
            actions,
            names=after.physical_names(),
            clustered_by=None if clustered_by is None else after.physical(clustered_by),
            has_commit_time=after.has_commit_times,
            replaces=replace,
            assigns_row_ids=after.assigns_row_ids,
            keeps_row_ids=keeps_row_ids and not replace,
            changes=changes or (),
        )
        if after.has_commit_times and not before.has_commit_times:
            # Readers take the time in the properties for that of this commit.
            entry = entry.at(after.first_commit_time)
        return self._commit(entry) if removed or actions or clustered_by is not None else self._append(entry)

    def _with_marks(
        self, added: list[DataFile], removed: list[DataFile], marked: Sequence[MarkedRows]
    ) -> tuple[list[DataFile], list[DataFile]]:
        """Return the files that a commit adds and removes, with those in which it marks rows."""
        counted = [replace(marks, file=replace(marks.file, rows=self.row_count(marks.file))) for marks in marked]
        again, gone = self._vectors.write(counted, self.definition.physical_names()), [marks.file for marks in marked]
        failpoints.hit(failpoints.AFTER_VECTORS)
        new, changed = {file.path for file in added}, {file.path for file in gone}
        kept = [file for file in added if file.path not in changed]
        return kept + again, removed + [file for file in gone if file.path not in new]

    def _with_row_ids(self, added: list[DataFile], removed: list[DataFile]) -> list[DataFile]:
        """Return all files, which the commit that enables row tracking adds with their row ids, and nothing else."""
        if added or removed:
            raise InvariantError(f"A commit to {self.path} that enables row tracking cannot change rows as well.")
        # The log may not have their numbers of rows.
        return [file if file.rows else replace(file, rows=self.row_count(file)) for file in self.files]

    def _defined_by(self, definition: Definition | None, schema: pa.Schema | None, is_replaced: bool) -> Definition:
        """Return the definition that a commit puts in force."""
        after = self.definition if definition is None else definition
        if schema is None or plain_schema(schema).equals(self.schema):
            return after
        return after.replaced(schema) if is_replaced else after.with_columns(schema)

    def _append(self, entry: LogEntry) -> int:
        """Commit an entry that only adds files and positions, after others that do not conflict with it."""
        for _ in range(_APPENDS_PASSED):
            try:
                return self._commit(entry)
            except CommitConflictError:
                before, known = self.definition, {app: self.txn(app) for app in entry.txns}
                self.refresh()
                if self.definition != before or {app: self.txn(app) for app in entry.txns} != known:
                    raise
        raise CommitConflictError()

    def _commit(self, entry: LogEntry) -> int:
        """Create the log's entry of the next version, and take over what it does; returns its version.

        Raises CommitConflictError if the log has an entry of that version.
        """
        version = self.version + 1
        if entry.has_commit_time:
            entry = entry.after(self._commit_time())
        if entry.assigns_row_ids:
            entry = entry.numbered(self._vectors.highest_row_id(self.version), version)
        content = entry.content()
        if not self.folder.create(entry_name(version), content):
            raise CommitConflictError()
        if self.shared is not None:
            self.shared.put(version, content)
        if entry.actions:
            self._schema = self._files = None
            self._load_newest()
            self._vectors.follow(version, entry)
            self._committed = (version, entry.committed) if entry.has_commit_time else None
        else:
            self._follow(entry)
            self._seen_at = time.monotonic()
        self._write_checkpoint()
        return version

    def _commit_time(self) -> int:
        """Return the time of the loaded version's commit in milliseconds, 0 if it has none."""
        if self._committed is None or self._committed[0] != self.version:
            self._committed = self.version, commit_time(self.folder, self.version)
        return self._committed[1]

    def _write_checkpoint(self) -> None:
        """Write a checkpoint if this version is due to have one."""
        past = (self.version + 1) % int(self.properties.get(_INTERVAL, _DEFAULT_INTERVAL))
        if not past and not write_checkpoint(self.folder, self.shared, self.version):
            self._load_newest()
            self._loaded.changeable().create_checkpoint()

    def enable_vectors(self) -> bool:
        """Allow commits to mark rows as deleted, for good; returns whether the table did not allow it yet.

        Raises CommitConflictError if another commit was made first.
        """
        if self.marks_rows:
            return False
        self.commit(definition=self.definition.with_vectors())
        return True

    def missing_files(self) -> list[str]:
        """Return paths of data files of the loaded version that do not exist; checks each file of a local table."""
        return self.folder.missing([file.path for file in self.files])

    def raw(self, *, to_change: bool = True) -> Any:
        """Return delta-rs' own object, for what this class does not have (VACUUM)."""
        return self._loaded.changeable() if to_change else self._loaded.exact()

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove files that ``write_stream`` wrote and no commit references."""
        self.folder.delete([file.path for file in files])

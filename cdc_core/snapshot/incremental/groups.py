"""Reads consecutive chunks of a table into files, in a separate thread, until they are requested.

A group of chunks is written to a lake table in one commit, so it contains as many as are read while the previous group
is written. Each chunk is one statement, with a separate snapshot; its rows are typed as in the lake before they are
written anywhere, because some may have to be masked.

``floor`` of a chunk is an LSN up to which its snapshot shows every commit, so that only later changes have to be
checked for whether it shows them. It is derived from *bounds* taken before: transactions that had committed by the end
of WAL R had an id less than X, and a snapshot whose xmin is at least X shows all of them (``bound``). While a
transaction older than the first bound is open nothing can be derived, and the floor is 0.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event

import pyarrow as pa

from cdc_core.clock import now_us
from cdc_core.lake.rows.run_files import Owner, writing
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.rows.chunk_sql import KeyColumn
from cdc_core.postgres.rows.chunks import ChunkConnection, received_visibility
from cdc_core.private_files import create_private
from cdc_core.schema.plan import row_key
from cdc_core.schema.table import TableSchema
from cdc_core.schema.unseen import streamed
from cdc_core.snapshot.incremental.chunk import ChunkQuery
from cdc_core.snapshot.incremental.lake_progress import LakeProgress
from cdc_core.snapshot.incremental.progress import Collection, Key, Progress
from cdc_core.snapshot.incremental.reader import ChunkReader
from cdc_core.snapshot.incremental.window import is_unaltered
from cdc_core.snapshot.notifications import ScanStatus
from cdc_core.snapshot.unsent import UnsentChanges, published_as

_GROUP_BYTES = 16 << 20
_GROUP_CHUNKS = 256
_BOUNDS = 64
_PROOF_SECONDS, _PROOF_PAUSE_SECONDS = 5.0, 0.05
_OLDER_SECONDS = 1.0
# While the stream delivers many changes, reading chunks takes at most 1/_SHARE of the time.
_SHARE, _MAX_WAIT_SECONDS = 12, 1.0


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """One chunk: the path of an Arrow file of lake rows, their number, its pg_snapshot's text, and its floor.

    ``gone``: the path of an Arrow file of keys that were asked for and were not found, "" for none.
    """

    path: str
    rows: int
    visible: str
    floor: int
    gone: str = ""


@dataclass(frozen=True, slots=True)
class ChunkGroup:
    """Chunks of one table, all read under one description of it (``table``, None if it no longer exists).

    ``progress`` is the state after them; ``scanned`` is the LSN from which changes must be searched if the table's
    first chunk is in this group, else None. ``rest``: the number of keys of ``LakeProgress.rest`` that were read, 0 for
    chunks by key. ``reached`` is the end of WAL after the last chunk. ``ended`` is set if the table has no further
    rows.
    ``is_altered``: the table was altered meanwhile, and the group cannot be used.
    """

    collection: Collection
    table: TableSchema | None
    progress: Progress
    chunks: tuple[ChunkFile, ...] = ()
    reached: int = 0
    scanned: int | None = None
    rest: int = 0
    ended: ScanStatus | None = None
    is_altered: bool = False

    @property
    def rows(self) -> int:
        """Rows in all chunks."""
        return sum(chunk.rows for chunk in self.chunks)

    def discard(self) -> None:
        """Remove the files."""
        for chunk in self.chunks:
            Path(chunk.path).unlink(missing_ok=True)


class GroupReader:
    """Reads one group at a time. ``folder`` is readable by the lake's tasks, and belongs to the run ``owner``.

    ``catalog``, ``connection`` and ``unsent`` are used only in this object's thread. Both connections are opened on
    first use. ``unsent`` decides whether a table has to wait for older transactions (None: never).
    """

    def __init__(
        self,
        connection: ChunkConnection,
        catalog: Callable[[], Catalog],
        cutter: ChunkReader,
        plan: TypingPlan,
        folder: Path,
        owner: Owner,
        unsent: UnsentChanges | None = None,
    ) -> None:
        self._connection = connection
        self._unsent = unsent
        self._complete: set[object] = set()
        self._catalog = cache(catalog)
        self._cutter = cutter
        self._plan = plan
        self._folder = folder
        self._owner = owner
        self._enough = Event()
        self._slow = Event()
        self._closing = Event()
        self._bounds: list[tuple[int, int]] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="chunk-reader")

    def start(self, state: LakeProgress) -> Future[ChunkGroup]:
        """Start reading after ``state``: the next rows of its current table, or the keys of ``rest`` after its last.

        The future raises SourceError or TransientError, of these OlderTransactionsError as long as transactions are
        open whose changes of the table may be missing in the stream (``snapshot/unsent``).
        """
        self._enough = Event()
        return self._pool.submit(self._read, state, self._enough)

    def enough(self) -> None:
        """End the group after its current chunk."""
        self._enough.set()

    def slow(self, is_slow: bool) -> None:
        """Set whether most of the time is left to the stream."""
        self._slow.set() if is_slow else self._slow.clear()

    def close(self) -> None:
        """End the thread; a running statement is cancelled."""
        self._closing.set()
        self._enough.set()
        self._connection.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._connection.close()

    def _read(self, state: LakeProgress, enough: Event) -> ChunkGroup:
        collection = state.progress.current
        assert collection is not None
        found = self._catalog().current(collection.table)
        if found is None:
            return ChunkGroup(collection, None, state.progress, ended=ScanStatus.UNKNOWN_SCHEMA)
        table = streamed(found)
        key = self._cutter.key_of(table, collection)
        if not key or not row_key(table):
            return ChunkGroup(collection, table, state.progress, ended=ScanStatus.NO_PRIMARY_KEY)
        self._require_sent(table)
        query = ChunkQuery(
            table,
            self._columns(table, key),
            key,
            self._cutter.size,
            self._condition(table, collection.condition),
            only=table.fingerprint is not None and not table.fingerprint.is_partitioned,
            bounded=True,
        )
        made = _Group(self, collection, query, state, enough).read()
        after = self._catalog().current(collection.table)
        if after is None or not is_unaltered(table, streamed(after)):
            made.discard()
            return ChunkGroup(collection, table, state.progress, is_altered=True)
        return made

    def _require_sent(self, table: TableSchema) -> None:
        """Raise OlderTransactionsError if the stream may lack changes that the first chunks would not show either."""
        publication = (table.id, published_as(table))
        if self._unsent is not None and publication not in self._complete:
            self._unsent.require(self._connection, [table], _OLDER_SECONDS)
            self._complete.add(publication)

    def _condition(self, table: TableSchema, own: str) -> str:
        """The signal's condition and the publication's row filter: rows that it excludes have no events either."""
        wanted = [each for each in (own, self._catalog().row_filter(table)) if each.strip()]
        return " AND ".join(f"({each})" for each in wanted)

    def note_bound(self) -> int:
        """Take a bound; returns the end of WAL, which is behind everything that was read."""
        end, before = self._connection.bound()
        self._bounds = [*self._bounds[-_BOUNDS:], (int(end), before)]
        return int(self._connection.wal_end())

    def floor(self, visible: str) -> int:
        """Return the LSN up to which a snapshot is known to show every commit."""
        seen = received_visibility(visible)
        return max((end for end, before in self._bounds if seen.shows_all_before(before)), default=0)

    def prove(self) -> None:
        """Take the first bound, and wait at most _PROOF_SECONDS for older transactions to end."""
        if self._bounds:
            return
        self.note_bound()
        deadline = time.monotonic() + _PROOF_SECONDS
        while not self.floor(self._connection.read().visible) and time.monotonic() < deadline:
            if self._closing.wait(_PROOF_PAUSE_SECONDS):
                return

    def select(self, statement: str, *, is_users: bool) -> tuple[bytes, str]:
        """Return rows as lines of COPY text, and the snapshot's text. ``is_users``: with SQL of the user's."""
        began = time.monotonic()
        found = self._connection.read(statement, is_users=is_users)
        if self._slow.is_set():
            self._closing.wait(min((_SHARE - 1) * (time.monotonic() - began), _MAX_WAIT_SECONDS))
        return found.rows[0], found.visible

    def _columns(self, table: TableSchema, key: Sequence[KeyColumn]) -> tuple[str, ...]:
        """Return the columns to read: those captured, and the key's. The role may have no privilege for others."""
        wanted = {*self._plan.typer(table).read_columns, *(column.name for column in key)}
        return tuple(column.name for column in table.columns if column.name in wanted)

    def store(self, query: ChunkQuery, lines: bytes, visible: str) -> ChunkFile:
        """Type the rows that the query read, and write them to a file."""
        table = query.table
        rows = self._plan.typer(table).reads(query.decoded(lines), 0, now_us())
        path = self._folder / f"chunk-{uuid.uuid4()}.arrow"
        schema = rows.schema.with_metadata(self._owner.metadata(str(table.id)))
        with writing(path):
            create_private(path)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_batch(rows.replace_schema_metadata(schema.metadata))
        return ChunkFile(str(path), rows.num_rows, visible, self.floor(visible))


class _Group:
    """Reads one group."""

    def __init__(
        self,
        reader: GroupReader,
        collection: Collection,
        query: ChunkQuery,
        state: LakeProgress,
        enough: Event,
    ) -> None:
        self._enough = enough
        self._reader = reader
        self._collection = collection
        self._query = query
        self._state = state
        self._chunks: list[ChunkFile] = []

    def read(self) -> ChunkGroup:
        progress, scanned = self._state.progress, None
        self._reader.prove()
        names = self._query.key_names
        if progress.key != names or progress.maximum_key is None:
            largest, scanned = self._largest()
            if largest is None:
                return self._group(progress, ScanStatus.EMPTY)
            progress = progress.restarted().begun(names, largest)
        if progress.last_key is not None and progress.last_key == progress.maximum_key and self._state.rest:
            return self._read_rest(progress)
        return self._read_chunks(progress, scanned)

    def _largest(self) -> tuple[Key | None, int]:
        lines, visible = self._read_rows(self._query.largest())
        return self._query.largest_key(lines), self._reader.floor(visible) if lines else 0

    def _read_chunks(self, progress: Progress, scanned: int | None) -> ChunkGroup:
        assert progress.maximum_key is not None
        # A range that may have been written already is read again up to the same end, even if the group is requested.
        redo, octets = self._state.upto, 0
        is_redone = redo is not None and progress.key == self._state.progress.key
        upto = redo if is_redone and redo is not None else progress.maximum_key
        while True:
            lines, visible = self._read_rows(self._query.chunk(progress.last_key, upto))
            count = lines.count(b"\n")
            octets += len(lines)
            if count:
                self._take(lines, visible)
            if count < self._query.size:
                progress = progress.behind(upto)
                ended = ScanStatus.SUCCEEDED if upto == progress.maximum_key else None
                return self._group(progress, ended, scanned)
            progress = progress.behind(self._query.last_key(lines))
            is_full = len(self._chunks) >= _GROUP_CHUNKS or octets >= _GROUP_BYTES
            if not is_redone and (is_full or self._enough.is_set()):
                return self._group(progress, None, scanned)

    def _read_rest(self, progress: Progress) -> ChunkGroup:
        """Read the rows of keys that are to be read again."""
        keys = self._state.rest[: self._query.size]
        lines, visible = self._read_rows(self._query.of_keys(keys))
        if lines:
            self._take(lines, visible)
        made = self._group(progress, ScanStatus.SUCCEEDED)
        return dataclasses.replace(made, rest=len(keys))

    def _read_rows(self, statement: str) -> tuple[bytes, str]:
        return self._reader.select(statement, is_users=self._query.is_users)

    def _take(self, lines: bytes, visible: str) -> None:
        self._chunks.append(self._reader.store(self._query, lines, visible))

    def _group(self, progress: Progress, ended: ScanStatus | None, scanned: int | None = None) -> ChunkGroup:
        # After everything that any of the chunks shows; the bound is also used for the next group's floors.
        reached = self._reader.note_bound()
        query, chunks = self._query, tuple(self._chunks)
        return ChunkGroup(self._collection, query.table, progress, chunks, reached, scanned, ended=ended)

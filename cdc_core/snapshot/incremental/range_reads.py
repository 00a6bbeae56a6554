"""Reads ranges of tables in Spark tasks, several at a time, and stages each as soon as it is read.

    plan  ─▶ range ─▶ description, key, bounds ─▶ one Spark job of one task ─▶ unaltered? ─▶ staged (one commit)

A range is a job of its own: it is staged when it is read, whatever becomes of the others, and one that fails is read
again alone. Both a streaming run and a job beside it read in this way; what is staged is written by a streaming run.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cdc_core import failpoints
from cdc_core.connector_threads import ConnectorThreadPool
from cdc_core.errors import CdcError, InvariantError, LockedError
from cdc_core.lake import LakePaths, LakeTable, RangePlan, RangePlans, StagedFile, StagedRows, TypingPlan, epoch_of
from cdc_core.postgres import Catalog, ConnectionString
from cdc_core.schema import TableId, TableSchema, streamed
from cdc_core.snapshot.incremental.bounds import Bound, proven_floor, take_bound
from cdc_core.snapshot.incremental.chunk import ChunkQuery
from cdc_core.snapshot.incremental.progress import Collection
from cdc_core.snapshot.incremental.range_task import RangeFile, RangeQuery, ReadRange
from cdc_core.snapshot.incremental.reader import ChunkReader
from cdc_core.snapshot.incremental.staged import RangeFacts, RangeToRead
from cdc_core.snapshot.incremental.window import is_unaltered
from cdc_core.snapshot.notifications import ScanStatus
from cdc_core.snapshot.options import SnapshotOptions
from cdc_core.snapshot.unsent import UnsentChanges, published_as
from cdc_core.spark import StartSession, run_tasks

_log = logging.getLogger(__name__)

_RANGE_ROWS = 250_000
_MOST_RANGES = 1_000
_SAMPLED_PAGES = 20
_ROWS_OF_PAGE = 50
_OLDER_SECONDS = 1.0
_MOST_BOUNDS = 64


@dataclass(frozen=True, slots=True)
class Planned:
    """The ranges of a table, and the LSN after which changes are searched for rows that moved (``RangeToRead``)."""

    plan: RangePlan
    since: int


@dataclass(frozen=True, slots=True)
class RangeRead:
    """The result of reading a range: ``rows`` that are staged, unless it ``ended`` the table or was ``is_altered``.

    ``seconds``: from the beginning of the reading until they were staged. ``ended``: the table no longer exists, or has
    no key. ``is_altered``: the table was altered while it was read.
    """

    rows: int = 0
    ended: ScanStatus | None = None
    is_altered: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RangeReader:
    """What reads: ``work`` in the tasks of ``spark``, ``threads`` at a time; ``rows_per_range`` at most in a plan.

    ``statement_of`` returns the user's own SELECT for a table, None to read the table itself.
    """

    spark: StartSession
    work: ReadRange
    threads: Callable[[], int]
    rows_per_range: int
    statement_of: Callable[[TableId], str | None]

    @classmethod
    def of(
        cls,
        spark: StartSession,
        plan: TypingPlan,
        connection: ConnectionString,
        staged: str,
        options: SnapshotOptions,
        rows_per_range: int,
        threads: Callable[[], int],
    ) -> RangeReader:
        """Return what reads with the ``options``, and writes to the table ``staged``."""
        work = ReadRange(plan, connection, staged, options.snapshot_lock_timeout_ms)
        return cls(spark, work, threads, rows_per_range, options.statement_of)


class RangeReads:
    """Plans and reads ranges; for any thread. The connections are opened on first use.

    ``unsent`` decides whether a table has to wait for older transactions (None: never).
    """

    def __init__(
        self,
        reader: RangeReader,
        catalog: Callable[[], Catalog],
        cutter: ChunkReader,
        paths: LakePaths,
        scope: str,
        properties: dict[str, str],
        unsent: UnsentChanges | None = None,
    ) -> None:
        self._reader = reader
        self._catalog_of = catalog
        self._catalog: Catalog | None = None
        self._cutter = cutter
        self._paths = paths
        self._scope = scope
        self._unsent = unsent
        self._staged = StagedRows(paths.staged, properties)
        self._plans = RangePlans(paths.key_ranges, properties)
        self._complete: set[object] = set()
        self._bounds: tuple[Bound, ...] = ()
        self._lock = threading.Lock()
        # Of one thread, because planning needs no session, and a session says how many threads read.
        self._planning = ConnectorThreadPool(1, thread_name_prefix="range-plans")
        self._reading: ConnectorThreadPool | None = None
        self._group = f"wal2lake-ranges-{uuid.uuid4()}"

    def plan(self, collection: Collection, *, renew: bool = False) -> Future[Planned | ScanStatus]:
        """Begin to plan a table's ranges: the stored plan, or a new one if there is none that fits (or ``renew``)."""
        return self._planning.submit(self._guarded, self._planned, collection, renew)

    def read(self, to_read: RangeToRead, instead_of: StagedFile | None = None) -> Future[RangeRead]:
        """Begin to read a range once one of ``threads`` is free, and stage it, in the place of another reading.

        The future can be cancelled until it begins. It raises SourceError or TransientError, of these
        OlderTransactionsError as long as transactions are open whose changes of the table may be missing in the stream
        (``snapshot/unsent``).
        """
        if self._reading is None:
            self._reading = ConnectorThreadPool(self.threads, thread_name_prefix="range-reads")
        return self._reading.submit(self._guarded, self._read, to_read, instead_of)

    @property
    def threads(self) -> int:
        """How many ranges are read at a time."""
        return self._reader.threads()

    def close(self) -> None:
        """End the threads; ranges that are being read are cancelled, and are not staged."""
        self._planning.shutdown(wait=False, cancel_futures=True)
        if self._reading is not None:
            self._reading.shutdown(wait=False, cancel_futures=True)
            with suppress(Exception):  # without a session nothing is running
                self._reader.spark().sparkContext.cancelJobGroup(self._group)
            self._reading.shutdown(wait=True)
        self._planning.shutdown(wait=True)
        self._cutter.connection.close()

    def _guarded(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function of a pool: an internal error concerns one table, as one of the server does."""
        try:
            return function(*arguments)
        except CdcError:
            raise
        except Exception as error:
            _log.exception("Reading rows of an incremental snapshot failed unexpectedly.")
            raise InvariantError(
                f"Reading rows of an incremental snapshot failed unexpectedly ({type(error).__name__}).",
                "Please report this with the log.",
            ) from error

    def _planned(self, collection: Collection, renew: bool) -> Planned | ScanStatus:
        with self._lock:
            query = self._query(collection)
            if isinstance(query, ScanStatus):
                return query
            since = proven_floor(self._cutter.connection, self._note_bound())
            known = self._plans.read().get((query.table.id, query.key_names))
            expected, pages = self._size(query.table)
            count = self._ranges(expected)
            kept = known if known is not None and not renew and known.oid == query.table.oid else None
            if kept is not None and count <= 2 * kept.count:
                return Planned(kept, since)
            try:
                bounds = tuple(self._cut(query, count, pages)) if count > 1 else ()
            except LockedError:
                if kept is None:
                    raise
                return Planned(kept, since)
            made = RangePlan(
                str(uuid.uuid4()), query.table.id, query.table.oid, query.key_names, bounds, expected or None
            )
            self._plans.put(made)
            return Planned(made, since)

    def _ranges(self, expected: int) -> int:
        rows = min(self._reader.rows_per_range, _RANGE_ROWS)
        return max(1, min(_MOST_RANGES, -(-expected // rows)))

    def _size(self, table: TableSchema) -> tuple[int, int]:
        """Return the estimated rows and the pages of a table, of its partitions if it has some.

        The catalogue has no pages of a table that is locked: they are estimated, too.
        """
        catalog = self._catalogue
        parts = catalog.leaves(table, is_filtered=False) if table.is_partitioned else ()
        sizes = [(part.rows, part.pages) for part in parts]
        if not sizes:
            size = catalog.sizes([table]).get(table.id)
            sizes = [] if size is None else [(size.rows, size.pages)]
        rows = sum(known if known is not None and known > 0 else pages * _ROWS_OF_PAGE for known, pages in sizes)
        return rows, sum(pages for _, pages in sizes) or rows // _ROWS_OF_PAGE

    def _cut(self, query: ChunkQuery, count: int, pages: int) -> list[Any]:
        percent = 100.0 * count * _SAMPLED_PAGES / max(1, pages)
        sample = self._cutter.connection.read(query.bounds(count, percent), table=query.table.id)
        return query.bounds_of(sample.rows[0])

    def _read(self, to_read: RangeToRead, instead_of: StagedFile | None) -> RangeRead:
        began = time.monotonic()
        with self._lock:
            query = self._query(to_read.collection)
            if isinstance(query, ScanStatus):
                return RangeRead(ended=query)
            bounds = self._note_bound()
            self._staged.create()
        place = LakeTable(self._paths, self._scope, to_read.table).place()
        facts = RangeFacts(str(uuid.uuid4()), to_read, query.table, place.merge_token, epoch_of(self._scope))
        made = self._run(RangeQuery(facts, query, bounds))
        if isinstance(made, CdcError):
            raise made
        after = self._catalogue.current(to_read.table)
        with self._lock:
            if after is None or not is_unaltered(query.table, streamed(after)):
                self._staged.discard(made.file)
                return RangeRead(is_altered=True)
            self._staged.add(made.file, instead_of)
        failpoints.hit(failpoints.AFTER_STAGING)
        return RangeRead(made.rows, seconds=time.monotonic() - began)

    def _run(self, range_query: RangeQuery) -> RangeFile | CdcError:
        spark, table = self._reader.spark(), range_query.query.table.id
        spark.sparkContext.setJobGroup(self._group, f"reading {table} in chunks", interruptOnCancel=True)
        (made,) = run_tasks(spark, [[range_query]], self._reader.work, f"reading a range of {table}")
        return made

    def _query(self, collection: Collection) -> ChunkQuery | ScanStatus:
        """Return how a table is read in chunks now, or why it is not."""
        current = self._catalogue.current(collection.table)
        if current is None:
            return ScanStatus.UNKNOWN_SCHEMA
        table = streamed(current)
        key = self._cutter.key_of(table, collection)
        if not key or not table.row_key:
            return ScanStatus.NO_PRIMARY_KEY
        self._require_sent(table)
        typer = self._reader.work.plan.typer(table)
        statement = self._reader.statement_of(table.id) or ""
        # Those captured, and the key's: the role may have no privilege for others.
        names = {*typer.read_columns, *(column.name for column in key)}
        return ChunkQuery(
            table,
            tuple(column.name for column in table.columns if column.name in names),
            key,
            self._cutter.size,
            # As in a whole snapshot, the statement decides alone which rows are read.
            collection.condition if statement else self._condition(table, collection.condition),
            only=table.fingerprint is not None and not table.is_partitioned,
            bounded=True,
            statement=statement,
        )

    def _condition(self, table: TableSchema, own: str) -> str:
        """The signal's condition and the publication's row filter: rows that it excludes have no events either."""
        conditions = [condition for condition in (own, self._catalogue.row_filter(table)) if condition.strip()]
        return " AND ".join(f"({condition})" for condition in conditions)

    def _require_sent(self, table: TableSchema) -> None:
        """Raise OlderTransactionsError if the stream may lack changes that the first chunks would not show either."""
        publication = (table.id, published_as(table))
        if self._unsent is not None and publication not in self._complete:
            self._unsent.require(self._cutter.connection, [table], _OLDER_SECONDS)
            self._complete.add(publication)

    def _note_bound(self) -> tuple[Bound, ...]:
        self._bounds = (*self._bounds[-_MOST_BOUNDS:], take_bound(self._cutter.connection))
        return self._bounds

    @property
    def _catalogue(self) -> Catalog:
        if self._catalog is None or self._catalog.is_lost:
            self._catalog = self._catalog_of()
        return self._catalog

"""Compares the tables of a connector with their source under one snapshot of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from cdc_core.errors import CdcError, CommitConflictError, NotComparableError
from cdc_core.lsn import Lsn
from cdc_core.postgres.catalog.tables import TableSize
from cdc_core.postgres.connect import ConnectionString
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.postgres.rows.copy_out import SnapshotReader
from cdc_core.postgres.source import OpenSnapshot, Source
from cdc_core.reconcile.between import Shown, SlotChanges
from cdc_core.reconcile.changelog import changelog_bytes, check_changelog
from cdc_core.reconcile.compare import Comparison, Found
from cdc_core.reconcile.judge import Judged
from cdc_core.reconcile.key_texts import key_texts
from cdc_core.reconcile.options import ReconcileOptions
from cdc_core.reconcile.partial import SAMPLE_ROWS, Since
from cdc_core.reconcile.repair import Repair
from cdc_core.reconcile.reports import Key, KeyList, State, TableResult, Unrepaired
from cdc_core.reconcile.rows_repair import write_surplus
from cdc_core.reconcile.source_side import Pace, Reading
from cdc_core.reconcile.target import Records, Target
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.schema.unseen import streamed
from cdc_core.snapshot.copy.description import TableDescription
from cdc_core.snapshot.copy.plan import expected_rows, plan_chunks, plan_leaves
from cdc_core.snapshot.incremental.window import is_unaltered
from cdc_core.visibility import Visibility

_log = logging.getLogger(__name__)

# A range whose rows differ is read again, so ranges are smaller than a snapshot's.
_ROWS_PER_RANGE = 250_000
_PAGES_PER_RANGE = 16_384
_TID_RANGES = 140_000
_REPAIRS = 3
_MERGED_MEANWHILE = "changes were merged while its rows were compared: repair it while no run streams"
_KINDS = ("missing", "extra", "changed", "quarantined", "undecided")

OnTable = Callable[[TableResult], None]


class Readers:
    """A connection that reads under a snapshot, opened again after an error. A context manager."""

    def __init__(self, target: ConnectionString, snapshot: str) -> None:
        self._target = target
        self._snapshot = snapshot
        self._open: SnapshotReader | None = None

    @contextmanager
    def one(self) -> Iterator[SnapshotReader]:
        """The connection for one table's rows."""
        self._open = self._open or SnapshotReader(self._target, self._snapshot)
        try:
            yield self._open
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None


def shown_by(opened: OpenSnapshot, bound: tuple[Lsn, int]) -> Shown:
    """Return what a snapshot shows; ``bound`` was taken before it (``ChunkConnection.bound``)."""
    facts, (end, before) = opened.holder.facts, bound
    floor = int(end) if Visibility.parse(facts.visible).shows_all_before(before) else 0
    return Shown(facts.visible, facts.lsn, floor)


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of the source that tables are compared with."""

    opened: OpenSnapshot
    shown: Shown

    @classmethod
    @contextmanager
    def open(cls, source: Source, bounds: ChunkConnection) -> Iterator[View]:
        """Open a snapshot; it is closed at the end of the context."""
        bound = bounds.bound()
        with closing(source.open_concurrent_snapshot()) as opened:
            yield cls(opened, shown_by(opened, bound))


@dataclass(frozen=True, slots=True)
class Part:
    """Which rows are compared: all, those that changed after ``since`` (by table), or a ``sample`` of so many ranges.

    ``seed`` decides which ranges. ``is_since``: a table that ``since`` does not contain is compared as a whole.
    ``changelog_bytes``: with all rows, changelogs up to this size are checked, too.
    """

    since: Mapping[TableId, Since] = field(default_factory=dict)
    sample: int | None = None
    seed: int = 0
    is_since: bool = False
    changelog_bytes: int = 0

    @property
    def kind(self) -> str:
        """How the results call it."""
        return "sample" if self.sample is not None else "since" if self.since or self.is_since else "all"


class ReconcileRun:
    """Compares tables. ``target`` is how the source is reached by the connection that reads rows.

    ``limit``: how many keys of each kind are named. ``spark`` starts a session for lake tables of at least
    ``options.reconcile_spark_bytes``. ``on_table`` is called with each table's result.
    """

    def __init__(
        self,
        source: Source,
        records: Records,
        target: ConnectionString,
        slot: SlotChanges,
        options: ReconcileOptions,
        limit: int,
        part: Part,
        spark: Callable[[], Any],
        on_table: OnTable = lambda result: None,
    ) -> None:
        self._source = source
        self._records = records
        self._target = target
        self._slot = slot
        self._pace = Pace(options.reconcile_rows_per_second)
        self._spark = spark
        self._spark_bytes = options.reconcile_spark_bytes
        self._limit = limit
        self._part = part
        self._on_table = on_table

    def compare(self, tables: Sequence[TableSchema], view: View) -> list[Found]:
        """Compare all rows of tables, one table after the other; an error of one is in its result."""
        comparison, readers = self._comparison(view, self._limit), Readers(self._target, view.opened.holder.name)
        sizes = self._source.catalog.sizes(tables)
        found = []
        try:
            for table in tables:
                found.append(self._one(comparison, table, sizes.get(table.id), readers))
                self._on_table(found[-1].result)
        finally:
            readers.close()
        return found

    def repair(self, table: TableSchema, found: Found, repair: Repair, bounds: ChunkConnection) -> TableResult:
        """Write the rows of a table that differ; returns its result afterwards, by a comparison of the same keys.

        An error is the reason why the rows that remain were not repaired.
        """
        judged, left, problem = found.judged, dict[Key, str](), ""
        if not table.row_key:
            return self._repaired_rows(table, found, repair, bounds)
        if judged is None or judged.keys is None or judged.doubled is None:
            return with_many(found.result)
        count = found.result.found.count
        for _ in range(_REPAIRS):
            try:
                written, after = self._repaired(table, judged, repair, bounds)
            except NotComparableError as error:
                problem = error.message
                break
            except CdcError as error:
                problem = str(error)
                break
            left, judged = written, after
            if not judged.found.count or len(left) >= judged.found.count:
                break
        done = self._repaired_result(found.result, judged, count, left, problem)
        return done if done.changelog is None else self._checked_again(table, done)

    def _repaired(
        self, table: TableSchema, judged: Judged, repair: Repair, bounds: ChunkConnection
    ) -> tuple[dict[Key, str], Judged]:
        """Return the keys that were not written, with the reasons, and what differs among the keys afterwards."""
        assert judged.keys is not None
        assert judged.doubled is not None
        target = self._records.target(table)
        key = target.compared.key
        assert key is not None
        reading = self._reading(target, TableSize(0, None))
        left = repair.write(target, reading, judged.keys, judged.doubled)
        texts = key_texts(judged.keys.take(pa.array(list(left), pa.int64())), key)
        with View.open(self._source, bounds) as view:
            readers = Readers(self._target, view.opened.holder.name)
            with closing(readers), readers.one() as reader:
                comparison = self._comparison(view, judged.found.count)
                after = comparison.compare_keys(self._records.target(table), reader, reading, judged.keys).judged
        assert after is not None
        return dict(zip(texts, left.values(), strict=True)), after

    def _repaired_rows(self, table: TableSchema, found: Found, repair: Repair, bounds: ChunkConnection) -> TableResult:
        """As ``repair``, for a table without a key: its rows are compared again, and those that differ written."""
        count, problem, after = found.result.found.count, _MERGED_MEANWHILE, None
        try:
            for _ in range(_REPAIRS):
                with self._reader(table, bounds) as (comparison, target, reader, reading):
                    surplus = comparison.surplus(target, reader, reading)
                if not surplus.count:
                    break
                with suppress(CommitConflictError):
                    write_surplus(repair.slices, target, surplus)
                    break
            with self._reader(table, bounds) as (comparison, target, reader, reading):
                after = comparison.compare(target, reader, reading).judged
        except NotComparableError as error:
            problem = error.message
        except CdcError as error:
            problem = str(error)
        result = found.result
        if after is None:
            return replace(result, unrepaired=(Unrepaired((), problem),))
        left = (Unrepaired((), problem),) if after.found.count else ()
        state = State.DIFFERENT if after.found.count else State.EQUAL
        repaired = max(0, count - after.found.count)
        return replace(result, state=state, found=after.found, repaired=repaired, unrepaired=left)

    @contextmanager
    def _reader(
        self, table: TableSchema, bounds: ChunkConnection
    ) -> Iterator[tuple[Comparison, Target, SnapshotReader, Reading]]:
        """What compares a table under a snapshot of its own."""
        size = self._source.catalog.sizes([table]).get(table.id)
        with View.open(self._source, bounds) as view:
            readers = Readers(self._target, view.opened.holder.name)
            with closing(readers), readers.one() as reader:
                target = self._records.target(table)
                reading = self._reading(target, size or TableSize(0, None))
                yield self._comparison(view, self._limit), target, reader, reading

    def _checked_again(self, table: TableSchema, result: TableResult) -> TableResult:
        """Return the result with what its changelog is found to be after the repair: wrong rows are in none."""
        try:
            return self._with_changelog(Found(result), self._records.target(table)).result
        except CdcError as error:
            _log.warning("The changelog of %s could not be checked after the repair: %s", table.id, error)
            return replace(result, changelog=None)

    def _repaired_result(
        self, result: TableResult, judged: Judged, count: int, left: dict[Key, str], problem: str
    ) -> TableResult:
        found = judged.found
        remaining = [*found.missing.keys, *found.extra.keys, *found.changed.keys]
        why = problem or "it differed again after it was written"
        unrepaired = tuple(Unrepaired(key, left.get(key, why)) for key in remaining[: self._limit])
        state = State.DIFFERENT if found.count else State.EQUAL
        done = replace(found, **{name: cut(getattr(found, name), self._limit) for name in _KINDS})
        repaired = max(0, count - found.count)
        return replace(result, state=state, found=done, repaired=repaired, unrepaired=unrepaired)

    def _comparison(self, view: View, limit: int) -> Comparison:
        records, taken_us = self._records, view.opened.holder.facts.timestamp_us
        at, spark = (view.shown, taken_us), self._spark
        return Comparison(records.paths, records.scope, *at, self._slot, self._pace, limit, spark, self._spark_bytes)

    def _one(self, comparison: Comparison, table: TableSchema, size: TableSize | None, readers: Readers) -> Found:
        try:
            target = self._records.target(table)
            reading = self._reading(target, size or TableSize(0, None))
            with readers.one() as reader:
                found = self._compared(comparison, target, reader, reading)
            found = self._with_changelog(found, target)
            self._check_unaltered(table)
            return found
        except NotComparableError as error:
            return Found(left_out(table.id, error.message))
        except (pa.ArrowException, OSError) as error:
            _log.warning("%s could not be compared.", table.id, exc_info=error)
            doing = "read" if isinstance(error, OSError) else "converted"
            reason = f"its lake table has values that cannot be {doing} ({type(error).__name__})"
            return Found(left_out(table.id, reason, is_error=True))
        except CdcError as error:
            _log.debug("%s could not be compared: %s", table.id, error)
            return Found(left_out(table.id, f"it could not be compared: {error}", is_error=True))

    def _compared(self, comparison: Comparison, target: Target, reader: SnapshotReader, reading: Reading) -> Found:
        """Compare the part of a table that is asked for."""
        part = self._part
        if part.sample is not None:
            return comparison.compare_sample(target, reader, reading, part.sample, part.seed)
        since = part.since.get(target.table.id)
        keys = None if since is None else comparison.keys_since(target, since)
        if keys is None:
            return comparison.compare(target, reader, reading)
        return comparison.compare_keys(target, reader, reading, keys)

    def _with_changelog(self, found: Found, target: Target) -> Found:
        """Return the result with what was found in the table's changelog, unless that is too large to be read whole."""
        paths = self._records.paths
        if self._part.kind != "all" or changelog_bytes(target) > self._part.changelog_bytes:
            return found
        changelog = check_changelog(target, paths, self._records.scope, self._limit, self._part.changelog_bytes)
        return replace(found, result=replace(found.result, changelog=changelog))

    def _check_unaltered(self, table: TableSchema) -> None:
        """Raise NotComparableError if the table was altered or truncated since it was described.

        The snapshot does not show the rows that such a statement rewrote or removed.
        """
        now = self._source.catalog.current(table.id)
        if now is None or not is_unaltered(table, streamed(now)):
            raise NotComparableError("it was altered or truncated while it was compared")

    def _reading(self, target: Target, size: TableSize) -> Reading:
        """Return the statements that read the table, the same as a snapshot's."""
        table, catalog = target.table, self._source.catalog
        row_filter = catalog.row_filter(table)
        leaves = catalog.leaves(table, is_filtered=bool(row_filter))
        if self._source.server_version < _TID_RANGES:
            leaves = ()
        described = TableDescription(
            table,
            target.typer.read_columns,
            target.lake,
            target.compared.schema,
            target.version.place.token,
            False,
            size,
            None,
            row_filter,
            leaves,
        )
        ranges, has_pages = self._ranges(described)
        return Reading(table, target.typer.read_columns, tuple(ranges), row_filter, has_pages)

    def _ranges(self, described: TableDescription) -> tuple[list[str], bool]:
        """Return the statements that read the table, and whether each reads a bounded number of pages."""
        most = _ROWS_PER_RANGE if self._part.sample is None else SAMPLE_ROWS
        if self._pace.rows_per_second:
            most = min(most, max(SAMPLE_ROWS, self._pace.rows_per_second))
        leaves, size = described.leaves, described.size
        if leaves:
            ranges = plan_leaves([replace(each, rows=_at_least(each.rows, each.pages)) for each in leaves], most)
            has_pages = all(each.has_ctid for each in leaves)
            many = [described.query_leaves(chunks) for chunks in ranges]
            return many if len(ranges) > 1 else [described.query()], has_pages
        if not size.has_ctid or self._source.server_version < _TID_RANGES:
            return [described.query()], False
        chunks = plan_chunks(described.table.id, size.pages, _at_least(size.rows, size.pages), most)
        return [described.query(chunk.predicate()) for chunk in chunks], True


def _at_least(rows: int | None, pages: int) -> int:
    """Return the expected number of rows; of an estimate from when there were fewer pages, some of the present ones."""
    return max(expected_rows(pages, rows), pages * _ROWS_PER_RANGE // _PAGES_PER_RANGE)


def cut(keys: KeyList, limit: int) -> KeyList:
    """Return the keys with at most ``limit`` of them named."""
    return KeyList(keys.count, keys.keys[:limit])


def with_many(result: TableResult) -> TableResult:
    """Return the result of a table of which too many rows differ to read them again by their keys."""
    why = "too many of its rows differ, so it has to be read whole: run wal2lake snapshot with it"
    count = result.found.count
    return replace(result, unrepaired=(Unrepaired((), why),) if count else ())


def left_out(table: TableId, reason: str, *, is_error: bool = False) -> TableResult:
    """Return the result of a table that was not compared."""
    return TableResult(table, State.LEFT_OUT, reason=reason, is_error=is_error)

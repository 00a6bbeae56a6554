"""Reads one range of a table in a Spark task: consecutive chunks, each one statement with its own snapshot.

    largest key ─▶ chunk, chunk, … (pg_snapshot, floor, lake rows) ─▶ end of the WAL ─▶ one file, not yet staged

The rows are typed as in the lake before they are written anywhere, because some may have to be masked. No transaction
is longer than one statement, and one chunk is in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.clock import now_us
from cdc_core.errors import CdcError, LakeError
from cdc_core.lake import StagedFile, TypingPlan, write_staged
from cdc_core.postgres import ChunkConnection, ConnectionString, ReadTogether
from cdc_core.schema import Key
from cdc_core.snapshot.incremental.bounds import Bound, floor_of, take_bound
from cdc_core.snapshot.incremental.chunk import ChunkQuery
from cdc_core.snapshot.incremental.staged import RangeFacts

_log = logging.getLogger(__name__)

# The chunks of narrow rows grow while they have less than this.
_SMALL_BYTES, _MOST_GROWTH = 1 << 19, 16
# Of wide rows fewer are read by a statement than it returns.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """What a task reads: the range of ``facts`` by ``query``. ``bounds`` were taken before, in the driver."""

    facts: RangeFacts
    query: ChunkQuery
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class RangeFile:
    """A range that was written, and not staged yet, and its rows."""

    file: StagedFile
    rows: int


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Reads ranges into files of the table of staged rows at ``path``; picklable.

    ``lock_timeout_ms``: the longest wait for a table that another session has locked (0: no limit).
    """

    plan: TypingPlan
    connection: ConnectionString
    path: str
    lock_timeout_ms: int = 0
    armed: failpoints.Armed | None = field(default_factory=failpoints.armed)

    def __call__(self, range_query: RangeQuery) -> RangeFile | CdcError:
        """Return the range's file; the error of the server, of a value or of the lake is in the result."""
        failpoints.adopt(self.armed)
        try:
            with closing(ChunkConnection(self.connection, self.lock_timeout_ms)) as connection:
                made = _Reading(self, range_query, connection)
                return RangeFile(write_staged(self.path, made.chunks(), made.facts()), made.rows)
        except CdcError as error:
            return error
        except Exception as error:
            table = range_query.query.table.id
            _log.exception("A range of %s could not be read.", table)
            return LakeError(
                f"A range of {table} could not be read ({type(error).__name__}).",
                "Please report this with the executor's log.",
            )

    def __repr__(self) -> str:
        return "ReadRange()"


class _Reading:
    """The reading of one range. ``facts`` are complete after the last of ``chunks``."""

    def __init__(self, work: ReadRange, range_query: RangeQuery, connection: ChunkConnection) -> None:
        self._typer = work.plan.typer(range_query.query.table)
        self._wanted = range_query
        self._connection = connection
        self._bounds = range_query.bounds
        self.rows = 0

    def chunks(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        self._bounds = (*self._bounds, take_bound(self._connection))
        for lines, visible in self._lines():
            rows = self._typer.reads(self._wanted.query.decoded(lines), 0, now_us())
            self.rows += rows.num_rows
            yield visible, floor_of(visible, self._bounds), rows

    def facts(self) -> Iterator[str]:
        failpoints.hit(failpoints.BEFORE_STAGING)
        yield replace(self._wanted.facts, reached=int(self._connection.wal_end())).to_json()

    def _lines(self) -> Iterator[tuple[bytes, str]]:
        query, to_read = self._wanted.query, self._wanted.facts.range
        if to_read.keys:
            lines, visible = self._read(query.of_keys(to_read.keys))
            yield from [(lines, visible)] if lines else ()
            return
        after, upto = to_read.after, to_read.upto or self._largest()
        if query.statement and upto is not None:
            yield from self._own_lines(after, upto)
            return
        size, most = query.size, _MOST_BYTES if query.divides_rows else 0
        while upto is not None:
            chunk = self._at_once(query.chunk(after, upto, size), most)
            lines, rows = chunk.rows[0], chunk.rows[0].count(b"\n")
            if lines:
                yield lines, chunk.visible
            if rows < size and not chunk.is_cut:
                return
            after = query.last_key(lines)
            size = _next_size(query.size, size, len(lines))

    def _own_lines(self, after: Key | None, upto: Key) -> Iterator[tuple[bytes, str]]:
        """Read the rows of the user's statement between every ``size`` keys of the table."""
        query, end = self._wanted.query, after
        while end != upto:
            keys, _ = self._read(query.keys.chunk(after, upto))
            end = upto if keys.count(b"\n") < query.size else query.keys.last_key(keys)
            lines, visible = self._read(query.chunk(after, end))
            if lines:
                yield lines, visible
            after = end

    def _largest(self) -> Key | None:
        """The largest key of now: rows with a larger one are in the stream, and are not waited for."""
        lines, _ = self._read(self._wanted.query.largest())
        return self._wanted.query.largest_key(lines)

    def _read(self, statement: str) -> tuple[bytes, str]:
        answer = self._at_once(statement)
        return answer.rows[0], answer.visible

    def _at_once(self, statement: str, most_bytes: int = 0) -> ReadTogether:
        query = self._wanted.query
        return self._connection.read(statement, is_users=query.is_users, table=query.table.id, most_bytes=most_bytes)


def _next_size(least: int, size: int, octets: int) -> int:
    """Return how many rows the next chunk has, after one of ``size`` rows: narrow rows are read in larger chunks.

    A chunk costs some milliseconds beside its rows; it is one statement and is in memory, whatever their number.
    """
    if octets < _SMALL_BYTES:
        return min(2 * size, _MOST_GROWTH * least)
    return size if octets <= 4 * _SMALL_BYTES else max(least, size // 2)

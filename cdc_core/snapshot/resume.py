"""A snapshot that was interrupted continues: ranges that it had read are not re-read.

A range (a run of pages) that a task has read lies in data files of the lake table's folder, and is written down
(``sink/delta/range_log``). Let V1 be the first attempt's snapshot and V2 the present one's. A table is then read so:

    N   SELECT … WHERE xmin is V1's xmin or younger             all pages    the rows written since
    O   SELECT … WHERE xmin is older                            the pages of the ranges that are missing

The keys of N are taken out of the files F that are there, and F, N and O are committed at once under V2.

Why this is exact. *Every row of V2 is there once.* One that was written by a transaction at or after V1's xmin is in
N, and in N only: O asks for the others, and F has lost N's keys. One that was written before V1's xmin was visible to
V1, and to every attempt since (nobody deleted it, for V2 sees it). Its version stands where it stood, for whatever
moves versions (a rewriting by ALTER TABLE, VACUUM FULL, CLUSTER) ends all this. So the attempt that read its pages
read it, or O does now. It is still in F: a row of N with its key would be a second row of V2 with that key. A
transaction that V1 does not see is at or after V1's xmin; so is a subtransaction of it, whose number is greater than
its parent's; and rows that were frozen since keep their number. (Numbers wrap around, ``age`` compares them; with
2^30 or more between V1 and V2, everything is re-read.)

*What is too much*: rows of F whose version is dead at V2 and whose key no row of N has. Could V2 have a row with that
key that was written before V1's xmin? It lived when F's row was read, when each key had one row; so it would be F's
row, which is dead. Hence the key is gone at V2: it was deleted, or changed into another, by a transaction that V1
does not see and V2 does. The slot sends all of these: the position from which it sends is asked for, and lies at or
before V1's LSN (it lies behind it for a slot that was made again). As soon as the stream has passed V2's LSN, and
before anything else is merged into the table, the changes of transactions that V2 sees and V1 does not are reduced by
key, and the keys that end without a row are deleted (``sink/delta/settle``). That is right for every key, for it says
how V2 has it. Until then the table shows rows that no longer exist; ``since`` in its snapshot's record says so.

A further attempt keeps V1: what O reads in one attempt is a part of F for the next.

Read from the beginning are: tables without a key, or without a heap of their own (partitioned ones); tables that are
read by ranges of their key (``key_ranges``), since N and O ask for xmin and the log of ranges holds pages; tables with
a statement of the user's, or with Delta features that only Spark writes, or a delete mode that keeps what is gone;
tables whose inserts, updates or deletes are not published; what was altered, truncated or rewritten since V1; and
everything with wal2lake.changelog.reads, which wants V2's rows themselves.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core.errors import LakeError
from cdc_core.schema.table import TableSchema
from cdc_core.sink.delta.candidates import Ranges
from cdc_core.sink.delta.range_log import FinishedRange
from cdc_core.sink.delta.row_keys import KeyColumns, KeyIndex, merge_key
from cdc_core.sink.delta.survey import parsed_snapshot
from cdc_core.sink.delta.table import DataFile, DeltaTable
from cdc_core.sink.typing_plan import TypingPlan

_MAX_XIDS = 2**30
_XID_RANGE = 2**32
_TOLD = frozenset("cud")


@dataclass(frozen=True, slots=True)
class Resumption:
    """What earlier attempts leave of one table: ranges without overlap, in their order.

    ``since`` is V1's text and ``lsn`` its LSN.
    """

    since: str
    lsn: int
    ranges: tuple[FinishedRange, ...]

    @property
    def files(self) -> list[DataFile]:
        """F."""
        return [file for one in self.ranges for file in one.files]

    def gaps(self) -> list[tuple[int, int | None]]:
        """The pages that are missing: first, end (None: to the table's end)."""
        found: list[tuple[int, int | None]] = []
        at: int | None = 0
        for one in self.ranges:
            if at is not None and one.first_block > at:
                found.append((at, one.first_block))
            at = one.end_block
        return found if at is None else [*found, (at, None)]


def can_resume(table: TableSchema, plan: TypingPlan) -> bool:
    """Whether a table may be read in several attempts, as far as its description and the options say."""
    marks = table.fingerprint
    if marks is None or marks.is_partitioned or len(marks.storage) != 1 or not merge_key(table):
        return False
    published = marks.publication
    is_published = published is not None and bool(published.entries) and set(published.operations) >= _TOLD
    return is_published and not _TOLD & set(plan.selection.skipped_operations)


def marks_of(table: TableSchema, plan: TypingPlan, select: str) -> str:
    """A digest of what the files' rows depend on beside the table's rows: its description, the options, the query."""
    assert table.fingerprint is not None
    # What rows change, and the moment of asking, are no part of the description.
    storage = tuple(replace(mark, is_empty=False) for mark in table.fingerprint.storage)
    marks = replace(table.fingerprint, storage=storage, horizon=0)
    described = repr((replace(table, fingerprint=marks), plan, select))
    return hashlib.sha256(described.encode()).hexdigest()


def resumption(
    recorded: Sequence[FinishedRange], marks: str, visible: str, confirmed: int | None, lake: DeltaTable
) -> Resumption | None:
    """What of the recorded ranges may be used under the snapshot ``visible`` (V2); None where all is to be read.

    ``recorded`` are in the order in which they were written down.

    ``confirmed`` is the position from which the slot sends. A slot that was made again sends from a later one.
    """
    if not recorded or confirmed is None:
        return None
    # Earlier ones, which could not be used then, are there until the table is committed.
    last = recorded[-1]
    low, now = parsed_snapshot(last.since)[0], parsed_snapshot(visible)[1]
    if last.marks != marks or confirmed > last.lsn or now - low >= _MAX_XIDS:
        return None
    same = (one for one in recorded if (one.since, one.lsn, one.marks) == (last.since, last.lsn, marks))
    found = sorted(same, key=lambda one: one.first_block)
    for one, following in itertools.pairwise(found):
        if one.end_block is None or one.end_block > following.first_block:
            return None
    there = tuple(one for one in found if all(lake.has(file) for file in one.files))
    return Resumption(last.since, last.lsn, there) if there else None


def written_since(since: str) -> str:
    """The SQL condition that a row was written by a transaction at or after the xmin of a pg_snapshot."""
    return f"pg_catalog.age(xmin) <= {_age(since)}"


def written_before(since: str) -> str:
    """The opposite."""
    return f"pg_catalog.age(xmin) > {_age(since)}"


def _age(since: str) -> str:
    return f"pg_catalog.age('{parsed_snapshot(since)[0] % _XID_RANGE}'::pg_catalog.xid)"


@dataclass(frozen=True, slots=True)
class TakeOut:
    """Takes the keys of some files' rows out of other files; picklable. The new files are named by a later commit.

    ``schema`` is that of the files' rows; ``key`` names its key columns; ``fresh`` are the files whose keys go.
    """

    lake: str
    schema: pa.Schema
    key: tuple[str, ...]
    fresh: tuple[DataFile, ...]

    def __call__(self, files: Sequence[DataFile]) -> list[tuple[DataFile, DataFile | None]]:
        """Each file and what takes its place: itself where it has none of the keys, None where no row stays."""
        lake = DeltaTable.open(self.lake)
        if lake is None:
            raise LakeError(f"The Delta table {self.lake} no longer exists.", "Take the snapshot again.")
        columns = KeyColumns.of(self.key, self.schema)
        wanted = pa.schema([self.schema.field(name) for name in columns.read])
        keys = pa.concat_tables([lake.read_as(file, wanted) for file in self.fresh]).combine_chunks()
        index, _ = KeyIndex.of(columns, keys)
        ranges = Ranges.of(keys, columns.names)
        found: list[tuple[DataFile, DataFile | None]] = []
        for file in files:
            stays = None
            if ranges.may_be_in(file):
                stays = index.match(lake.read_as(file, wanted)) < 0
            if stays is None or stays.all():
                found.append((file, file))
            else:
                found.append((file, self._rewritten(lake, file, stays)))
        return found

    def _rewritten(self, lake: DeltaTable, file: DataFile, stays: np.ndarray) -> DataFile | None:
        if not stays.any():
            return None
        return lake.write_as(lake.read_as(file, self.schema).filter(pa.array(stays)), self.schema, "snapshot")

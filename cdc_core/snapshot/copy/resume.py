"""Continues an interrupted snapshot: ranges that were read are not read again.

The rows of a range (a run of pages) that a task has read are in data files of the lake table's folder, and the range is
recorded (``lake/stores/range_log``). Let V1 be the first attempt's snapshot and V2 the present one's. A table is then
read as follows:

    N   SELECT … WHERE xmin is V1's xmin or younger             all pages    the rows written since
    O   SELECT … WHERE xmin is older                            the pages of the ranges that are missing

The keys of N are removed from the existing files F, and F, N and O are committed at once under V2.

Why this is exact. *Every row of V2 is present once.* A row written by a transaction at or after V1's xmin is in N, and
only in N: O selects the others, and N's keys were removed from F. A row written before V1's xmin was visible to V1, and
to every attempt since (no transaction deleted it, because V2 sees it). Its row version has not moved, because
everything that moves row versions (a rewrite by ALTER TABLE, VACUUM FULL, CLUSTER) prevents resumption. So it was read
by the attempt that read its pages, or is read by O now. It is still in F: a row of N with its key would be a second row
of V2 with that key. A transaction that V1 does not see is at or after V1's xmin; so is each of its subtransactions,
whose ids are greater than their parent's; and rows that were frozen since keep their id. (Ids wrap around, ``age``
compares them; with 2^30 or more between V1 and V2, everything is read again.)

*Surplus rows* are rows of F whose row version is dead at V2 and whose key is in no row of N. Could V2 have a row with
that key that was written before V1's xmin? It was live when F's row was read, when each key had one row; so it would be
F's row, which is dead. Hence V2 has no row with this key: it was deleted, or its key changed, by a transaction that V1
does not see and V2 does. The slot sends all of these: the position from which it sends is queried, and is at or before
V1's LSN (it is after it for a slot that was created again). As soon as the stream has passed V2's LSN, and before
anything else is merged into the table, the changes of transactions that V2 sees and V1 does not are reduced by key, and
the keys that end without a row are deleted (``lake/reduce/surplus_rows``). That is correct for every key, because the
result is its state in V2. Until then the table shows rows that no longer exist; ``since`` in its snapshot's record
indicates this. A further attempt keeps V1: what O reads in one attempt is a part of F for the next.

Read from the beginning are: tables without a key, or without a heap of their own (partitioned ones); tables that are
read by ranges of their key (``key_ranges``), because N and O select by xmin and the log of ranges contains pages;
tables with a statement of the user's, or with Delta features that only Spark writes, or a delete mode that keeps
deleted rows; tables whose inserts, updates or deletes are not published; tables that were altered, truncated or
rewritten since V1; and all tables with wal2lake.changelog.reads, which needs V2's rows themselves.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_core.lake import FinishedRange, ReadTarget, TakenSnapshot, TypingPlan
from cdc_core.schema import TableSchema
from cdc_core.visibility import Visibility

_MAX_XIDS = 2**30
_TOLD = frozenset("cud")


@dataclass(frozen=True, slots=True)
class Resumption:
    """The usable ranges of earlier attempts of one table, without overlap, in their order.

    ``since`` is V1's text and ``lsn`` its LSN.
    """

    since: str
    lsn: int
    ranges: tuple[FinishedRange, ...]

    @property
    def rows(self) -> int:
        """The number of rows in the files F."""
        return sum(entry.rows for entry in self.ranges)

    def gaps(self) -> list[tuple[int, int | None]]:
        """Return the missing pages: first, end (None: to the table's end)."""
        gaps: list[tuple[int, int | None]] = []
        at: int | None = 0
        for entry in self.ranges:
            if at is not None and entry.first_block > at:
                gaps.append((at, entry.first_block))
            at = entry.end_block
        return gaps if at is None else [*gaps, (at, None)]


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """Attempts to read one table that were interrupted.

    ``recorded`` are the entries of their ranges, ``kept`` those that are used, None if everything is read again.
    ``marks`` is the digest with which ranges of this attempt are recorded, None if they are not.
    """

    recorded: tuple[FinishedRange, ...] = ()
    marks: str | None = None
    kept: Resumption | None = None

    def continued(self, taken: TakenSnapshot) -> TakenSnapshot:
        """Return the snapshot of this attempt: later than the recorded ones, with the time of the first read."""
        newest = max((entry.token for entry in self.recorded), default=0)
        since = self.kept.since if self.kept is not None else taken.since
        return replace(taken, token=max(taken.token, newest + 1), since=since)


def can_resume(table: TableSchema, plan: TypingPlan) -> bool:
    """Whether a table may be read in several attempts, by its description and the options."""
    marks = table.fingerprint
    if marks is None or marks.is_partitioned or len(marks.storage) != 1 or not table.row_key:
        return False
    published = marks.publication
    is_published = published is not None and bool(published.entries) and set(published.operations) >= _TOLD
    return is_published and not _TOLD & set(plan.selection.skipped_operations)


def marks_of(table: TableSchema, plan: TypingPlan, select: str) -> str:
    """Return a digest of what the files' rows depend on besides the table's rows: description, options, query."""
    # State that is changed by rows, and the time of the query, are not part of the description.
    marks = replace(table.marks.without_rows(), horizon=0)
    described = repr((replace(table, fingerprint=marks), plan, select))
    return hashlib.sha256(described.encode()).hexdigest()


def resumption(
    recorded: Sequence[FinishedRange], marks: str, visible: str, confirmed: int | None, target: ReadTarget
) -> Resumption | None:
    """Return the recorded ranges usable under the snapshot ``visible`` (V2); None if everything is to be read.

    ``recorded`` are in the order in which they were recorded. ``confirmed`` is the position from which the slot sends.
    A slot that was created again sends from a later one.
    """
    if not recorded or confirmed is None:
        return None
    # Earlier entries that could not be used then exist until the table is committed.
    last = recorded[-1]
    low, now = last.shown.xmin, Visibility.parse(visible).xmax
    if last.marks != marks or confirmed > last.lsn or now - low >= _MAX_XIDS:
        return None
    same = (entry for entry in recorded if (entry.since, entry.lsn, entry.marks) == (last.since, last.lsn, marks))
    entries = sorted(same, key=lambda entry: entry.first_block)
    for entry, following in itertools.pairwise(entries):
        if entry.end_block is None or entry.end_block > following.first_block:
            return None
    there = tuple(entry for entry in entries if target.has(entry))
    return Resumption(last.since, last.lsn, there) if there else None


def written_since(since: str) -> str:
    """Return the SQL condition that a row was written by a transaction at or after the xmin of a pg_snapshot."""
    return f"pg_catalog.age(xmin) <= {_age(since)}"


def written_before(since: str) -> str:
    """Return the negation of ``written_since``."""
    return f"pg_catalog.age(xmin) > {_age(since)}"


def _age(since: str) -> str:
    return f"pg_catalog.age('{Visibility.parse(since).xmin_32}'::pg_catalog.xid)"

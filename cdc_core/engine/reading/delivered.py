"""Leaves out what another connector has delivered (``offsets/delivered``), and finds its place in the stream.

Debezium's own rule after a restart (WalPositionLocator) compares the LSNs of changes with the stored one in the order
of the stream, and resumes at the first that differs. Here the transaction is identified first: changes of a transaction
that began earlier and committed later have smaller LSNs than those that were sent before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core.decode import LogicalMessage, RelationRun, SortedSegment, Truncate, decode_rows
from cdc_core.errors import SourceError
from cdc_core.lsn import Lsn
from cdc_core.offsets import DebeziumOffset, Delivered, DeliveredPart

_BEGIN, _COMMIT = ord("B"), ord("C")


class DeliveredFilter:
    """Leaves out delivered changes of the segments of one connection, in stream order.

    A transaction that was delivered in part keeps its Commit, and its Begin unless that was delivered as an event; its
    changes keep their positions.
    """

    def __init__(self, delivered: Delivered) -> None:
        self._delivered = delivered
        self._left_at_lsn = 0 if delivered.part is None else delivered.part.at_lsn or 0
        self._is_past = False

    def rest(self, segment: SortedSegment) -> SortedSegment:
        """Return the segment without delivered changes."""
        self._is_past = self._is_past or self._begins_past(segment)
        if self._is_past:
            return segment
        runs = [replace(run, raw=_kept(run.raw, self._is_new(run.raw))) for run in segment.runs]
        return replace(
            segment,
            runs=[run for run in runs if run.raw.num_rows],
            truncates=[truncate for truncate in map(self._truncate, segment.truncates) if truncate is not None],
            messages=[message for message in segment.messages if not self._has_message(message)],
            transactions=_kept(segment.transactions, self._is_new_mark(segment.transactions)),
        )

    def _begins_past(self, segment: SortedSegment) -> bool:
        """Whether a segment begins with a transaction after those that were delivered: then all later ones do."""
        commits = [int(run.raw.column("commit_lsn")[0].as_py()) for run in segment.runs if run.raw.num_rows]
        commits += [truncate.commit_lsn for truncate in segment.truncates]
        commits += [message.lsn if message.commit_lsn is None else message.commit_lsn for message in segment.messages]
        commits += [int(lsn) for lsn in segment.transactions.column("commit_lsn").to_numpy()[:1]]
        return bool(commits) and min(commits) > self._delivered.last_lsn

    def _is_new_mark(self, marks: pa.RecordBatch) -> np.ndarray:
        commits = marks.column("commit_lsn").to_numpy()
        is_new = commits >= self._delivered.commit_lsn
        part = self._delivered.part
        if part is not None and part.counts is not None:
            is_new &= (commits != part.commit_lsn) | (marks.column("kind").to_numpy() != _BEGIN)
        return np.asarray(is_new)

    def _is_new(self, raw: pa.RecordBatch) -> np.ndarray:
        commits, lsns = raw.column("commit_lsn").to_numpy(), raw.column("lsn").to_numpy()
        is_new = commits >= self._delivered.commit_lsn
        part = self._delivered.part
        if part is None:
            return np.asarray(is_new)
        is_part = commits == part.commit_lsn
        is_new &= ~(is_part & (lsns < part.lsn))
        at = np.flatnonzero(is_part & (lsns == part.lsn))
        if part.at_lsn is None:
            is_new[at] = False
        else:
            is_new[at[: self._left_at_lsn]] = False
            self._left_at_lsn -= min(self._left_at_lsn, len(at))
        return np.asarray(is_new)

    def _truncate(self, truncate: Truncate) -> Truncate | None:
        """Return the truncate with the tables whose events were not sent; None if all were."""
        if truncate.commit_lsn < self._delivered.commit_lsn:
            return None
        part = self._delivered.part
        if part is None or truncate.commit_lsn != part.commit_lsn or truncate.lsn > part.lsn:
            return truncate
        if truncate.lsn < part.lsn or part.at_lsn is None:
            return None
        tables = truncate.tables[part.at_lsn :]
        return replace(truncate, tables=tables) if tables else None

    def _has_message(self, message: LogicalMessage) -> bool:
        """Whether a logical message was delivered."""
        at, part = self._delivered.commit_lsn, self._delivered.part
        if message.commit_lsn is None:
            return message.lsn < at or (message.lsn == at and self._delivered.message_at_commit)
        if part is not None and message.commit_lsn == part.commit_lsn:
            return message.lsn <= part.lsn
        return message.commit_lsn < at


@dataclass(frozen=True, slots=True)
class DeliveredPlace:
    """Where an offset is in the stream. ``rest_of_record``: changes of its LSN are taken again, which it cannot tell
    from those that were sent; ``left`` counts the captured changes of its transaction that were sent.
    """

    delivered: Delivered
    left: int = 0
    rest_of_record: int = 0


def place_of(offset: DebeziumOffset, segments: Iterable[SortedSegment]) -> DeliveredPlace:
    """Return where an offset is, with as much of the slot's stream as is needed for it.

    Raises SourceError if the stream does not contain the transaction of the offset where it must be.
    """
    if not _may_be_part(offset):
        return DeliveredPlace(_whole(offset))
    search = _Search(offset)
    for segment in segments:
        if search.note(segment):
            break
    return search.place()


def _may_be_part(offset: DebeziumOffset) -> bool:
    """Whether the offset may lie inside a transaction."""
    if offset.is_of_snapshot or offset.xid is None or offset.message_type == "COMMIT":
        return False
    if offset.message_type == "BEGIN":
        return offset.counts is not None
    return not (offset.message_type == "MESSAGE" and offset.lsn == offset.lsn_commit)


def _whole(offset: DebeziumOffset) -> Delivered:
    # A message outside of transactions may begin where a transaction ends; a Begin comes after both.
    is_message = offset.message_type == "MESSAGE" and offset.lsn == offset.lsn_commit
    is_message |= offset.message_type == "BEGIN"
    return Delivered(offset.boundary or offset.lsn, message_at_commit=is_message)


class _Search:
    """Looks for the transaction of an offset, and in it for the changes with its LSN."""

    def __init__(self, offset: DebeziumOffset) -> None:
        self._offset = offset
        self._after = Lsn(0) if offset.lsn_commit is None else offset.lsn_commit
        self._commit_lsn: int | None = None
        self._is_past = False
        self._other = False
        self._before = self._at = 0
        self._changes_key = self._is_truncate = False

    def note(self, segment: SortedSegment) -> bool:
        """Look at a segment; returns whether enough is known."""
        marks = segment.transactions
        commits, xids = (marks.column(name).to_numpy() for name in ("commit_lsn", "xid"))
        if self._commit_lsn is None:
            mine = np.flatnonzero((xids == self._offset.xid) & (commits >= int(self._after)))
            if len(mine):
                self._commit_lsn = int(commits[mine[0]])
        for run in segment.runs:
            self._note_rows(run)
        for truncate in segment.truncates:
            if truncate.commit_lsn == self._commit_lsn:
                self._note_truncate(truncate)
        kinds = marks.column("kind").to_numpy()
        ended = (commits == self._commit_lsn) & (kinds == _COMMIT) if self._commit_lsn is not None else kinds < 0
        return bool(np.any(ended)) or self._is_past or self._other

    def _note_rows(self, run: RelationRun) -> None:
        commits, lsns = run.raw.column("commit_lsn").to_numpy(), run.raw.column("lsn").to_numpy()
        bound = 2**63 - 1 if self._commit_lsn is None else self._commit_lsn
        self._other |= bool(np.any((commits >= int(self._after)) & (commits < bound))) and bool(self._after)
        if self._commit_lsn is None:
            return
        mine = commits == self._commit_lsn
        at = np.flatnonzero(mine & (lsns == int(self._offset.lsn)))
        self._before += int(np.count_nonzero(mine & (lsns < int(self._offset.lsn))))
        self._at += len(at)
        self._is_past |= bool(np.any(mine & (lsns > int(self._offset.lsn))))
        if len(at) == 1:
            self._changes_key |= _changes_key(run, int(at[0]))

    def _note_truncate(self, truncate: Truncate) -> None:
        if truncate.lsn == self._offset.lsn:
            self._at += len(truncate.tables)
            self._is_truncate = True
        elif truncate.lsn < self._offset.lsn:
            self._before += len(truncate.tables)
        else:
            self._is_past = True

    def place(self) -> DeliveredPlace:
        """Return the result. Raises SourceError."""
        offset = self._offset
        if self._commit_lsn is None:
            if offset.lsn == offset.lsn_commit:
                # Earlier releases of Debezium do not say that the last message was a Commit.
                return DeliveredPlace(_whole(offset))
            raise self._missing()
        if self._other:
            raise self._missing()
        count = self._count()
        part = DeliveredPart(Lsn(self._commit_lsn), offset.lsn, count, offset.counts)
        delivered = Delivered(Lsn(self._commit_lsn), part)
        taken = self._at if count is None else min(count, self._at)
        return DeliveredPlace(delivered, self._before + taken, self._at - taken)

    def _count(self) -> int | None:
        """How many of the changes at the offset's LSN were sent; None for all."""
        offset = self._offset
        if offset.message_type == "BEGIN":
            return 0  # it has the LSN of the first change
        if offset.events_at_lsn is not None:
            return offset.events_at_lsn
        # The end of the transaction before may have the same LSN.
        has_last_table = self._is_truncate and offset.lsn_proc == offset.lsn != offset.lsn_commit
        return None if has_last_table or (self._at <= 1 and not self._changes_key) else 0

    def _missing(self) -> SourceError:
        offset = self._offset
        return SourceError(
            f"The offset is at {offset.lsn}, inside transaction {offset.xid}, which the slot does not send as the next "
            f"one after {offset.boundary or offset.lsn}: the offset is not of this slot, or changes are missing.",
            "Give the newest offset of the connector that used the slot last.",
        )


def _kept(rows: pa.RecordBatch, is_kept: np.ndarray) -> pa.RecordBatch:
    return rows if bool(is_kept.all()) else rows.filter(pa.array(np.asarray(is_kept)))


def _changes_key(run: RelationRun, row: int) -> bool:
    """Whether a row's change is an update of its key, of which Debezium makes two events with one LSN."""
    decoded = decode_rows(run.raw.slice(row, 1), run.relation)
    if chr(decoded.op[0]) != "U" or not decoded.old_kind[0]:
        return False
    old, new = decoded.old, decoded.new
    return any(
        old.text[at][0].as_py() != new.text[at][0].as_py()
        for at, name in enumerate(new.names)
        if name in run.table.key and new.text[at][0].is_valid
    )

"""Received segments as parts of transactions, in stream order: what the sorter's thread does before rows are kept.

What else has to see every change sees it here, before a batch with its rows is handed over: the check of the stream's
identity (``CommitWatch``), and another destination (``Tap``). What another connector has delivered already is left
out behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from cdc_core.decode import Segment, SortedSegment, StreamState, sort_segment
from cdc_core.engine.reading.continuity import CommitWatch
from cdc_core.engine.reading.delivered import DeliveredFilter
from cdc_core.engine.reading.own_rows import OwnRows
from cdc_core.engine.reading.seen import Seen
from cdc_core.engine.reading.segment_parts import SegmentPart, parts_of
from cdc_core.schema import Relation, TableSchema

Describe = Callable[[Relation, int], TableSchema | None]


class Tap(Protocol):
    """What else gets every segment, in stream order, before a batch with its rows is handed over: another destination.

    While it has no room nothing more is read; batches are still handed over. Called by the reader's threads.
    """

    @property
    def has_room(self) -> bool:
        """Whether more segments may be put."""

    def put(self, segment: SortedSegment) -> None:
        """Take a segment."""

    def note_silence(self, wal_end: int) -> None:
        """Take an end of the server's WAL before which every segment was put."""


class SegmentSorter:
    """Sorts the segments of one stream. ``delivered`` leaves out what another connector has delivered; ``tap`` gets it.

    ``own_rows`` makes the rows of the stream's own tables; None if nothing stores them. ``seen``: what was sorted.

    ``describe`` returns the table of a Relation message at an LSN, None for one that is not captured.
    """

    def __init__(
        self,
        describe: Describe,
        watch: CommitWatch | None = None,
        tap: Tap | None = None,
        delivered: DeliveredFilter | None = None,
        own_rows: OwnRows | None = None,
    ) -> None:
        self._describe, self._watch, self._tap, self._delivered = describe, watch, tap, delivered
        self._own_rows = own_rows
        self.seen = Seen() if own_rows is None else Seen(own_rows.wants_message)
        self._state = StreamState()

    @property
    def has_room(self) -> bool:
        """Whether what else gets the segments takes more."""
        return self._tap is None or self._tap.has_room

    def parts(self, segment: Segment) -> Iterator[SegmentPart]:
        """Return a segment of pgoutput's messages in parts. Raises BrokenStreamError."""
        sorted_segment = sort_segment(segment, self._state, self._describe)
        self.seen.note(sorted_segment)
        if self._watch is not None:
            self._watch.note(sorted_segment)
        if self._tap is not None:
            self._tap.put(sorted_segment)
        if self._delivered is not None:
            sorted_segment = self._delivered.rest(sorted_segment)
        yield from parts_of(
            sorted_segment, self._state.open, {} if self._own_rows is None else self._own_rows.of(sorted_segment)
        )

    def note_silence(self, wal_end: int) -> None:
        """Every segment before this end of the server's WAL was sorted."""
        if self._tap is not None:
            self._tap.note_silence(wal_end)

    def note_idle(self, position: int) -> None:
        """The position may be confirmed although no captured transaction ends there. Raises BrokenStreamError."""
        if self._watch is not None:
            self._watch.note_silence(position)

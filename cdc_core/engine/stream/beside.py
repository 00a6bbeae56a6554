"""A sink beside which events are written: the run notices their errors, and is not idle before they are durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reports import RoundReport
from cdc_core.engine.stream.run import Sink
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId


class Feed(Protocol):
    """The events (``events.stream.feed.EventFeed``)."""

    def check(self) -> None:
        """Raise an error of theirs."""

    @property
    def is_busy(self) -> bool:
        """Whether some are not durable."""


class SinkBesideEvents:
    """A ``stream.Sink``. ``tick`` sends confirmations that became possible."""

    def __init__(self, sink: Sink, feed: Feed, tick: Callable[[], None]) -> None:
        self._sink = sink
        self._feed = feed
        self._tick = tick

    def append(self, batch: Batch | None, to_lsn: Lsn) -> None:
        """As the sink's."""
        self._feed.check()
        self._sink.append(batch, to_lsn)

    def merge(self) -> RoundReport:
        """As the sink's."""
        return self._sink.merge()

    def has_backlog(self, to_lsn: Lsn) -> bool:
        """As the sink's."""
        return self._sink.has_backlog(to_lsn)

    def call_all(self) -> None:
        """As the sink's."""
        self._sink.call_all()

    def note_renamed(self) -> None:
        """As the sink's."""
        self._sink.note_renamed()

    @property
    def is_busy(self) -> bool:
        """Whether the sink or the feed is."""
        return self._sink.is_busy or self._feed.is_busy

    @property
    def unmerged(self) -> dict[TableId, str]:
        """As the sink's."""
        return self._sink.unmerged

    def between_rounds(self, passed: int) -> bool:
        """As the sink's, and confirm what both have."""
        self._feed.check()
        self._tick()
        return self._sink.between_rounds(passed)

    def close(self) -> None:
        """As the sink's; the feed is closed by who opened it."""
        self._sink.close()

"""Events into Kafka beside a run into the lake, from the same slot."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import Beside
from cdc_core.assemble.kafka import opened_events
from cdc_core.engine import Sink, SinkBesideEvents
from cdc_core.errors import TransientError
from cdc_core.events import ConfirmationGate, EventFeed, SharedSegments
from cdc_core.snapshot import Inbox

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0
_NAP_SECONDS = 0.1


class EventsBeside(Beside):
    """A thread that writes the segments of the lake's reader to Kafka."""

    def __init__(self, context: RunContext) -> None:
        kafka = context.config.kafka
        self._context = context
        self.inbox = self._signals = Inbox()
        self.tap = self._segments = SharedSegments(kafka.kafka_backlog_max_bytes)
        self._gate: ConfirmationGate | None = None
        self._feed = EventFeed(self._segments, kafka.kafka_stall_timeout_ms / 1000, self._follow)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write events until the end of the context."""
        self._feed.start()
        try:
            yield
        finally:
            self._feed.close()

    def joined(self, sink: Sink, send: Callable[[int], None]) -> tuple[Sink, Callable[[int], None]]:
        """The lake's sink, by which the run notices what happens here, and what confirms for both."""
        self._gate = gate = ConfirmationGate(self._segments, send)
        return SinkBesideEvents(sink, self._feed, gate.tick), gate.confirm

    def drain(self) -> None:
        """Wait, for a bounded time, until Kafka has everything, and confirm it."""
        if self._gate is not None:
            self._feed.drain()
            self._gate.tick()

    def _follow(self, should_stop: Callable[[], bool]) -> None:
        """Open Kafka, again until it answers, and write until the run stops."""
        is_open = False
        while not should_stop():
            try:
                with opened_events(self._context, None, beside_lake=True) as (events, _):
                    is_open = True
                    events.follow(self._segments, should_stop, self._signals)
            except TransientError as error:
                if is_open:
                    raise
                _log.warning("Events wait, and the lake goes on: %s", error)
                _wait(_RETRY_SECONDS, should_stop)


def _wait(seconds: float, should_stop: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not should_stop():
        time.sleep(_NAP_SECONDS)

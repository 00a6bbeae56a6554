"""The changes that the slot has and the changelogs lack, while no run streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from cdc_core.decode import StreamState, Translator, sort_segment
from cdc_core.engine import TableRegistry
from cdc_core.errors import NotComparableError, SourceError
from cdc_core.lake import ChangesInSlot, TypingPlan
from cdc_core.lsn import Lsn
from cdc_core.postgres import Connection, PostgresOptions, connect, peek, request_flush
from cdc_core.postgres import slot as slots
from cdc_core.schema import TableSchema

_POLL_SECONDS = 0.05


class SlotChanges:
    """The changes that the slot had not confirmed at the first request. For one thread.

    ``translator`` turns the plug-in's messages into pgoutput's, ``registry`` describes the relations in them.
    ``tables`` are the compared tables, as they are now.
    """

    def __init__(
        self,
        options: PostgresOptions,
        registry: Callable[[], TableRegistry],
        translator: Callable[[], Translator],
        plan: TypingPlan,
        tables: Sequence[TableSchema],
        wait_seconds: float,
    ) -> None:
        self._options = options
        self._registry = registry
        self._translator = translator
        self._plan = plan
        self._tables = {table.id: table for table in tables}
        self._wait_seconds = wait_seconds
        self._known: tuple[Lsn, ChangesInSlot] | None = None

    def upto(self, lsn: Lsn) -> ChangesInSlot:
        """Return the changes up to an LSN that the changelogs may lack; none if a run has stored all of them.

        Raises NotComparableError if a running stream does not get there in time, SourceError without a slot.
        """
        if self._known is None or self._known[0] < lsn:
            with connect(self._options) as connection:
                self._known = lsn, self._found(connection, lsn)
        return self._known[1]

    def position(self) -> tuple[Lsn, bool]:
        """Return the LSN up to which the changelogs have every change, and whether a run streams."""
        with connect(self._options) as connection:
            slot = slots.inspect(connection, self._options.slot_name)
            return slot.confirmed_lsn or Lsn(0), bool(slot.active)

    def _found(self, connection: Connection, lsn: Lsn) -> ChangesInSlot:
        deadline = time.monotonic() + self._wait_seconds
        request_flush(connection, lsn)
        while True:
            slot = slots.inspect(connection, self._options.slot_name)
            if not slot.exists or slot.confirmed_lsn is None:
                raise SourceError(
                    f"Replication slot {self._options.slot_name} does not exist, so it is not known which changes the "
                    "lake lacks.",
                    "Take a new snapshot of the tables.",
                )
            if slot.confirmed_lsn >= lsn:
                return ChangesInSlot()
            if not slot.active:
                return self._peeked(connection, lsn)
            if time.monotonic() >= deadline:
                raise NotComparableError(
                    f"the running stream has not stored the changes up to {lsn} within {self._wait_seconds:g} s"
                )
            time.sleep(_POLL_SECONDS)

    def _peeked(self, connection: Connection, lsn: Lsn) -> ChangesInSlot:
        waiting, state, registry = ChangesInSlot(), StreamState(), self._registry()
        with closing(self._translator()) as translator:
            for segment in peek(connection, self._options, lsn):
                for translated in translator.feed(segment):
                    waiting.add(sort_segment(translated, state, registry.describe), self._plan, self._tables)
        return waiting

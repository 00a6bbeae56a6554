"""Re-reads tables while streaming: one after the other, in a separate thread, while all others continue.

A table that is re-read keeps its lake content until the new one is committed. Its changes are appended to its changelog
meanwhile; those that the new snapshot does not show are merged after it (docs/decisions/0003).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from cdc_core.errors import CdcError, InvariantError
from cdc_core.schema.table import TableId
from cdc_core.snapshot.reports import SnapshotReport

_log = logging.getLogger(__name__)
_END_SECONDS = 120.0

RereadTable = Callable[[TableId, int], SnapshotReport]


@dataclass(frozen=True, slots=True)
class Reread:
    """The result of a re-read: ``report``, or ``error`` if the table could not be read."""

    table: TableId
    report: SnapshotReport | None
    error: CdcError | None


class Rereads:
    """Accepts requests and returns finished re-reads.

    ``take`` reads one table into the lake, with the given number for its new schema version; it runs in this object's
    thread.
    """

    def __init__(self, take: RereadTable) -> None:
        self._take = take
        self._wanted: queue.Queue[tuple[TableId, int] | None] = queue.Queue()
        self._done: queue.Queue[Reread] = queue.Queue()
        self._asked: set[TableId] = set()
        self._thread: threading.Thread | None = None

    def __contains__(self, table: object) -> bool:
        return table in self._asked

    def request(self, table: TableId, schema_version: int) -> None:
        """Request a re-read of the table, unless one is in progress already."""
        if table in self._asked:
            return
        self._asked.add(table)
        self._wanted.put((table, schema_version))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="reread", daemon=True)
            self._thread.start()

    def finished(self) -> list[Reread]:
        """Return the re-reads that ended since the last call."""
        found: list[Reread] = []
        while True:
            try:
                found.append(self._done.get_nowait())
            except queue.Empty:
                break
        self._asked -= {each.table for each in found}
        return found

    @property
    def are_under_way(self) -> bool:
        """Whether a requested re-read was not yet returned by ``finished``."""
        return bool(self._asked)

    def close(self) -> None:
        """Wait, for a bounded time, until the current re-read ends; the next run requests the others again."""
        if self._thread is not None:
            while not self._wanted.empty():
                self._wanted.get_nowait()
            self._wanted.put(None)
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            table, schema_version = wanted
            try:
                self._done.put(Reread(table, self._take(table, schema_version), None))
            except CdcError as error:
                self._done.put(Reread(table, None, error))
            except Exception as error:
                # The thread must stay alive for other tables, and the run waits for the result of its request.
                _log.exception("Re-reading %s failed unexpectedly.", table)
                found = f"Re-reading {table} failed unexpectedly ({type(error).__name__})."
                remedy = f"Please report this with the log; run wal2lake replay with {table} to try again."
                self._done.put(Reread(table, None, InvariantError(found, remedy)))

"""Keeps a catalog equal to what a run knows of its lake tables, in a thread of its own.

    put, remove ─▶ what is wanted of each table ─▶ thread ─▶ catalog
                                      └◀── an error: again after 1, 2, 4, … 60 s

Only the last wish for a table counts, so a catalog that is away for an hour gets one request a table when it is back,
and what waits is bounded by the number of tables.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from cdc_core.catalogs.entry import CatalogClient, CatalogEntry, EntryName, TakenError
from cdc_core.connector_threads import ConnectorThread
from cdc_core.outbox import DeliveryError

_log = logging.getLogger(__name__)

_FIRST_SECONDS, _MOST_SECONDS = 1.0, 60.0


class Registrar:
    """Registers tables in one catalog. Any thread may call it; no call waits, but ``close``."""

    def __init__(self, catalog: CatalogClient) -> None:
        self._catalog = catalog
        self._changed = threading.Condition()
        self._wishes: dict[EntryName, Callable[[], None]] = {}
        self._jobs: list[Callable[[CatalogClient], None]] = []
        self._is_closing = self._has_failed = False
        self._taken: set[EntryName] = set()
        self._thread = ConnectorThread(target=self._run, name="catalog", daemon=True)
        self._thread.start()

    def put(self, entry: CatalogEntry) -> None:
        """Make the entry soon, or make it equal."""
        self._wish(entry.name, partial(self._catalog.put, entry))

    def remove(self, name: EntryName) -> None:
        """Remove the entry soon, if it is this connector's."""
        self._wish(name, partial(self._catalog.remove, name))

    def later(self, job: Callable[[CatalogClient], None]) -> None:
        """Call ``job`` in the thread, before all wishes, and again while it raises DeliveryError."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Wait, at most ``seconds``, until all is done; after an error nothing is tried again."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(seconds)
        if self._wishes or self._jobs:
            _log.warning("%s: not all tables were registered. The next run does.", self._catalog.place)

    def _wish(self, name: EntryName, wish: Callable[[], None]) -> None:
        with self._changed:
            self._wishes[name] = wish
            self._changed.notify()

    def _run(self) -> None:
        pause = _FIRST_SECONDS
        while (work := self._next()) is not None:
            if self._done(*work):
                pause = _FIRST_SECONDS
                continue
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closing, pause):
                    return
            pause = min(2 * pause, _MOST_SECONDS)

    def _next(self) -> tuple[EntryName | None, Callable[[], None]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or self._wishes or self._jobs)
            if self._jobs:
                return None, partial(self._jobs[0], self._catalog)
            return next(iter(self._wishes.items()), None)

    def _done(self, name: EntryName | None, work: Callable[[], None]) -> bool:
        """Do one thing; False if it is to be done again."""
        try:
            work()
        except TakenError as error:
            self._note_taken(name, error)
        except DeliveryError as error:
            self._note_failed(str(error))
            return False
        except Exception as error:  # a defect of a library must not end the thread
            self._note_failed(type(error).__name__)
        else:
            self._note_answer()
        with self._changed:
            if name is None:
                self._jobs.pop(0)
            elif self._wishes.get(name) is work:
                del self._wishes[name]
        return True

    def _note_taken(self, name: EntryName | None, error: TakenError) -> None:
        if name is not None and name not in self._taken:
            self._taken.add(name)
            _log.warning("%s: %s", self._catalog.place, error)

    def _note_failed(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log.warning("%s: tables are not registered: %s. The run continues.", self._catalog.place, why)

    def _note_answer(self) -> None:
        if self._has_failed:
            self._has_failed = False
            _log.info("%s: tables are registered again.", self._catalog.place)

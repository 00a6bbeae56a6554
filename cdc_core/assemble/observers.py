"""What observes the runs of one connector from outside: lineage, alerts, telemetry, catalogs.

A run tells each observer what happens, at the moment at which it is durable. Observers are opened by the outermost
operation and shared by the operations inside of it, so that a supervised run with its attempts is one run to them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cdc_core.engine import BatchReport, Hooks, RoundReport
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import OnProgress, SnapshotProgress, SnapshotReport

_log = logging.getLogger(__name__)


class Observer:
    """Observes one run, from when it is made to ``end``. This one does nothing with what it is told.

    Methods are called by any thread. None may wait, for a server or for another thread: a round would wait for it. An
    error of a method is logged, and not raised.
    """

    def opened(self, tables: Sequence[TableSchema]) -> None:
        """A snapshot or a stream of these captured tables begins."""

    def described(self, table: TableSchema) -> None:
        """The stream announced a version of a captured table, which may be the one that was known."""

    def read(self, report: SnapshotReport) -> None:
        """A snapshot of a table is in the lake."""

    def gone(self, table: TableId) -> None:
        """A captured table no longer exists under its name in the source. May be told again."""

    def durable(self, report: BatchReport) -> None:
        """A batch is durable."""

    def merged(self, report: RoundReport) -> None:
        """A round is merged."""

    def unmerged(self, tables: Mapping[TableId, str]) -> None:
        """The tables that are not merged, with the reasons; about once a second."""

    def failed(self, error: Exception) -> None:
        """An attempt ended by an error; another one may follow. May be told again of the same error."""

    def end(self) -> None:
        """The run has ended. May wait a few seconds for what is not delivered yet."""


class Observers:
    """The observers of one connector's runs; empty while none is open. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Observer] = []
        self._depth = 0
        self._failed: set[tuple[type[Observer], str]] = set()

    @contextmanager
    def run(self, make: Callable[[], list[Observer]]) -> Iterator[None]:
        """Observe what happens inside of the context. ``make`` opens the observers, if none are; it may raise CdcError.

        An error that leaves the context is told as ``failed``; one that leaves several is told several times.
        """
        with self._lock:
            self._depth += 1
            is_outermost = self._depth == 1
        try:
            if is_outermost:
                self._open = make()
            yield
        except Exception as error:
            self._tell("failed", error)
            raise
        finally:
            with self._lock:
                self._depth -= 1
            if is_outermost:
                self._tell("end")
                self._open = []

    def opened(self, tables: Sequence[TableSchema]) -> None:
        """A snapshot or a stream of these captured tables begins."""
        self._tell("opened", tables)

    def gone(self, table: TableId) -> None:
        """A captured table no longer exists under its name in the source."""
        self._tell("gone", table)

    def describing(self, describe: Callable[..., TableSchema | None]) -> Callable[..., TableSchema | None]:
        """Return ``describe``, which tells what it returns."""
        if not self._open:
            return describe

        def told(*arguments: Any) -> TableSchema | None:
            table = describe(*arguments)
            if table is not None:
                self._tell("described", table)
            return table

        return told

    def progress(self, hook: OnProgress | None) -> OnProgress | None:
        """Return the hook of a snapshot that tells which tables are in the lake."""
        if not self._open:
            return hook

        def told(progress: SnapshotProgress) -> None:
            self.note_read(progress)
            if hook is not None:
                hook(progress)

        return told

    def note_read(self, progress: SnapshotProgress) -> None:
        """Tell of a table whose snapshot is in the lake."""
        if progress.done and progress.report is not None:
            self._tell("read", progress.report)

    def hooks(self, hooks: Hooks) -> Hooks:
        """Return the hooks of a stream that tell batches and rounds."""
        if not self._open:
            return hooks

        def calling(name: str, hook: Callable[[Any], None] | None) -> Callable[[Any], None]:
            def told(report: Any) -> None:
                self._tell(name, report)
                if hook is not None:
                    hook(report)

            return told

        return replace(
            hooks,
            on_batch=calling("durable", hooks.on_batch),
            on_round=calling("merged", hooks.on_round),
            on_unmerged=calling("unmerged", hooks.on_unmerged),
        )

    def _tell(self, method: str, *arguments: object) -> None:
        for observer in self._open:
            try:
                getattr(observer, method)(*arguments)
            except Exception as error:
                kind = type(observer)
                if (kind, method) not in self._failed:
                    self._failed.add((kind, method))
                    _log.warning("%s.%s: %s. The run continues.", kind.__name__, method, type(error).__name__)

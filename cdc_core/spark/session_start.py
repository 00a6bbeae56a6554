"""Starting a Spark session in a background thread, at once or when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from cdc_core.connector_threads import ConnectorThread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame: TypeAlias = "DataFrame"
Session: TypeAlias = "SparkSession"
StartSession: TypeAlias = "Callable[[], SparkSession]"
GivenSession: TypeAlias = "SparkSession | Callable[[], SparkSession] | None"
"""A session, a function that returns it, or None for the process's own."""

_START_SECONDS = 300.0


class SessionStart:
    """A session that is started once, by ``begin`` or by the first call; any thread may call it."""

    def __init__(self, start: StartSession) -> None:
        self._start = start
        self._started: Future[Session] = Future()
        self._lock = Lock()
        self._has_begun = False

    def __call__(self) -> Session:
        """The session; waits for some minutes at most until it has started. Raises what its start raised."""
        self.begin()
        return self._started.result(_START_SECONDS)

    def check(self) -> None:
        """Raise what its start raised, if it has failed by now. Does not wait."""
        if self._started.done():
            self._started.result()

    def begin(self) -> None:
        """Start it, without waiting, unless this was done before."""
        with self._lock:
            if self._has_begun:
                return
            self._has_begun = True
        ConnectorThread(target=self._run, name="spark-start", daemon=True).start()

    def _run(self) -> None:
        try:
            self._started.set_result(self._start())
        except BaseException as error:
            self._started.set_exception(error)

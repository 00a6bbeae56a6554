"""Watches the Delta logs of lake tables from outside, while they are written.

A commit becomes visible when its JSON file gets its name in ``_delta_log``, by a rename or a link of a finished file.
Both set the file's change time (ctime), which is read here; the modification time is that of the last byte, a little
before. Log files may be cleaned up later, so they are read when they appear.

What a table has reached is the version of the ``txn`` action ``wal2lake:<slot>:<schema.table>:<token>``, where the
token is the version of ``…:snapshot`` (cdc_core/lake/delta/table.py). Versions only count after that snapshot.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.freshness.figures import Commit

_NUMBER_DIGITS = 20


class TableLog:
    """One lake table's log. ``commits`` are those that carry a merged LSN, in Delta's order."""

    def __init__(self, folder: Path, slot: str, table: str) -> None:
        self._folder = folder / "_delta_log"
        self._prefix = f"wal2lake:{slot}:{table}:"
        self._next: int | None = None
        self._token: int | None = None
        self.commits: list[Commit] = []
        self.reached = -1

    def poll(self) -> bool:
        """Read what is new; whether there was anything."""
        found = False
        while (self._next is not None or self._find()) and self._read():
            found = True
        return found

    def skip_gap(self) -> None:
        """Go on at the first file there is, where files before it were removed unread."""
        if self._next is not None and not self._path(self._next).exists():
            later = [number for number in self._numbers() if number > self._next]
            # Asked again: the next one may have come while the folder was listed.
            if later and not self._path(self._next).exists():
                self._next = min(later)

    def _find(self) -> bool:
        numbers = self._numbers()
        self._next = min(numbers) if numbers else None
        return self._next is not None

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        stems = (name[:-5] for name in names if name.endswith(".json"))
        return [int(stem) for stem in stems if len(stem) == _NUMBER_DIGITS and stem.isdigit()]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:0{_NUMBER_DIGITS}d}.json"

    def _read(self) -> bool:
        assert self._next is not None
        path = self._path(self._next)
        try:
            when = path.stat().st_ctime
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            return False
        try:
            self.take(self._next, lines, when)
        except ValueError:
            return False  # seen while it was written; the next look has it whole
        self._next += 1
        return True

    def take(self, number: int, lines: Sequence[bytes], when: float) -> None:
        """Note a version's log entry, which became visible at ``when``. Raises ValueError if it is not complete."""
        actions = [json.loads(line)["txn"] for line in lines if line.startswith(b'{"txn"')]
        versions = {action["appId"]: int(action["version"]) for action in actions}
        own = {app.removeprefix(self._prefix): version for app, version in versions.items() if self._is_own(app)}
        if "snapshot" in own:
            self._token, self.reached = own["snapshot"], -1
        for name, version in own.items():
            if name.isdigit() and self._token in (None, int(name)):
                self.commits.append(Commit(when, version, number))
                self.reached = max(self.reached, version)

    def _is_own(self, app: str) -> bool:
        return app.startswith(self._prefix)


class LogTail:
    """Polls the logs of tables in a thread of its own, from ``__enter__`` to ``__exit__``."""

    def __init__(self, lake: Path, slot: str, tables: Sequence[str], interval: float = 0.03) -> None:
        """``lake`` is ``<lake root>/<topic.prefix>``; ``tables`` are ``schema.table``; ``interval`` in seconds."""
        self._logs = [TableLog(lake.joinpath(*table.split(".", 1)), slot, table) for table in tables]
        self._interval = interval
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guard, name="log-tail", daemon=True)

    def __enter__(self) -> LogTail:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def commits(self) -> dict[int, list[Commit]]:
        """So far, by the table's place in ``tables``."""
        with self._changed:
            self._raise()
            return {place: list(log.commits) for place, log in enumerate(self._logs)}

    def wait(self, lsns: Mapping[int, int], seconds: float) -> bool:
        """Wait until each table (by its place) has reached its LSN; False when ``seconds`` have passed before."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                self._raise()
                if all(self._logs[place].reached >= lsn for place, lsn in lsns.items()):
                    return True
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 1.0))

    def behind(self, lsns: Mapping[int, int]) -> int:
        """How many tables have not reached their LSN."""
        with self._changed:
            return sum(self._logs[place].reached < lsn for place, lsn in lsns.items())

    def _raise(self) -> None:
        if self._error is not None:
            raise RuntimeError("the reader of the Delta logs ended early") from self._error

    def _guard(self) -> None:
        try:
            self._run()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set():
            started = time.monotonic()
            with self._changed:
                if sum(log.poll() for log in self._logs):
                    self._changed.notify_all()
                elif self._logs:
                    # Listing a folder costs more than asking for one file, so one folder a look.
                    self._logs[turn % len(self._logs)].skip_gap()
                    turn += 1
            # With hundreds of tables a look takes milliseconds: rest so long that it stays a small part of a core.
            self._stop.wait(max(self._interval, 20 * (time.monotonic() - started)))

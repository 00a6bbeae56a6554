"""Progress of a snapshot as bars, and of a stream as one line a minute."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cdc_core.cli.logs import is_json, say
from cdc_core.engine import RoundReport
from cdc_core.quality import RuleResult
from cdc_core.schema import TableId
from cdc_core.snapshot import SnapshotProgress

_PROGRESS_SECONDS = 60.0


@contextmanager
def snapshot_progress(console: Console) -> Iterator[SnapshotBars]:
    """One progress bar per table, removed after the snapshot; without a terminal, one line per finished table."""
    bars = SnapshotBars(console)
    try:
        yield bars
    finally:
        bars.stop()


class SnapshotBars:
    """Shows the progress of snapshots. The bars appear with the first progress after ``stop``, or at first."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._tasks: dict[TableId, TaskID] = {}

    def __call__(self, progress: SnapshotProgress) -> None:
        """Show the progress of one table."""
        if not self._console.is_terminal or is_json():
            say_table(progress)
            return
        if self._bars is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bars, self._tasks = Progress(*columns, console=self._console, transient=True), {}
            self._bars.start()
        if progress.table not in self._tasks:
            self._tasks[progress.table] = self._bars.add_task(str(progress.table), total=progress.rows_estimated)
        total = max(progress.rows, 1) if progress.done else progress.rows_estimated
        self._bars.update(self._tasks[progress.table], completed=progress.rows, total=total)

    def stop(self) -> None:
        """Remove the bars."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


def say_table(progress: SnapshotProgress) -> None:
    """Log a table whose snapshot is in the lake."""
    if progress.done:
        text = f"{progress.table}: {progress.rows:,} rows"
        say(text, event="table read", table=str(progress.table), rows=progress.rows)


def _say_quarantined(table: TableId, rows: int) -> None:
    say(f"  {table}: {rows:,} rows quarantined", event="quarantined", table=str(table), rows=rows)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class RoundProgress:
    """Logs the first round, then one line with the sums of each minute; every round with ``--verbose``.

    Rows in quarantine are logged at once for each table, and in the same minute only in the sums.
    """

    def __init__(self, seconds: float = _PROGRESS_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = clock
        self._since = clock()
        self._is_first = True
        self._rounds = self._changes = 0
        self._tables: set[TableId] = set()
        self._quarantined: Counter[TableId] = Counter()
        self._failed: set[tuple[TableId, str]] = set()

    def note(self, report: RoundReport) -> None:
        """Count a round; log the sums if a minute has passed."""
        changes = sum(merge.events for merge in report.merges)
        self._rounds += 1
        self._changes += changes
        self._tables.update(merge.table for merge in report.merges)
        for check in report.judgements:
            if check.quarantined:
                self._note_quarantined(check.table, check.quarantined)
            for rule in check.rules:
                if not rule.success and rule.is_of_user:
                    self._note_failed(check.table, rule)
        text = f"{report.lsn}  {changes:,} changes into {len(report.merges)} tables, {report.lag_bytes:,} bytes behind"
        say(text, level=logging.DEBUG, event="round", lsn=str(report.lsn), changes=changes)
        if self._now() - self._since >= self._seconds or (self._is_first and changes):
            self._is_first = False
            self._say(report)

    def _note_failed(self, table: TableId, rule: RuleResult) -> None:
        """Log that an expectation of the user failed, at most once a minute."""
        if (table, rule.name) in self._failed:
            return
        self._failed.add((table, rule.name))
        name = rule.name.removeprefix("user:")
        say(
            f"  {table}: {name} failed ({rule.severity}): {rule.said}",
            event="expectation failed",
            table=str(table),
            rule=name,
            severity=rule.severity,
        )

    def _note_quarantined(self, table: TableId, rows: int) -> None:
        if table not in self._quarantined:
            _say_quarantined(table, rows)
            rows = 0
        self._quarantined[table] += rows

    def _say(self, report: RoundReport) -> None:
        say(
            f"{report.lsn}  {_count(self._changes, 'change')} into {_count(len(self._tables), 'table')} in "
            f"{_count(self._rounds, 'round')}, {report.lag_bytes:,} bytes behind",
            event="progress",
            lsn=str(report.lsn),
            changes=self._changes,
            tables=len(self._tables),
            rounds=self._rounds,
            lag_bytes=report.lag_bytes,
        )
        for table, rows in sorted(self._quarantined.items()):
            if rows:
                _say_quarantined(table, rows)
        self._since, self._rounds, self._changes = self._now(), 0, 0
        self._tables, self._quarantined = set(), Counter()

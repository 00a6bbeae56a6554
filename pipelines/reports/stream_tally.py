"""Totals of a streaming run: per table since its last report, check results over the entire run.

The engine calls ``add_batch`` and ``add_round`` from any thread, about once per second each; the step's thread queries
and takes what is due. Memory grows with the number of tables, not with the duration of the run.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cdc_core.engine import BatchReport, MergeReport, RoundReport
from cdc_core.lake import StreamTable
from cdc_core.lsn import Lsn
from cdc_core.quality import CheckReport, RuleResult, both
from cdc_core.schema import TableId


@dataclass(slots=True)
class TableTotals:
    """A table's merges since its last report: sums, the last merge's position and lags, and the maximum lag.

    ``missing``: rows that changes update or delete and that were not in the lake table.
    """

    rounds: int = 0
    events: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    quarantined: int = 0
    missing: int = 0
    seconds: float = 0.0
    lsn: Lsn = Lsn(0)  # noqa: RUF009  (an LSN is an int: it cannot change)
    lake_version: int = -1
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    lag_seconds_max: float = 0.0

    def add(self, other: TableTotals) -> None:
        """Add later totals."""
        for name in ("rounds", "events", "inserted", "updated", "deleted", "quarantined", "missing", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lag_seconds_max = max(self.lag_seconds_max, other.lag_seconds_max)
        if other.rounds:
            self.lsn, self.lake_version = other.lsn, other.lake_version
            self.lag_bytes, self.lag_seconds = other.lag_bytes, other.lag_seconds

    def emptied(self) -> TableTotals:
        """Return totals without sums, with the same position."""
        return TableTotals(
            lsn=self.lsn, lake_version=self.lake_version, lag_bytes=self.lag_bytes, lag_seconds=self.lag_seconds
        )

    @classmethod
    def of(cls, merge: MergeReport, report: RoundReport) -> TableTotals:
        """The totals of one table in one round."""
        return cls(
            1,
            merge.events,
            merge.inserted,
            merge.updated,
            merge.deleted,
            merge.check.quarantined if merge.check else 0,
            0,
            merge.seconds,
            merge.lsn,
            merge.lake_version,
            report.lag_bytes,
            lag_of(report),
            lag_of(report),
        )


def lag_of(report: RoundReport) -> float:
    """The seconds from the commits of a round's changes in the source to the lake, on average.

    Of a round that received none: the age of what it has merged, while more waits.
    """
    lags = report.lags
    return lags.seconds / lags.changes if lags is not None and lags.changes else report.lag_seconds


@dataclass(slots=True)
class CheckTotals:
    """A table's judgements over the run: their number, how many failed, and the sum of all (None for none).

    ``waiting`` changes were in its quarantine table after the last one.
    """

    checks: int = 0
    failed_checks: int = 0
    waiting: int = 0
    judged: CheckReport | None = None

    def add(self, check: CheckReport) -> None:
        """Add one judgement."""
        self.checks += 1
        self.failed_checks += not check.success
        self.judged = both(self.judged, check)

    @property
    def rows(self) -> int:
        """The number of judged change rows."""
        return 0 if self.judged is None else self.judged.rows

    @property
    def quarantined(self) -> int:
        """The number of rows that were refused."""
        return 0 if self.judged is None else self.judged.quarantined

    @property
    def rules(self) -> tuple[RuleResult, ...]:
        """What each rule decided over the run."""
        return () if self.judged is None else self.judged.rules

    def failed_rules(self, *, errors: bool) -> list[RuleResult]:
        """Return the failed rules, those of severity error or the others, by name."""
        failed = (rule for rule in self.rules if not rule.success and errors == (rule.severity == "error"))
        return sorted(failed, key=lambda rule: rule.name)

    def state(self) -> tuple[object, ...]:
        """A value that changes when the checks must be reported again: the failures."""
        failed = tuple((rule.name, rule.failed, rule.observed) for rule in self.rules if not rule.success)
        return self.failed_checks, self.quarantined, self.waiting, failed

    def copy(self) -> CheckTotals:
        """Return a copy that later additions do not change."""
        return replace(self)


@dataclass(slots=True)
class TableSummary:
    """Unreported totals of a table. ``error`` is the reason why it is not merged, None if it is.

    ``reported`` is set by the caller once the totals are logged, so that they are not logged twice after an error.
    """

    table: TableId
    totals: TableTotals
    checks: CheckTotals
    error: str | None
    reported: bool = False


@dataclass(slots=True)
class ChangesTotals:
    """Totals of the changelog since its last report. Position and lags are the latest."""

    batches: int = 0
    events: int = 0
    rounds: int = 0
    seconds: float = 0.0
    commit_lsn: Lsn = Lsn(0)  # noqa: RUF009  (as above)
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    lag_seconds_max: float = 0.0
    own_rows: Counter[StreamTable] = field(default_factory=Counter)

    def add(self, other: ChangesTotals) -> None:
        """Add later totals."""
        for name in ("batches", "events", "rounds", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lag_seconds_max = max(self.lag_seconds_max, other.lag_seconds_max)
        self.commit_lsn = max(self.commit_lsn, other.commit_lsn)
        self.own_rows.update(other.own_rows)
        if other.batches or other.rounds:
            self.lag_bytes = other.lag_bytes
        if other.rounds:
            self.lag_seconds = other.lag_seconds

    def emptied(self) -> ChangesTotals:
        """Return totals without sums, with the same position."""
        return ChangesTotals(commit_lsn=self.commit_lsn, lag_bytes=self.lag_bytes, lag_seconds=self.lag_seconds)


@dataclass(slots=True)
class _Clock:
    """Time of the last report, and time since when there are unreported changes."""

    reported: float | None = None
    unreported_since: float | None = None

    def due_at(self, first: float, every: float) -> float | None:
        if self.unreported_since is None:
            return None
        return self.unreported_since + first if self.reported is None else self.reported + every


@dataclass(slots=True)
class _TableTally:
    totals: TableTotals = field(default_factory=TableTotals)
    checks: CheckTotals = field(default_factory=CheckTotals)
    error: str | None = None
    clock: _Clock = field(default_factory=_Clock)


class RunTally:
    """The totals of one run. Thread-safe.

    A table is due ``first_seconds`` after its first change in the run, and then ``every_seconds`` after its last report
    if there are unreported changes.
    """

    def __init__(self, first_seconds: float, every_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._first, self._every = min(first_seconds, every_seconds), every_seconds
        self._now = clock
        self._lock = threading.Lock()
        self._tables: dict[TableId, _TableTally] = {}
        self._changes = ChangesTotals()
        self._changes_clock = _Clock()
        self.merged: set[TableId] = set()

    def add_batch(self, report: BatchReport) -> None:
        """Add one micro-batch in the changelog."""
        with self._lock:
            events = sum(report.events.values())
            added = ChangesTotals(1, events, 0, report.seconds, Lsn(report.commit_lsn), report.lag_bytes)
            added.own_rows.update(report.own_rows)
            self._changes.add(added)
            self._mark_unreported(self._changes_clock)

    def add_round(self, report: RoundReport) -> None:
        """Add a round: merged tables and errors. A later merge of a table clears its error."""
        with self._lock:
            lags = (report.lag_bytes, lag_of(report), lag_of(report))
            self._changes.add(ChangesTotals(0, 0, 1, 0.0, Lsn(0), *lags))
            if report.merges:
                self._mark_unreported(self._changes_clock)
            for merge in report.merges:
                self._add_merge(merge, report)
            for check in report.refused:
                self._add_check(check, None)
            for table, error in report.failed.items():
                tally = self._tables.setdefault(table, _TableTally())
                if tally.error != error:
                    self._mark_unreported(tally.clock)
                tally.error = error
                tally.totals.missing += report.missing.get(table, 0)

    def due(self) -> list[TableId]:
        """The tables whose report is due, longest waiting first."""
        with self._lock:
            now = self._now()
            due_tables = [
                (at, table)
                for table, tally in self._tables.items()
                if (at := tally.clock.due_at(self._first, self._every)) is not None and at <= now
            ]
        return [table for _, table in sorted(due_tables)]

    def has_new(self) -> bool:
        """Whether a table waits for its first report in the run."""
        with self._lock:
            clocks = [tally.clock for tally in self._tables.values()]
            return any(clock.reported is None and clock.unreported_since is not None for clock in clocks)

    def unreported(self) -> list[TableId]:
        """The tables with unreported changes, due or not."""
        with self._lock:
            return sorted(table for table, tally in self._tables.items() if tally.clock.unreported_since is not None)

    def tables(self) -> list[TableId]:
        """All tables that were merged in the run or have an error."""
        with self._lock:
            return sorted(self._tables)

    def judgements(self) -> list[CheckReport]:
        """The checks of the run, one report for each table."""
        with self._lock:
            return [tally.checks.judged for _, tally in sorted(self._tables.items()) if tally.checks.judged is not None]

    @property
    def judged_batches(self) -> tuple[int, int]:
        """How many slices were judged in the run, and how many of them failed an error rule's expectation."""
        with self._lock:
            checks = [tally.checks for tally in self._tables.values()]
        return sum(table_checks.checks for table_checks in checks), sum(
            table_checks.failed_checks for table_checks in checks
        )

    def changes_are_due(self) -> bool:
        """Whether a report of the changelog is due."""
        with self._lock:
            at = self._changes_clock.due_at(self._first, self._every)
            return at is not None and at <= self._now()

    @property
    def has_changes(self) -> bool:
        """Whether the changelog has unreported changes."""
        with self._lock:
            return self._changes_clock.unreported_since is not None

    @contextmanager
    def taken(self, table: TableId) -> Iterator[TableSummary]:
        """A table's unreported totals, to be logged in this context; after an error they remain unreported."""
        with self._lock:
            tally = self._tables.setdefault(table, _TableTally())
            summary = TableSummary(table, tally.totals, tally.checks.copy(), tally.error)
            before = replace(tally.clock)
            tally.totals, tally.clock = tally.totals.emptied(), _Clock(self._now())
        try:
            yield summary
        except BaseException:
            with self._lock:
                if not summary.reported:
                    summary.totals.add(tally.totals)
                    tally.totals = summary.totals
                tally.clock = before
            raise

    @contextmanager
    def changes_taken(self) -> Iterator[ChangesTotals]:
        """The changelog's unreported totals, to be logged in this context; after an error they remain unreported."""
        with self._lock:
            totals, before = self._changes, self._changes_clock
            self._changes, self._changes_clock = totals.emptied(), _Clock(self._now())
        try:
            yield totals
        except BaseException:
            with self._lock:
                totals.add(self._changes)
                self._changes, self._changes_clock = totals, before
            raise

    def _add_merge(self, merge: MergeReport, report: RoundReport) -> None:
        tally = self._tables.setdefault(merge.table, _TableTally())
        tally.totals.add(TableTotals.of(merge, report))
        tally.error = None
        self.merged.add(merge.table)
        self._mark_unreported(tally.clock)
        if merge.check is not None:
            self._add_check(merge.check, merge.waiting)

    def _add_check(self, check: CheckReport, waiting: int | None) -> None:
        tally = self._tables.setdefault(check.table, _TableTally())
        tally.checks.add(check)
        tally.checks.waiting = tally.checks.waiting if waiting is None else waiting
        self._mark_unreported(tally.clock)

    def _mark_unreported(self, clock: _Clock) -> None:
        if clock.unreported_since is None:
            clock.unreported_since = self._now()

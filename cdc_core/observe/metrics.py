"""Debezium's snapshot and streaming attributes of a connector, by their own names, for Prometheus.

The names and labels are those of Debezium's attributes in Prometheus' JMX exporter with Debezium's example
configuration (``debezium_metrics_<Attribute>{context, name, plugin}``), so dashboards made for it work here too.
Metrics that only wal2lake has begin with ``wal2lake_``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from cdc_core.observe.counts import ConnectionCounts, SnapshotState, StreamMetrics
from cdc_core.observe.health import ConnectorHealth, RunState

if TYPE_CHECKING:  # imported only if metrics are served, which requires a port
    from prometheus_client.core import Metric

    from cdc_core.observe.lag import LagCounts

_LABELS = ("context", "name", "plugin")
_PLUGIN = "postgres"
SNAPSHOT, STREAMING = "snapshot", "streaming"


class ConnectorMetrics:
    """The metrics of one connector; updated by any thread, read by the Prometheus server.

    ``tags`` are labels of every metric (``custom.metric.tags``).
    """

    def __init__(
        self, name: str, clock: Callable[[], float] = time.monotonic, tags: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._name = name
        self._tags = dict(tags)
        self._facts: Callable[[], ConnectionCounts] | None = None
        self._now = clock
        self._lock = threading.Lock()
        self._snapshot: SnapshotState | None = None
        self._stream = StreamMetrics()

    # Snapshots.

    def snapshot_started(self, tables: Iterable[str]) -> None:
        """Record the start of a snapshot of these tables, or add them to the one in progress."""
        with self._lock:
            wanted = set(tables)
            held = self._snapshot
            if held is None or held.ended is not None:
                self._snapshot = held = SnapshotState(started=self._now())
            held.tables |= wanted
            held.left |= wanted

    def snapshot_resumed(self, table: str) -> None:
        """Record that the table is being read; without a recorded start, an earlier process started the snapshot."""
        with self._lock:
            if self._snapshot is not None and self._snapshot.ended is None:
                return
        self.snapshot_started([table])

    def snapshot_rows(self, table: str, rows: int, *, done: bool, filtered: int = 0) -> None:
        """Record the number of rows read of the table, and of those that a rule refused."""
        with self._lock:
            held = self._snapshot
            if held is not None:
                held.rows[table] = max(rows, held.rows.get(table, 0))
                held.filtered[table] = max(filtered, held.filtered.get(table, 0))
                held.last_event, held.last_table = self._now(), table
                if done:
                    held.left.discard(table)

    def snapshot_paused(self, paused: bool) -> None:
        """Record that the snapshot was paused or resumed."""
        with self._lock:
            held = self._snapshot
            if held is None or paused == (held.paused_since is not None):
                return
            if held.paused_since is not None:
                held.paused_seconds += self._now() - held.paused_since
            held.paused_since = self._now() if paused else None

    def snapshot_ended(self, *, aborted: bool) -> None:
        """Record that the snapshot was completed or aborted."""
        self.snapshot_paused(False)
        with self._lock:
            held = self._snapshot
            if held is not None and held.ended is None:
                held.ended, held.is_aborted = self._now(), aborted
                if not aborted:
                    held.left.clear()

    # The stream.

    def connected(self, tables: Iterable[str]) -> None:
        """Record that the stream of these captured tables begins."""
        with self._lock:
            self._stream.is_connected = True
            self._stream.tables = set(tables)

    def disconnected(self) -> None:
        """Record that the stream ended."""
        with self._lock:
            self._stream.is_connected = False
            self._stream.seen, self._facts = replace(self._seen(), queue=None), None

    def follow(self, facts: Callable[[], ConnectionCounts]) -> None:
        """Ask for the facts of the connection at each scrape, in the thread of the server, until it ends."""
        with self._lock:
            self._facts = facts

    def standing(self, unmerged: Iterable[str], quarantined: Mapping[str, int] | None = None) -> None:
        """Record the tables that are not merged, and, unless None, how many changes of tables are in quarantine."""
        with self._lock:
            self._stream.paused = set(unmerged)
            if quarantined is not None:
                self._stream.quarantined = dict(quarantined)

    def waiting(self, fault: str, cause: str = "") -> None:
        """Record that the run waits before it tries again; ``fault`` is the class of the error, ``cause`` its text."""
        with self._lock:
            held = self._stream
            held.cause = cause
            held.faults[fault] = held.faults.get(fault, 0) + 1
            held.waiting_since = self._now() if held.waiting_since is None else held.waiting_since

    def going_on(self) -> None:
        """Record that the run does not wait."""
        with self._lock:
            self._stream.waiting_since = None
            self._stream.cause = ""

    def starting(self) -> None:
        """Record that a run of the connector starts, after one that has ended."""
        with self._lock:
            self._stream.stopped, self._stream.cause = None, ""

    def stopped(self, cause: str = "") -> None:
        """Record that the run has ended and the process continues; ``cause`` is the error's text, if there was one."""
        with self._lock:
            self._stream.stopped, self._stream.cause = RunState.FAILED if cause else RunState.ENDED, cause
            self._stream.waiting_since = None

    def health(self) -> ConnectorHealth:
        """Return what the connector does now."""
        with self._lock:
            stream, snapshot = self._stream, self._snapshot
            if stream.stopped is not None:
                state = stream.stopped
            elif stream.waiting_since is not None:
                state = RunState.WAITING
            elif stream.is_connected:
                state = RunState.STREAMING
            elif snapshot is not None and snapshot.ended is None:
                state = RunState.SNAPSHOT
            else:
                state = RunState.STARTING
            return ConnectorHealth(self._name, state, stream.cause)

    def batch(self, events: int, lag_bytes: int, behind_seconds: float | None = None) -> None:
        """Record a durable micro-batch. ``behind_seconds`` is the age of its last commit, None without one."""
        with self._lock:
            held = self._stream
            held.events += events
            held.lag_bytes = lag_bytes
            held.last_event = self._now() if events else held.last_event
            held.lag_seconds = held.lag_seconds if behind_seconds is None else behind_seconds

    def round(
        self,
        seconds: float,
        lag_bytes: int,
        lag_seconds: float,
        merged: Mapping[str, Sequence[int]],
        paused: set[str],
        missing: Mapping[str, int],
        quarantined: Mapping[str, int] | None = None,
        failed_checks: Mapping[tuple[str, str, str], int] | None = None,
        lags: LagCounts | None = None,
    ) -> None:
        """Record a merged round. ``merged``: rows inserted, updated, deleted and quarantined by table.

        ``lag_seconds``: the age of the newest merged commit while more changes wait, else 0. ``missing``: rows that
        changes update or delete and that the lake table does not have, by table. ``quarantined``: changes that are in
        quarantine now, by table. ``failed_checks``: rows that failed a rule, by table, rule and severity.
        """
        with self._lock:
            stream = self._stream
            stream.rounds += 1
            stream.round_seconds += seconds
            stream.last_round = self._now()
            stream.lag_bytes, stream.paused = lag_bytes, set(paused)
            stream.lag_seconds = lag_seconds or stream.lag_seconds
            stream.quarantined.update(quarantined or {})
            if lags is not None:
                stream.lags = lags if stream.lags is None else stream.lags.plus(lags)
            for check, rows in (failed_checks or {}).items():
                stream.failed_checks[check] = stream.failed_checks.get(check, 0) + rows
            for table, counts in merged.items():
                sums = stream.merged.setdefault(table, [0] * len(_CHANGES))
                stream.merged[table] = [a + b for a, b in zip(sums, counts, strict=True)]
            for table, count in missing.items():
                stream.missing[table] = stream.missing.get(table, 0) + count

    # Prometheus.

    def collect(self) -> Iterator[Metric]:
        """Yield the current values, with snapshot attributes only once there was a snapshot."""
        with self._lock:
            now = self._now()
            metrics = [*self._streaming(now), *self._read(), *self._own(now), *self._judged(), *self._faults(now)]
            metrics += self._lags()
            if self._snapshot is not None:
                metrics += self._of_snapshot(self._snapshot, now)
        by_name: dict[str, Metric] = {}
        for metric in metrics:
            # One family contains the samples of both contexts.
            known = by_name.setdefault(metric.name, metric)
            if known is not metric:
                known.samples.extend(metric.samples)
        for metric in by_name.values():
            metric.samples = [sample._replace(labels={**sample.labels, **self._tags}) for sample in metric.samples]
            yield metric

    def _seen(self) -> ConnectionCounts:
        """The facts of all connections; the last event is that of the last one that had any."""
        before = self._stream.seen
        now = ConnectionCounts() if self._facts is None else self._facts()
        last = before if now.table is None else now
        return ConnectionCounts(
            before.transactions + now.transactions,
            before.filtered + now.filtered,
            before.transaction_id if now.transaction_id is None else now.transaction_id,
            last.table,
            last.position,
            now.queue,
        )

    def _gauge(self, context: str, attribute: str, text: str, value: float) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        metric = GaugeMetricFamily(f"debezium_metrics_{attribute}", text, labels=_LABELS)
        metric.add_metric((context, self._name, _PLUGIN), value)
        return metric

    def _by_table(self, context: str, attribute: str, text: str, values: dict[str, int]) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        metric = GaugeMetricFamily(f"debezium_metrics_{attribute}", text, labels=(*_LABELS, "table"))
        for table, value in sorted(values.items()):
            metric.add_metric((context, self._name, _PLUGIN, table), value)
        return metric

    def _since(self, context: str, last: float | None, now: float) -> Metric:
        age = -1 if last is None else round((now - last) * 1000)
        return self._gauge(
            context, "MilliSecondsSinceLastEvent", "Time since the most recent event, -1 before the first event.", age
        )

    def _captured(self, context: str, tables: set[str]) -> Metric:
        found = dict.fromkeys(tables, 1)
        return self._by_table(context, "CapturedTables", "1 for each captured table.", found)

    def _monitored(self, context: str, tables: set[str]) -> Metric:
        found = dict.fromkeys(tables, 1)
        return self._by_table(context, "MonitoredTables", "As CapturedTables; Debezium's former name.", found)

    def _last_event(self, context: str, table: str | None) -> Metric:
        found = {} if table is None else {table: 1}
        return self._by_table(context, "LastEvent", "1 for the table of the last event.", found)

    def _read(self) -> list[Metric]:
        """The events received, durable or not."""
        from prometheus_client.core import GaugeMetricFamily

        seen = self._seen()
        position = GaugeMetricFamily(
            "debezium_metrics_SourceEventPosition",
            "Position of the last event: LSN, LSN of its commit, transaction id, commit time in microseconds.",
            labels=(*_LABELS, "coordinate"),
        )
        for coordinate, value in seen.position.items():
            position.add_metric((STREAMING, self._name, _PLUGIN, coordinate), value)
        values: dict[str, tuple[str, float]] = {
            "NumberOfEventsFiltered": ("Changes and messages received that are not captured.", seen.filtered),
            "NumberOfCommittedTransactions": ("Transactions received.", seen.transactions),
        }
        if seen.transaction_id is not None:
            values["LastTransactionId"] = ("Id of the last transaction received.", seen.transaction_id)
        if seen.queue is not None:
            queue = seen.queue
            values |= {
                "QueueTotalCapacity": ("How many changes may wait until they are durable.", queue.most_rows),
                "QueueRemainingCapacity": ("How many more may wait.", max(0, queue.most_rows - queue.rows)),
                "MaxQueueSizeInBytes": ("How many bytes of changes may wait.", queue.most_bytes),
                "CurrentQueueSizeInBytes": ("How many bytes of changes wait.", queue.bytes),
            }
        gauges = [self._gauge(STREAMING, name, text, value) for name, (text, value) in values.items()]
        return [*gauges, self._last_event(STREAMING, seen.table), position]

    def _streaming(self, now: float) -> list[Metric]:
        stream, gauge = self._stream, self._gauge
        behind = round(stream.lag_seconds * 1000)
        return [
            gauge(STREAMING, "Connected", "Whether the stream is connected to the server.", stream.is_connected),
            gauge(STREAMING, "TotalNumberOfEventsSeen", "Events read since the process started.", stream.events),
            self._since(STREAMING, stream.last_event, now),
            gauge(
                STREAMING,
                "MilliSecondsBehindSource",
                "Time from the commit of the last change to its processing; of the newest merged one while more wait.",
                behind,
            ),
            self._captured(STREAMING, stream.tables),
            self._monitored(STREAMING, stream.tables),
        ]

    def _of_snapshot(self, snapshot: SnapshotState, now: float) -> list[Metric]:
        until = now if snapshot.ended is None else snapshot.ended
        seconds = until - (snapshot.started or until)
        paused = snapshot.paused_seconds + (0.0 if snapshot.paused_since is None else now - snapshot.paused_since)
        is_done = snapshot.ended is not None
        values = (
            ("TotalTableCount", "Tables of the snapshot.", len(snapshot.tables)),
            ("RemainingTableCount", "Tables that are still to be read.", len(snapshot.left)),
            ("SnapshotRunning", "Whether a snapshot is in progress.", not is_done),
            ("SnapshotPaused", "Whether the snapshot is paused.", snapshot.paused_since is not None),
            ("SnapshotAborted", "Whether the snapshot was aborted.", snapshot.is_aborted),
            ("SnapshotCompleted", "Whether the snapshot was completed.", is_done and not snapshot.is_aborted),
            ("SnapshotDurationInSeconds", "Duration of the snapshot so far.", round(seconds, 3)),
            ("SnapshotPausedDurationInSeconds", "Time during which the snapshot was paused.", round(paused, 3)),
            ("TotalNumberOfEventsSeen", "Rows read.", sum(snapshot.rows.values())),
            ("NumberOfEventsFiltered", "Rows read that a quality rule refused.", sum(snapshot.filtered.values())),
        )
        return [
            *(self._gauge(SNAPSHOT, name, text, float(value)) for name, text, value in values),
            self._since(SNAPSHOT, snapshot.last_event, now),
            self._captured(SNAPSHOT, snapshot.tables),
            self._monitored(SNAPSHOT, snapshot.tables),
            self._last_event(SNAPSHOT, snapshot.last_table),
            self._by_table(SNAPSHOT, "RowsScanned", "Rows read of each table.", snapshot.rows),
        ]

    def _faults(self, now: float) -> list[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stream = self._stream
        since = 0.0 if stream.waiting_since is None else now - stream.waiting_since
        waiting = GaugeMetricFamily(
            "wal2lake_waiting_seconds", "Time since the run waits after a fault; 0 if it does not.", labels=("name",)
        )
        waiting.add_metric((self._name,), since)
        retries = CounterMetricFamily(
            "wal2lake_retries", "Attempts after a fault that passes, by the fault.", labels=("name", "fault")
        )
        for fault, count in sorted(stream.faults.items()):
            retries.add_metric((self._name, fault), count)
        failed = GaugeMetricFamily(
            "wal2lake_failed",
            "1 if the run ended with an error and others of the process continue.",
            labels=("name",),
        )
        failed.add_metric((self._name,), float(stream.stopped is RunState.FAILED))
        return [waiting, failed, retries]

    def _judged(self) -> list[Metric]:
        """What quality rules refuse."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        quarantined = GaugeMetricFamily(
            "wal2lake_quarantined_rows", "Changes that are waiting in quarantine.", labels=("name", "table")
        )
        for table, count in sorted(self._stream.quarantined.items()):
            quarantined.add_metric((self._name, table), count)
        failed = CounterMetricFamily(
            "wal2lake_failed_check_rows",
            "Rows that failed a quality rule.",
            labels=("name", "table", "rule", "severity"),
        )
        for (table, rule, severity), count in sorted(self._stream.failed_checks.items()):
            failed.add_metric((self._name, table, rule, severity), count)
        return [quarantined, failed]

    def _lags(self) -> list[Metric]:
        """The lags of merged changes, from the first one on."""
        from prometheus_client.core import HistogramMetricFamily

        from cdc_core.observe.lag import LAG_BOUNDS

        lags = self._stream.lags
        if lags is None:
            return []
        made = HistogramMetricFamily(
            "wal2lake_lag_seconds", "Time from a change's commit in the source to the lake.", labels=("name",)
        )
        bounds = [*(str(bound) for bound in LAG_BOUNDS), "+Inf"]
        made.add_metric((self._name,), list(zip(bounds, accumulate(lags.counts), strict=True)), lags.seconds)
        return [made]

    def _own(self, now: float) -> list[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stream = self._stream
        lag = GaugeMetricFamily(
            "wal2lake_lag_bytes", "WAL between the confirmed position and the end of the WAL.", labels=("name",)
        )
        lag.add_metric((self._name,), stream.lag_bytes)
        rounds = CounterMetricFamily("wal2lake_rounds", "Rounds merged into the lake.", labels=("name",))
        rounds.add_metric((self._name,), stream.rounds)
        seconds = CounterMetricFamily("wal2lake_round_seconds", "Time spent in rounds.", labels=("name",))
        seconds.add_metric((self._name,), stream.round_seconds)
        changed = CounterMetricFamily(
            "wal2lake_lake_rows", "Rows of lake tables, by change.", labels=("name", "table", "change")
        )
        paused = GaugeMetricFamily(
            "wal2lake_table_paused", "1 for each table that is not merged.", labels=("name", "table")
        )
        for table, counts in sorted(stream.merged.items()):
            for change, count in zip(_CHANGES, counts, strict=True):
                changed.add_metric((self._name, table, change), count)
        for table in sorted(stream.paused):
            paused.add_metric((self._name, table), 1)
        missing = CounterMetricFamily(
            "wal2lake_missing_rows",
            "Rows that changes update or delete and that the lake table does not have.",
            labels=("name", "table"),
        )
        for table, count in sorted(stream.missing.items()):
            missing.add_metric((self._name, table), count)
        age = GaugeMetricFamily(
            "wal2lake_last_round_age_seconds",
            "Time since the last round; none is needed while nothing changes.",
            labels=("name",),
        )
        if stream.last_round is not None:
            age.add_metric((self._name,), round(now - stream.last_round, 3))
        return [lag, rounds, seconds, age, changed, paused, missing]


_CHANGES = ("inserted", "updated", "deleted", "quarantined")

"""One run of a connector in OpenLineage: its events in order, as Debezium sends them.

    START ─▶ RUNNING ─▶ RUNNING a table, with columns and outputs ─▶ RUNNING with rows ─▶ COMPLETE
                         (again when its columns change)             (about once a minute)
    FAIL with the error, at each attempt that ends by one; a run that tries again continues with RUNNING

A run keeps its id from START to COMPLETE. Any thread may call it; no call waits for the receiver of the events.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from cdc_core.clock import now_us
from cdc_core.described import DescribedTable
from cdc_core.lineage.datasets import Dataset, SourceDatabase, Written, lake_dataset, source_dataset, topic_dataset
from cdc_core.lineage.facets import DEBEZIUM_CONFIG, EVENT_SCHEMA, PRODUCER, Facet, facet, own_facet
from cdc_core.schema import TableId
from cdc_core.version import __version__

_ROWS_SECONDS = 60.0
_NAME = "wal2lake"


class EventKind(StrEnum):
    """The state of a run that an event reports."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Job:
    """The job: a connector. ``settings`` are the lines of the connector file, with secrets masked."""

    namespace: str
    name: str
    description: str
    tags: Sequence[tuple[str, str]] = ()
    owners: Sequence[tuple[str, str]] = ()
    settings: Sequence[str] = ()

    def facets(self) -> dict[str, Facet]:
        """The facets of the job in each event."""
        made = {
            "documentation": facet("DocumentationJobFacet", description=self.description),
            "jobType": facet("JobTypeJobFacet", processingType="STREAMING", integration=_NAME.upper(), jobType="TASK"),
        }
        if self.owners:
            owners = [{"name": name, "type": kind} for name, kind in self.owners]
            made["ownership"] = facet("OwnershipJobFacet", owners=owners)
        if self.tags:
            tags = [{"key": key, "value": value, "source": "CONFIG"} for key, value in self.tags]
            made["tags"] = facet("TagsJobFacet", tags=tags)
        return made


@dataclass(frozen=True, slots=True)
class MergedUpTo:
    """How far the lake is: ``lsn`` of the source, WAL behind its end, and the age of what is merged."""

    lsn: str
    lag_bytes: int
    lag_seconds: float


class LineageRun:
    """Sends the events of one run by ``send``, which neither waits nor raises. ``database`` has the source tables."""

    def __init__(
        self,
        job: Job,
        database: SourceDatabase,
        send: Callable[[Mapping[str, Any]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job, self._database, self._send, self._clock = job, database, send, clock
        self.run_id = str(_time_ordered_id())
        self._lock = threading.RLock()
        self._tables: dict[TableId, DescribedTable] = {}
        self._written: dict[TableId, Written] = {}
        self._progress: MergedUpTo | None = None
        self._told_at = clock()
        self._is_running = self._has_failed = False

    def start(self) -> None:
        """Report that the run begins."""
        self._emit(EventKind.START)

    def opened(self, tables: Iterable[DescribedTable]) -> None:
        """Report that these tables are captured from here on: those that are new, or differ from what was reported."""
        with self._lock:
            if not self._is_running:
                self._is_running = True
                self._emit(EventKind.RUNNING)
            for table in tables:
                if self._tables.get(table.id) != table:
                    self._tables[table.id] = table
                    self._emit(EventKind.RUNNING, [table])

    def read(self, table: TableId, written: Written) -> None:
        """Report a snapshot of the table that is in the lake."""
        with self._lock:
            described = self._tables.get(table)
            if described is not None:
                self._emit(EventKind.RUNNING, [described], {table: written})

    def merged(self, tables: Mapping[TableId, Written], progress: MergedUpTo) -> None:
        """Add the rows of a round; they are reported with those of other rounds, at most once a minute."""
        with self._lock:
            for table, written in tables.items():
                before = self._written.get(table)
                self._written[table] = written if before is None else before.and_then(written)
            self._progress = progress
            if self._clock() - self._told_at >= _ROWS_SECONDS:
                self._tell_rows()

    def failed(self, message: str, trace: str) -> None:
        """Report the error by which an attempt ended, unless nothing was reported since the last error.

        An attempt that follows begins with RUNNING.
        """
        with self._lock:
            if self._has_failed:
                return
            self._tell_rows()
            error = facet("ErrorMessageRunFacet", message=message, programmingLanguage="Python", stackTrace=trace)
            self._emit(EventKind.FAIL, run_facets={"errorMessage": error})
            self._is_running, self._has_failed = False, True

    def end(self) -> None:
        """Report that the run has ended: it is complete, unless its last event was FAIL."""
        with self._lock:
            self._tell_rows()
            if not self._has_failed:
                self._emit(EventKind.COMPLETE)

    def _tell_rows(self) -> None:
        written, self._written = self._written, {}
        self._told_at = self._clock()
        tables = [self._tables[table] for table in written if table in self._tables]
        if tables:
            self._emit(EventKind.RUNNING, tables, written)

    def _emit(
        self,
        kind: EventKind,
        tables: Sequence[DescribedTable] = (),
        written: Mapping[TableId, Written] | None = None,
        run_facets: Mapping[str, Facet] | None = None,
    ) -> None:
        self._has_failed = False
        amounts = written or {}
        facets = self._run_facets() | dict(run_facets or {})
        if self._progress is not None and amounts:
            facets["wal2lake_progress"] = _progress(self._progress)
        inputs: list[Dataset] = [source_dataset(self._database, table) for table in tables]
        in_lake = [table for table in tables if table.location]
        outputs = [lake_dataset(self._database, table, amounts.get(table.id)) for table in in_lake]
        outputs += [topic_dataset(table.topic) for table in tables if table.topic is not None]
        self._send(
            {
                "eventType": kind.value,
                "eventTime": datetime.fromtimestamp(now_us() / 1e6, UTC).isoformat().replace("+00:00", "Z"),
                "producer": PRODUCER,
                "schemaURL": EVENT_SCHEMA,
                "run": {"runId": self.run_id, "facets": facets},
                "job": {"namespace": self._job.namespace, "name": self._job.name, "facets": self._job.facets()},
                "inputs": inputs,
                "outputs": outputs,
            }
        )

    def _run_facets(self) -> dict[str, Facet]:
        return {
            "processing_engine": facet(
                "ProcessingEngineRunFacet", name=_NAME, version=__version__, openlineageAdapterVersion=__version__
            ),
            "debezium_config": own_facet(DEBEZIUM_CONFIG, configs=list(self._job.settings)),
        }


def _progress(progress: MergedUpTo) -> Facet:
    schema = f"{PRODUCER}:progress"
    return own_facet(schema, lsn=progress.lsn, lagBytes=progress.lag_bytes, lagSeconds=round(progress.lag_seconds, 3))


def _time_ordered_id() -> uuid.UUID:
    """A UUID of version 7: later runs have greater ids."""
    octets = bytearray((now_us() // 1000).to_bytes(6, "big") + uuid.uuid4().bytes[6:])
    octets[6] = octets[6] & 0x0F | 0x70
    return uuid.UUID(bytes=bytes(octets))

"""Replays, resumes and re-reads of single tables that another process requests of a running stream.

    wal2lake replay, snapshot ─▶ signal in the state folder ─▶ between two rounds: resume, re-read
                            answer file ◀─ the round that merges the table's changes ◀┘

They are signals of two types, ``replay-table`` and ``reread-table``, with a table's name in their data. A table is
resumed, or recorded as to be re-read, before its signal is removed: a run that is killed has lost the answer alone,
and what was to be done with changes in quarantine. The process that asks has made the file of its answer, and removes
it when it waits no longer: without one nothing is written.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cdc_core.engine.reports import RoundReport
from cdc_core.engine.round.lake_sink import LakeSink
from cdc_core.errors import CdcError, TableError
from cdc_core.lake import QuarantineReport, Replay
from cdc_core.schema import TableId
from cdc_core.snapshot import REPLAY_TABLE, REREAD_TABLE, Signal, SnapshotReport

_log = logging.getLogger(__name__)

_ID = re.compile(r"[0-9a-f-]{36}")


@dataclass(slots=True)
class _Request:
    """One request under way. ``reads``: the table is read before anything else; ``snapshot`` is its report.

    ``is_merged``: what is merged before changes in quarantine are discarded.
    """

    id: str
    table: TableId
    replay: Replay | None
    reads: bool
    snapshot: SnapshotReport | None = None
    events: int = 0
    quarantine: QuarantineReport = field(default_factory=QuarantineReport)
    is_merged: bool = False

    @property
    def next_replay(self) -> Replay | None:
        """The replay of its next round."""
        is_first = self.replay is not None and self.replay.drop and not self.is_merged
        return Replay(before_drop=True) if is_first else self.replay


class TableRequests:
    """A ``SignalAction`` for both types. For the thread that reads the stream.

    ``answers`` is the folder of the answers' files.
    """

    def __init__(self, lake: LakeSink, answers: Path) -> None:
        self._lake = lake
        self._answers = answers
        self._requests: dict[TableId, _Request] = {}

    @property
    def actions(self) -> dict[str, TableRequests]:
        """Itself, by the types of its signals."""
        return dict.fromkeys((REPLAY_TABLE, REREAD_TABLE), self)

    @property
    def are_under_way(self) -> bool:
        """Whether a request was taken and is not finished."""
        return bool(self._requests)

    @property
    def due(self) -> dict[TableId, Replay]:
        """The replays for the next round."""
        return {
            request.table: request.next_replay
            for request in self._requests.values()
            if request.next_replay is not None and not request.reads and self._lake.can_merge(request.table)
        }

    def arrived(self, signal: Signal) -> None:
        """Resume the table of a signal, or record that it is to be read."""
        try:
            table, replay = _asked(signal)
            if table in self._requests:
                raise TableError(f"Another request for {table} is being processed.", "Wait for its end.", str(table))
            reads = self._lake.begin_again(table, reads=replay is None)
        except CdcError as error:
            self._answer(signal.id, _refused(error.message, error.remedy))
            return
        self._requests[table] = _Request(signal.id, table, replay, reads)

    def look(self) -> None:
        """Note tables that were read, or that could not be."""
        for request in [request for request in self._requests.values() if request.reads]:
            if request.table in self._lake.unmerged and not self._lake.is_to_be_read(request.table):
                self._end(request, _refused(self._lake.unmerged[request.table], ""))
            elif not self._lake.is_to_be_read(request.table):
                request.reads, request.snapshot = False, self._lake.last_read(request.table)
                if request.replay is None:
                    self._end(request, _done(request))

    def note(self, report: RoundReport, replays: Mapping[TableId, Replay]) -> None:
        """Note a round, which was asked for ``replays``."""
        for table in replays:
            request, outcome = self._requests[table], report.replays.get(table)
            request.events += sum(merge.events for merge in report.merges if merge.table == table)
            if table in report.failed:
                self._end(request, _refused(report.failed[table], ""))
            elif outcome is not None:
                before = request.quarantine
                request.quarantine = QuarantineReport(
                    outcome.waiting, before.replayed + outcome.replayed, before.dropped + outcome.dropped
                )
                if not report.has_rest and replays[table].before_drop:
                    request.is_merged = True
                elif not report.has_rest:
                    self._end(request, _done(request))

    def close(self) -> None:
        """Answer that the run ends."""
        for request in list(self._requests.values()):
            self._end(
                request,
                _refused(f"The run ended before the request for {request.table} was finished.", "Run it again."),
            )

    def _end(self, request: _Request, answer: dict[str, Any]) -> None:
        del self._requests[request.table]
        self._answer(request.id, answer)

    def _answer(self, request: str, answer: dict[str, Any]) -> None:
        if "error" in answer:
            _log.warning("A request is not processed: %s", answer["error"])
        if _ID.fullmatch(request) is None:  # not one that waits for an answer, or another's path
            return
        try:
            with answer_file(self._answers, request).open("r+", encoding="utf-8") as file:
                file.write(json.dumps(answer) + "\n")
        except OSError:
            _log.debug("Nobody waits for the answer to request %s.", request)


def answer_file(folder: Path, request: str) -> Path:
    """The file of the answer to a request."""
    return folder / f"answer-{request}.json"


def _asked(signal: Signal) -> tuple[TableId, Replay | None]:
    """Return the table of a signal, and its replay; None for a re-read. Raises TableError."""
    data = signal.data
    try:
        table = TableId.of_text(str(data["table"]))
    except (KeyError, ValueError):
        raise TableError("A request names no table.", 'Its data has "table": "schema.table".', "") from None
    if signal.type == REREAD_TABLE:
        return table, None
    accept = data.get("accept") or ()
    accepted = tuple(map(str, accept)) if isinstance(accept, list | tuple) else (str(accept),)
    return table, Replay(accepted, data.get("accept-all") is True, data.get("drop") is True)


def _refused(error: str, remedy: str) -> dict[str, Any]:
    return {"error": error, "remedy": remedy}


def _done(request: _Request) -> dict[str, Any]:
    read = (
        None
        if request.snapshot is None
        else asdict(request.snapshot) | {"table": None, "lsn": int(request.snapshot.lsn)}
    )
    return {"events": request.events, "snapshot": read, "quarantine": asdict(request.quarantine)}

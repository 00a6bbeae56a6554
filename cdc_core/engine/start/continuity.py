"""Proves at each start, and on each replication connection, that the stream continues what the lake holds.

The rules, and the order of steps that a kill cannot break, are in ``engine/reading/continuity``. Here they are
applied: the record and what the tables hold are read from the lake, the facts from the server. Nothing is changed; an
operation goes on, or begins an epoch, by ``recorded_stream``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.reading.continuity import Mismatch, judge, record_lost
from cdc_core.engine.reports import StreamStatus
from cdc_core.engine.start.held import Held, held_by
from cdc_core.errors import CdcError, TransientError
from cdc_core.lake import StreamLog, StreamRecord
from cdc_core.lsn import Lsn
from cdc_core.postgres import Finding, StreamFacts, bad, connect, doubtful, good, stream_facts
from cdc_core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Continuity:
    """The proof for one operation on a lake. ``mismatch`` is None if the stream continues what the lake holds.

    ``record`` is what ``log`` had when it was read, None for a lake without one. ``is_new``: nothing is recorded and
    held yet, or an epoch began whose slot was not seen: the stream begins here.
    """

    log: StreamLog
    record: StreamRecord | None
    facts: StreamFacts
    held: Held
    is_new: bool
    mismatch: Mismatch | None

    @classmethod
    def of(cls, lake: ConnectorLake, tables: Sequence[TableSchema]) -> Continuity:
        """Read the record, the tables' positions and the server. Changes nothing. Raises CdcError."""
        log = lake.stream_log
        record = log.read()
        content = held_by(lake, record, [table.id for table in tables])
        with connect(lake.postgres, replication=True) as replication:
            facts = stream_facts(replication, lake.slot)
        mismatch = record_lost(0 if record is None else record.epoch, content.epoch, lake.paths.stream)
        has_begun = bool(content.tables) if record is None else bool(record.confirmed)
        is_new = mismatch is None and not has_begun
        if mismatch is None and not is_new:
            mismatch = compare(lake, record, facts, content)
        return cls(log, record, facts, content, is_new, mismatch)

    @property
    def is_empty(self) -> bool:
        """Whether no table of the lake has a position."""
        return not self.held.tables

    def require(self) -> None:
        """Raise the mismatch, if there is one."""
        if self.mismatch is not None:
            raise self.mismatch.error()


def compare(lake: ConnectorLake, record: StreamRecord | None, facts: StreamFacts, content: Held) -> Mismatch | None:
    """Return why a connection's stream does not continue the record and what is held; None if it does.

    Raises TransientError if the server is a standby that has not received all of it yet.
    """
    if record is None:
        # Before there was a record, the slot's own position was all that is known.
        record = replace(present_stream(lake, facts), confirmed=facts.slot.confirmed_lsn or Lsn(1))
    mismatch = judge(record, facts, content.lsn, lake.slot)
    reach = max(record.confirmed, content.lsn)
    if mismatch is None and facts.is_standby and facts.flushed < reach:
        raise TransientError(
            f"The standby has received WAL up to {facts.flushed}, but the lake holds changes up to {reach}.",
            "Run again when the standby has caught up.",
        )
    return mismatch


def present_stream(lake: ConnectorLake, facts: StreamFacts) -> StreamRecord:
    """Return the record of the stream as the server has it now, in the first epoch and with nothing confirmed."""
    options = lake.postgres
    return StreamRecord(
        facts.system_id,
        facts.timeline,
        facts.database,
        lake.slot,
        history=facts.history or (),
        database_oid=facts.database_oid,
        asked=repr((options.publication_name, sorted(options.slot_stream_params))),
    )


def stream_status(lake: ConnectorLake, tables: Sequence[TableSchema]) -> StreamStatus | None:
    """Return the recorded stream and whether the server's slot continues it; None for a lake without a record."""
    record = lake.record
    if record is None:
        return None
    mismatch: str | None
    try:
        difference = Continuity.of(lake, tables).mismatch
        mismatch, remedy = ("", "") if difference is None else (difference.message, difference.remedy)
    except CdcError as error:
        mismatch, remedy = None, error.message
    return StreamStatus(
        record.system_id,
        record.timeline,
        record.database,
        record.slot,
        record.confirmed,
        record.epoch,
        record.gap,
        mismatch,
        remedy,
    )


def continuity_finding(lake: ConnectorLake, tables: Sequence[TableSchema]) -> Finding | None:
    """Return whether the slot continues what the lake holds, for ``check``; None if nothing is recorded yet."""
    status = stream_status(lake, tables)
    if status is None:
        return None
    if status.mismatch is None:
        return doubtful("continuity", f"not compared: {status.remedy}", "Correct this and check again.")
    said = f"slot {status.slot} continues the lake, which has confirmed up to {status.confirmed}"
    return bad("continuity", status.mismatch, status.remedy) if status.mismatch else good("continuity", said)

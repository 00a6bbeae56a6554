"""The ranges that an incremental snapshot reads: of the tables that can be read so, as planned, by name or number."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from cdc_core.errors import CdcError, LockedError, SourceError, TableError
from cdc_core.postgres import Source
from cdc_core.schema import TableId, TableSchema
from cdc_core.selection import chosen_tables
from cdc_core.snapshot import Collection, KeyRange, Planned, RangeRead, RangeReads, RangeReport, RangeToRead, ScanStatus

_log = logging.getLogger(__name__)

_PLAN_SECONDS = 600.0
# Each waits for snapshot.lock.timeout.ms.
LOCKED_TRIES = 3


def parsed_range(name: str | TableId | KeyRange) -> tuple[TableId, int | None, str]:
    """Return a table, and a range's number and its plan, None and empty for all and any. Raises TableError."""
    if isinstance(name, TableId):
        return name, None, ""
    if isinstance(name, KeyRange):
        return name.table, name.number, name.plan
    try:
        return *KeyRange.parse(name), ""
    except ValueError as error:
        raise TableError(f"{name!r} does not name a range of a table.", f"Write {error}.", "") from None


def readable_tables(source: Source, captured: list[TableSchema], names: Sequence[TableId] | None) -> list[TableSchema]:
    """Return the tables that can be read in chunks; of those that are named, all. Raises TableError, SourceError."""
    if not source.slot().exists:
        raise SourceError(
            f"Replication slot {source.options.slot_name} does not exist: nothing has been captured yet.",
            "Take the first snapshot (wal2lake run).",
        )
    published = set(source.published())
    if names is None:
        return [table for table in captured if table.row_key and table.id in published]
    chosen = {table.id: table for table in chosen_tables(captured, names)}
    for table in chosen.values():
        if not table.row_key:
            raise TableError(
                f"{table.id} has no key, and an incremental snapshot reads a table in the order of its key.",
                f"Add a primary key, or read the table as a whole: wal2lake snapshot with {table.id}.",
                str(table.id),
            )
        if table.id not in published:
            raise TableError(
                f"{table.id} is not published, so its changes are not in the stream.",
                "Start wal2lake run, which publishes it, or add it to the publication.",
                str(table.id),
            )
    return [chosen[table] for table in dict.fromkeys(names)]


def planned_tables(
    reads: RangeReads, tables: Sequence[TableSchema], tries: int, *, renew: bool = False
) -> tuple[dict[TableId, Planned], dict[TableId, CdcError]]:
    """Return the plan of each table, and the error of each that another session had locked each time."""
    plans, locked = dict[TableId, Planned](), dict[TableId, CdcError]()
    for attempt in range(tries):
        for table in [table for table in tables if table.id not in plans]:
            try:
                plans[table.id] = _planned(reads, table, renew=renew)
                locked.pop(table.id, None)
            except LockedError as error:
                if not attempt:
                    _log.warning("Other tables are read first: %s", error)
                locked[table.id] = error
    return {table.id: plans[table.id] for table in tables if table.id in plans}, locked


def _planned(reads: RangeReads, table: TableSchema, *, renew: bool = False) -> Planned:
    planned = reads.plan(Collection(table.id), renew=renew).result(_PLAN_SECONDS)
    if isinstance(planned, ScanStatus):
        raise unreadable(table.id, planned)
    return planned


def unreadable(table: TableId, status: ScanStatus) -> TableError:
    """Return the error of a table that cannot be read in chunks any more."""
    if status is ScanStatus.UNKNOWN_SCHEMA:
        return TableError(f"{table} no longer exists in the source.", "Check the name.", str(table))
    return TableError(f"{table} has no key any more.", "Add a primary key.", str(table))


def key_ranges(planned: Planned) -> list[KeyRange]:
    """Return the ranges of a plan, in the order of their numbers."""
    plan = planned.plan
    rows = None if plan.rows is None else plan.rows // plan.count
    return [KeyRange(plan.table, number, plan.count, rows, plan.id) for number in range(1, plan.count + 1)]


@dataclass(slots=True)
class RequestedRange:
    """One range under way: ``rows`` were read in ``seconds``; ``reading`` is its reading, None before and after."""

    key: KeyRange
    wanted: RangeToRead
    reading: Future[RangeRead] | None = None
    rows: int = 0
    is_staged: bool = False
    tries: int = 0
    seconds: float = 0.0
    retry_at: float = 0.0
    report: RangeReport | None = None


def requested_ranges(
    plans: dict[TableId, Planned], asked: Sequence[tuple[TableId, int | None, str]]
) -> list[RequestedRange]:
    """Return the ranges that are asked for, each once, in their order. Raises TableError for one that is unknown."""
    request, by_number = str(uuid.uuid4()), dict[tuple[TableId, int], RequestedRange]()
    for table, number, plan_id in asked:
        planned = plans[table]
        plan, ranges = planned.plan, key_ranges(planned)
        if (number is not None and number > plan.count) or plan_id not in ("", plan.id):
            raise TableError(
                f"{table} is divided into {plan.count} ranges now, and range {number} is not one of them, or another.",
                "Ask for the present ranges (plan_incremental), or for the table as a whole.",
                str(table),
            )
        for key in ranges if number is None else [ranges[number - 1]]:
            after, upto = plan.range(key.number)
            # Numbers of ranges repeat in another table, so each table's are a request.
            to_read = RangeToRead(f"{request}/{table}", key.number, Collection(table), planned.since, after, upto)
            by_number.setdefault((table, key.number), RequestedRange(key, to_read))
    return list(by_number.values())

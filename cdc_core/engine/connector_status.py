"""The status of a connector's lake, as a part of the connector's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.reports import Status, StreamStatus
from cdc_core.engine.start.continuity import stream_status
from cdc_core.engine.status import incremental_status, lake_status, own_table_status
from cdc_core.errors import CdcError
from cdc_core.schema import TableId, TableSchema


def with_lake_status(
    known: Status,
    lake: ConnectorLake,
    tables: Sequence[TableSchema] | None,
    rows: Mapping[TableId, int] | None,
    includes: Callable[[TableId], bool],
) -> Status:
    """Return the status with what the lake has recorded, and the positions of its tables.

    ``tables`` are the captured ones, None if the server could not be queried; ``includes`` says which may be. ``rows``
    are their numbers of rows in the source, None if rows are not counted. What cannot be read is in ``lake_error``.
    """
    problems: list[str] = []
    stream: StreamStatus | None = None
    scope = lake.slot
    try:
        stream, scope = stream_status(lake, tables or ()), lake.scope
    except CdcError as error:
        problems.append(str(error))
    statuses, problem = lake_status(lake.paths, scope, tables, rows or {}, rows is not None, includes)
    return replace(
        known,
        tables=tuple(statuses.values()),
        stream=stream,
        lake_error=" ".join([*problems, *([problem] if problem else [])]),
        own_tables=own_table_status(lake.paths, scope),
        incremental=incremental_status(lake.paths, scope),
    )


def waiting_in_quarantine(lake: ConnectorLake, tables: Sequence[TableSchema]) -> dict[TableId, int]:
    """Return how many changes of tables wait in quarantine, where there are any. Reads the logs of all tables."""
    statuses, _ = lake_status(lake.paths, lake.scope, tables, {}, False, lambda table: False)
    return {table: status.quarantined for table, status in statuses.items() if status.quarantined}

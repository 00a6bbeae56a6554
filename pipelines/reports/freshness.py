"""Freshness policies of lake tables, and materializations of tables that are up to date without changes.

Dagster evaluates freshness by a table's latest materialization, and a run materializes only tables with changes. A
table whose source does not change would become stale although it is up to date; therefore the sensor that checks the
slot logs a materialization of it, without a run, as long as no change of it can be pending.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import dagster as dg

from cdc_core.engine import TableStatus
from cdc_core.observe import FreshnessWindow
from cdc_core.schema import TableId
from cdc_core.selection import compile_pattern
from wal2lake.pipelines.connector.keys import lake_key
from wal2lake.pipelines.connector.site import Site, SlotFacts
from wal2lake.pipelines.reports.provenance import DATA_VERSION, lake_tags

# A table is materialized again well before its window ends; the sensor checks it once a minute.
_PART = 0.5


def freshness_policy(site: Site, table: TableId) -> dg.FreshnessPolicy | None:
    """The policy of a lake table; None if no pattern matches it."""
    window = window_of(site, table)
    if window is None:
        return None
    warn = None if window.warn_seconds is None else timedelta(seconds=window.warn_seconds)
    return dg.FreshnessPolicy.time_window(timedelta(seconds=window.fail_seconds), warn)


def window_of(site: Site, table: TableId) -> FreshnessWindow | None:
    """The first entry of ``wal2lake.dagster.freshness`` that matches a table."""
    return next((window for window in site.freshness if compile_pattern(window.pattern).fullmatch(str(table))), None)


def up_to_date(instance: dg.DagsterInstance, site: Site, backlog: SlotFacts) -> list[dg.AssetMaterialization]:
    """Materializations of tables with a policy that had none for half their window and are up to date.

    Queries the connector's status only if there is such a table. Raises CdcError.
    """
    due = dict(_due(instance, site, backlog))
    if not due:
        return []
    statuses = [status for status in site.open().status().tables if status.table in due and is_current(status)]
    return [
        dg.AssetMaterialization(
            lake_key(site, status.table),
            description=_told(backlog),
            metadata={"lsn": str(status.lake_lsn or status.snapshot_lsn)},
            # The same version as before: downstream assets do not become out of date.
            tags=lake_tags(site, status.table, due[status.table] or str(status.lake_lsn or status.snapshot_lsn)),
        )
        for status in statuses
    ]


def _told(backlog: SlotFacts) -> str:
    if not backlog.has_changes:
        return "Up to date: the slot has no backlog."
    return f"Up to date as of {backlog.lag_seconds or 0.0:,.0f} s ago, according to the lag of the slot."


def _due(instance: dg.DagsterInstance, site: Site, backlog: SlotFacts) -> Iterator[tuple[TableId, str]]:
    """The tables to be materialized again, with their last version (empty for none)."""
    windows = {table.id: window for table in site.tables if (window := window_of(site, table.id)) is not None}
    if not windows or not backlog.slot_exists or backlog.wal_status == "lost":
        return
    records = instance.get_asset_records([lake_key(site, table) for table in windows])
    last = {record.asset_entry.asset_key: record.asset_entry for record in records}
    for table, window in windows.items():
        seconds = _PART * (window.warn_seconds or window.fail_seconds)
        if not _is_followed(backlog, seconds):
            continue
        entry = last.get(lake_key(site, table))
        event = entry.last_materialization if entry is not None else None
        if event is None or time.time() - event.timestamp >= seconds:
            made = event.asset_materialization if event is not None else None
            yield table, (made.tags or {}).get(DATA_VERSION, "") if made is not None else ""


def _is_followed(backlog: SlotFacts, seconds: float) -> bool:
    """Whether the slot has no backlog, or an active run is less than ``seconds`` behind."""
    if not backlog.has_changes:
        return True
    return backlog.slot_active and backlog.lag_seconds is not None and backlog.lag_seconds < seconds


def is_current(status: TableStatus) -> bool:
    """Whether all changes in the changelog are merged into the lake table."""
    if status.paused is not None or status.snapshot_lsn is None:
        return False
    return status.changelog_lsn is None or status.changelog_lsn <= (status.lake_lsn or status.snapshot_lsn)

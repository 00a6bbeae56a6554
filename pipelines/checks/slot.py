"""Slot health as an asset check: lag in bytes, what the server says of the slot's WAL, whether somebody reads it."""

from __future__ import annotations

import dagster as dg

from cdc_core.engine.reports import Status
from cdc_core.errors import CdcError
from pipelines.keys import changes_key
from pipelines.metadata import Metadata
from pipelines.site import Site

SLOT_HEALTH = "slot_health"
LAG_WARN_BYTES = 1024**3


def slot_health_check(site: Site) -> dg.AssetChecksDefinition:
    """The check of the connector's slot; it asks the server and starts no Spark."""

    @dg.asset_check(
        asset=changes_key(site),
        name=SLOT_HEALTH,
        description=f"The slot {site.slot} exists, the server keeps its WAL, and the lag is below 1 GiB.",
    )
    def slot_health() -> dg.AssetCheckResult:
        try:
            return judge(site.open().status())
        except CdcError as error:
            return dg.AssetCheckResult(passed=False, description=str(error), metadata={"error": str(error)})

    return slot_health


def judge(status: Status) -> dg.AssetCheckResult:
    """Fails for a slot that is missing or has lost WAL; warns of much lag and of WAL soon to be removed."""
    found: Metadata = {
        "slot_exists": status.slot_exists,
        "slot_active": status.slot_active,
        "wal_status": status.wal_status or "unknown",
        "lag_bytes": status.lag_bytes if status.lag_bytes is not None else 0,
        "confirmed_lsn": str(status.confirmed_lsn) if status.confirmed_lsn is not None else "",
        "restart_lsn": str(status.restart_lsn) if status.restart_lsn is not None else "",
    }
    severity = dg.AssetCheckSeverity.ERROR
    problem = ""
    if not status.slot_exists:
        problem = f"The slot {status.slot} does not exist; take a snapshot to make it."
    elif status.wal_status == "lost":
        problem = f"The slot {status.slot} has lost WAL it needs; drop it and take a new snapshot."
    elif status.wal_status == "unreserved":
        problem = "The server may remove WAL that the slot needs at its next checkpoint; let the stream run."
        severity = dg.AssetCheckSeverity.WARN
    elif (status.lag_bytes or 0) > LAG_WARN_BYTES:
        problem = f"The server keeps {status.lag_bytes:,} bytes of WAL for the slot."
        severity = dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(passed=not problem, severity=severity, description=problem, metadata=found)

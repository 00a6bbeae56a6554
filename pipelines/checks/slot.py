"""Slot health as an asset check: lag in bytes, what the server says of the slot's WAL, whether somebody reads it."""

from __future__ import annotations

import dagster as dg

from cdc_core.errors import CdcError
from pipelines.keys import changes_key
from pipelines.metadata import Metadata
from pipelines.site import Site, SlotNews

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
            return judge(site, site.open().pending())
        except CdcError as error:
            return dg.AssetCheckResult(passed=False, description=str(error), metadata={"error": str(error)})

    return slot_health


def judge(site: Site, news: SlotNews) -> dg.AssetCheckResult:
    """Fails for a slot that is missing or has lost WAL; warns of much lag and of WAL soon to be removed."""
    wal_status: str | None = getattr(news, "wal_status", None)
    lag = news.lag_bytes or 0
    found: Metadata = {
        "slot_exists": news.slot_exists,
        "slot_active": news.slot_active,
        "wal_status": wal_status or "unknown",
        "lag_bytes": lag,
        "confirmed_lsn": str(news.confirmed_lsn) if news.confirmed_lsn is not None else "",
    }
    severity = dg.AssetCheckSeverity.ERROR
    problem = ""
    if not news.slot_exists:
        problem = f"The slot {site.slot} does not exist; take a snapshot to make it."
    elif wal_status == "lost":
        problem = f"The slot {site.slot} has lost WAL it needs; drop it and take a new snapshot."
    elif wal_status == "unreserved":
        problem = "The server may remove WAL that the slot needs at its next checkpoint; let the stream run."
        severity = dg.AssetCheckSeverity.WARN
    elif lag > LAG_WARN_BYTES:
        problem = f"The server keeps {lag:,} bytes of WAL for the slot."
        severity = dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(passed=not problem, severity=severity, description=problem, metadata=found)

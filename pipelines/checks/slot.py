"""Slot health as asset checks: lag in bytes and seconds, retained WAL, activity."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Iterator

import dagster as dg

from cdc_core.errors import CdcError
from wal2lake.pipelines.connector.keys import changes_key
from wal2lake.pipelines.connector.site import Site, SlotFacts
from wal2lake.pipelines.reports.metadata import Metadata

SLOT_HEALTH = "slot_health"
SLOT_LAG = "slot_lag"
SLOT_ACTIVE = "slot_active"
# Interval at which unchanged checks are reported.
SAME_SECONDS = 300.0
LAG_WARN_BYTES = 1024**3
LAG_WARN_SECONDS = 600.0
INACTIVE_WARN_SECONDS = 600.0
# Before PostgreSQL 17 a server does not report since when a slot is inactive: this lag indicates a long time.
INACTIVE_WARN_BYTES = 256 * 1024**2


def check_keys(site: Site) -> list[dg.AssetCheckKey]:
    """The checks of the connector's slot."""
    return [dg.AssetCheckKey(changes_key(site), name) for name in (SLOT_HEALTH, SLOT_LAG, SLOT_ACTIVE)]


def slot_health_check(site: Site) -> dg.AssetChecksDefinition:
    """The checks of the connector's slot; they query the server and do not start Spark."""
    health, lag, active = check_keys(site)

    @dg.multi_asset_check(
        name=f"{site.safe_name}_slot",
        can_subset=True,
        specs=[
            _spec(
                health,
                f"The replication slot {site.slot} exists, the server retains its WAL, and its lag is below 1 GiB.",
            ),
            _spec(lag, f"The lag of the replication slot {site.slot} is below 1 GiB and below ten minutes."),
            _spec(active, f"The replication slot {site.slot} is active, or has little backlog."),
        ],
    )
    def slot_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected_keys = context.selected_asset_check_keys
        try:
            for result, key in zip(results(site, site.open().pending()), check_keys(site), strict=True):
                if key in selected_keys:
                    yield result
        except CdcError as error:
            for key in selected_keys:
                yield dg.AssetCheckResult(
                    asset_key=key.asset_key,
                    check_name=key.name,
                    passed=False,
                    description=str(error),
                    metadata={"error": str(error)},
                )

    return slot_checks


def results(site: Site, backlog: SlotFacts) -> list[dg.AssetCheckResult]:
    """Results of all checks of the slot."""
    judged = (judge(site, backlog), judge_lag(site, backlog), judge_active(site, backlog))
    return [
        dg.AssetCheckResult(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
        )
        for key, result in zip(check_keys(site), judged, strict=True)
    ]


def facts(backlog: SlotFacts) -> Metadata:
    """The state of the slot as metadata, for plots; unknown values are omitted."""
    state: Metadata = {"lag_bytes": backlog.lag_bytes or 0, "wal_status": backlog.wal_status or "unknown"}
    if backlog.lag_seconds is not None:
        state["lag_seconds"] = round(backlog.lag_seconds, 3)
    if backlog.inactive_seconds is not None:
        state["inactive_seconds"] = round(backlog.inactive_seconds, 3)
    return state


def judge_lag(site: Site, backlog: SlotFacts) -> dg.AssetCheckResult:
    """Warns if the lag in bytes or in seconds is too large."""
    problem = ""
    if (backlog.lag_bytes or 0) > LAG_WARN_BYTES:
        problem = f"The server retains {backlog.lag_bytes:,} bytes of WAL for the slot {site.slot}."
    elif (backlog.lag_seconds or 0.0) > LAG_WARN_SECONDS:
        problem = f"The confirmed position of the slot {site.slot} is {backlog.lag_seconds:,.0f} s old."
    return dg.AssetCheckResult(
        passed=not problem, severity=dg.AssetCheckSeverity.WARN, description=problem, metadata=facts(backlog)
    )


def judge_active(site: Site, backlog: SlotFacts) -> dg.AssetCheckResult:
    """Warns if the slot has a backlog and is inactive."""
    waiting = backlog.lag_bytes or 0
    is_idle = backlog.slot_exists and not (backlog.slot_active or backlog.is_claimed)
    seconds = backlog.inactive_seconds
    is_long = waiting > INACTIVE_WARN_BYTES if seconds is None else waiting > 0 and seconds > INACTIVE_WARN_SECONDS
    problem = ""
    if is_idle and is_long:
        since = "" if seconds is None else f" for {seconds:,.0f} s"
        problem = (
            f"The slot {site.slot} has been inactive{since} with a backlog of {waiting:,} bytes of WAL. "
            "Start the stream."
        )
    return dg.AssetCheckResult(
        passed=not problem,
        severity=dg.AssetCheckSeverity.WARN,
        description=problem,
        metadata={**facts(backlog), "slot_active": backlog.slot_active},
    )


def judge(site: Site, backlog: SlotFacts) -> dg.AssetCheckResult:
    """Fails if the slot does not exist or is lost; warns of a large lag and of WAL that may be removed soon."""
    wal_status = backlog.wal_status
    lag = backlog.lag_bytes or 0
    state: Metadata = {
        "slot_exists": backlog.slot_exists,
        "slot_active": backlog.slot_active,
        "wal_status": wal_status or "unknown",
        "lag_bytes": lag,
        "confirmed_lsn": str(backlog.confirmed_lsn) if backlog.confirmed_lsn is not None else "",
    }
    severity = dg.AssetCheckSeverity.ERROR
    problem = ""
    if not backlog.slot_exists:
        problem = f"The slot {site.slot} does not exist; take a snapshot to create it."
    elif wal_status == "lost":
        problem = f"The slot {site.slot} is lost: WAL that it needs was removed. Drop it and take a new snapshot."
    elif wal_status == "unreserved":
        problem = "The server may remove WAL that the slot needs at the next checkpoint; start the stream."
        severity = dg.AssetCheckSeverity.WARN
    elif lag > LAG_WARN_BYTES:
        problem = f"The server retains {lag:,} bytes of WAL for the slot."
        severity = dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(passed=not problem, severity=severity, description=problem, metadata=state)


def _spec(key: dg.AssetCheckKey, description: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(key.name, asset=key.asset_key, description=description)

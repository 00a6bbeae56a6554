"""The check of changes: whether Great Expectations lets them into the lake, upstream of the lake tables."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Iterable, Iterator

import dagster as dg

from cdc_core.quality import CheckReport
from wal2lake.pipelines.checks.tables import REPORTED_BY, SUITE
from wal2lake.pipelines.connector.keys import changes_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.step.failure import reported

EXPECTATIONS = "expectations"
_DESCRIPTION = (
    "Passes while no expectation of severity critical fails. Great Expectations judges each slice of changes before it "
    "is merged. A failure that keeps all changes of a table out of the lake is an error, refused rows are a warning; "
    "executed separately, the check names the tables that wait."
)


def expectations_key(site: Site) -> dg.AssetCheckKey:
    """The check of the connector's changes."""
    return dg.AssetCheckKey(changes_key(site), EXPECTATIONS)


def changes_check(site: Site) -> dg.AssetChecksDefinition:
    """The check as a separate step; streaming runs report it while they run."""
    key = expectations_key(site)

    @dg.multi_asset_check(
        name=f"{site.safe_name}_expectations",
        specs=[dg.AssetCheckSpec(key.name, asset=key.asset_key, description=_DESCRIPTION, blocking=True)],
        can_subset=True,
    )
    def expectations(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with reported():
            statuses = site.open().status().tables
        kept = {
            str(status.table): status.paused.reason
            for status in statuses
            if status.paused is not None and status.paused.by_rules
        }
        refused = {str(status.table): status.quarantined for status in statuses if status.quarantined}
        waiting = [f"{name}: {count} changes wait in quarantine" for name, count in refused.items()]
        yield dg.AssetCheckResult(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=not kept and not refused,
            severity=dg.AssetCheckSeverity.ERROR if kept else dg.AssetCheckSeverity.WARN,
            description=" ".join(kept.values()) or ", ".join(waiting),
            metadata={"paused_tables": len(kept), "waiting": sum(refused.values())},
        )

    return expectations


def changes_result(site: Site, judged: Iterable[CheckReport], batches: int, failed_batches: int) -> dg.AssetCheckResult:
    """What the expectations decided on the changes of this run."""
    failed = [
        (check, rule) for check in judged for rule in check.rules if not rule.success and rule.severity == "error"
    ]
    stops = any(rule.over_slice for _, rule in failed)
    # The check of each of these tables fails for the same reason.
    is_reported = bool(failed) and {check.table for check, _ in failed} <= {table.id for table in site.tables}
    said = [f"{check.table}: {rule.name.removeprefix('user:')}, {rule.said}" for check, rule in failed]
    return dg.AssetCheckResult(
        asset_key=changes_key(site),
        check_name=EXPECTATIONS,
        passed=not failed,
        severity=dg.AssetCheckSeverity.ERROR if stops else dg.AssetCheckSeverity.WARN,
        description="; ".join(said),
        metadata={
            "batches": batches,
            "failed_batches": failed_batches,
            "failed": metadata.failures(failed),
            **({REPORTED_BY: SUITE} if is_reported else {}),
        },
    )

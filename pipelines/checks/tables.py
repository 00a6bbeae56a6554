"""The blocking checks of a lake table: made by the engine before each merge, reported here."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from cdc_core.schema.table import TableId
from pipelines import metadata
from pipelines.keys import lake_key
from pipelines.site import Site
from pipelines.stream_tally import CheckTotals

MERGED = "merged"
RULES = "rules"
SUITE = "great_expectations"
QUARANTINE = "quarantine"

_DESCRIPTIONS = {
    MERGED: "The table followed the round to its LSN.",
    RULES: "No change failed a rule of severity error.",
    SUITE: "The Great Expectations suite on each batch's summary succeeded.",
    QUARANTINE: "No change was put into the quarantine table.",
}


def check_specs(site: Site, table: TableId) -> list[dg.AssetCheckSpec]:
    """The checks of one lake table."""
    return [
        dg.AssetCheckSpec(name, asset=lake_key(site, table), description=text, blocking=True)
        for name, text in _DESCRIPTIONS.items()
    ]


def check_results(
    site: Site, table: TableId, checks: CheckTotals, error: str | None, paused: metadata.Metadata | None = None
) -> Iterator[dg.AssetCheckResult]:
    """One result a check over the run so far.

    ``error`` is why the table stands still, None when it does not; ``paused`` tells more of one that is paused.
    """
    key = lake_key(site, table)
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=MERGED,
        passed=error is None,
        description=error or "",
        metadata={"error": error or "", **(paused or {})},
    )
    if not checks.checks:
        return
    failed = checks.failed_rules(errors=True)
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=RULES,
        passed=not failed,
        description=f"failed: {', '.join(failed)}" if failed else "",
        metadata={
            "rules": metadata.rules(checks),
            "rows": checks.rows,
            "warnings": ", ".join(checks.failed_rules(errors=False)),
        },
    )
    yield dg.AssetCheckResult(
        asset_key=key, check_name=SUITE, passed=not checks.failed_checks, metadata=_suite_metadata(checks)
    )
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=QUARANTINE,
        passed=not checks.quarantined,
        metadata={"quarantined": checks.quarantined},
    )


def _suite_metadata(checks: CheckTotals) -> metadata.Metadata:
    """Counts, and the validation result itself: the last failing one, else the last."""
    found: metadata.Metadata = {"batches": checks.checks, "failed_batches": checks.failed_checks}
    if checks.validation_json:
        found["validation_result"] = dg.MetadataValue.json(_parsed(checks.validation_json))
    return found


def _parsed(text: str) -> dict[str, object]:
    import json

    parsed = json.loads(text)
    return parsed if isinstance(parsed, dict) else {"result": parsed}

"""The blocking checks of a lake table: made by the engine before each merge, reported here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from cdc_core.engine.reports import CheckReport
from cdc_core.schema.table import TableId
from pipelines import metadata
from pipelines.keys import lake_key
from pipelines.site import Site

MERGED = "merged"
RULES = "rules"
SUITE = "great_expectations"
QUARANTINE = "quarantine"

_DESCRIPTIONS = {
    MERGED: "The table followed the round to its LSN.",
    RULES: "No change failed a rule of severity error.",
    SUITE: "The Great Expectations suite on the batch's summary succeeded.",
    QUARANTINE: "No change was put into the quarantine table.",
}


def check_specs(site: Site, table: TableId) -> list[dg.AssetCheckSpec]:
    """The checks of one lake table."""
    return [
        dg.AssetCheckSpec(name, asset=lake_key(site, table), description=text, blocking=True)
        for name, text in _DESCRIPTIONS.items()
    ]


def check_results(
    site: Site, table: TableId, checks: Sequence[CheckReport], error: str | None
) -> Iterator[dg.AssetCheckResult]:
    """One result a check over a run. ``error`` is why the table stands still, None when it does not."""
    key = lake_key(site, table)
    yield dg.AssetCheckResult(
        asset_key=key, check_name=MERGED, passed=error is None, description=error or "", metadata={"error": error or ""}
    )
    if not checks:
        return
    failed = {rule.name for check in checks for rule in check.rules if rule.severity == "error" and rule.failed}
    warned = {rule.name for check in checks for rule in check.rules if rule.severity != "error" and rule.failed}
    quarantined = sum(check.quarantined for check in checks)
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=RULES,
        passed=not failed,
        description=f"failed: {', '.join(sorted(failed))}" if failed else "",
        metadata={
            "rules": metadata.rules(checks),
            "rows": sum(check.rows for check in checks),
            "warnings": ", ".join(sorted(warned)),
        },
    )
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=SUITE,
        passed=all(check.suite_success for check in checks),
        metadata=_suite_metadata(checks),
    )
    yield dg.AssetCheckResult(
        asset_key=key, check_name=QUARANTINE, passed=quarantined == 0, metadata={"quarantined": quarantined}
    )


def _suite_metadata(checks: Sequence[CheckReport]) -> metadata.Metadata:
    """Counts, and the validation result itself: the last failing one, else the last."""
    shown = next((check for check in reversed(checks) if not check.suite_success), checks[-1])
    found: metadata.Metadata = {
        "validations": len(checks),
        "failed_validations": sum(not check.suite_success for check in checks),
    }
    validation = getattr(shown, "validation_json", "")
    if validation:
        found["validation_result"] = dg.MetadataValue.json(_parsed(validation))
    return found


def _parsed(text: str) -> dict[str, object]:
    import json

    parsed = json.loads(text)
    return parsed if isinstance(parsed, dict) else {"result": parsed}

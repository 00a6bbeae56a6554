"""The checks of a lake table: evaluated by the engine before each merge, reported here."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from cdc_core.schema.table import TableId
from pipelines.connector.keys import lake_key
from pipelines.connector.site import Site
from pipelines.reports import metadata
from pipelines.reports.stream_tally import CheckTotals

MERGED = "merged"
RULES = "rules"
SUITE = "great_expectations"
QUARANTINE = "quarantine"

_DESCRIPTIONS = {
    MERGED: "Passes while the table is merged up to each round's LSN.",
    RULES: "Passes while no change fails a rule of severity error.",
    SUITE: "Passes while the Great Expectations suite on each batch's summary succeeds.",
    QUARANTINE: "Passes while no change is quarantined, and none is in the quarantine table.",
}


def check_specs(site: Site, table: TableId) -> list[dg.AssetCheckSpec]:
    """The checks of one lake table."""
    return [
        dg.AssetCheckSpec(name, asset=lake_key(site, table), description=text, blocking=True)
        for name, text in _DESCRIPTIONS.items()
    ]


def check_results(
    site: Site,
    table: TableId,
    checks: CheckTotals,
    error: str | None,
    paused: metadata.Metadata | None = None,
    places: metadata.Metadata | None = None,
) -> Iterator[dg.AssetCheckResult]:
    """One result per check for the run so far.

    ``error`` is the reason why the table is not merged, None if it is; ``paused`` has metadata of a paused table.
    ``places`` has the paths of the quarantine table and the data docs, for failed checks.
    """
    key, where = lake_key(site, table), places or {}
    yield merged_result(site, table, error, paused)
    if not checks.checks:
        return
    failed = checks.failed_rules(errors=True)
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=RULES,
        passed=not failed,
        description=_failures(checks, failed),
        metadata={
            "rules": metadata.rules(checks),
            "rows": checks.rows,
            "warnings": ", ".join(checks.failed_rules(errors=False)),
            **(where if failed else {}),
        },
    )
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=SUITE,
        passed=not checks.failed_checks,
        metadata=_suite_metadata(checks) | (where if checks.failed_checks else {}),
    )
    yield quarantine_result(site, table, checks.waiting, checks.quarantined, where)


def merged_result(
    site: Site, table: TableId, error: str | None, paused: metadata.Metadata | None = None
) -> dg.AssetCheckResult:
    """The result of ``merged``: ``error`` and ``paused`` as in ``check_results``."""
    return dg.AssetCheckResult(
        asset_key=lake_key(site, table),
        check_name=MERGED,
        passed=error is None,
        description=error or "",
        metadata={"error": error or "", **(paused or {})},
    )


def quarantine_result(
    site: Site, table: TableId, waiting: int, quarantined: int = 0, where: metadata.Metadata | None = None
) -> dg.AssetCheckResult:
    """The result of ``quarantine``: changes in the quarantine table, and how many of them this run wrote there."""
    return dg.AssetCheckResult(
        asset_key=lake_key(site, table),
        check_name=QUARANTINE,
        passed=not (quarantined or waiting),
        # Changes that are in quarantine since an earlier run were reported by that run.
        severity=dg.AssetCheckSeverity.ERROR if quarantined else dg.AssetCheckSeverity.WARN,
        description=_waiting(site, table, waiting),
        metadata={
            "quarantined": quarantined,
            "waiting": waiting,
            **((where or {}) if quarantined or waiting else {}),
        },
    )


def _failures(checks: CheckTotals, names: list[str]) -> str:
    """Return which rules failed, and for how many rows."""
    counts = {name: failed for (name, _, _), (_, failed) in checks.rules.items()}
    return "failed: " + ", ".join(f"{name} ({counts[name]} rows)" for name in names) if names else ""


def _waiting(site: Site, table: TableId, waiting: int) -> str:
    if not waiting:
        return ""
    file = site.file if site.file is not None else "CONFIG"
    return (
        f"{waiting} changes are waiting in the quarantine table. Correct the rows at the source, or "
        f"correct the rule and run: wal2lake replay {file} {table}, or the job {site.safe_name}_replay_job"
    )


def _suite_metadata(checks: CheckTotals) -> metadata.Metadata:
    """Counts, and the validation result itself: the last failed one, else the last."""
    found: metadata.Metadata = {"batches": checks.checks, "failed_batches": checks.failed_checks}
    if checks.validation_json:
        found["validation_result"] = dg.MetadataValue.json(_parsed(checks.validation_json))
    return found


def _parsed(text: str) -> dict[str, object]:
    import json

    parsed = json.loads(text)
    return parsed if isinstance(parsed, dict) else {"result": parsed}

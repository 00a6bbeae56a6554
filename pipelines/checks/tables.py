"""The checks of a lake table: evaluated by the engine before each merge, and by themselves from what is in the lake."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from cdc_core.engine.reports import TableStatus
from cdc_core.observe.options import TABLE_CHECKS, CheckLevel
from cdc_core.schema.table import TableId
from pipelines.connector.keys import lake_key
from pipelines.connector.site import Site
from pipelines.reports import metadata
from pipelines.reports.lake_facts import LakeFacts
from pipelines.reports.stream_tally import CheckTotals
from pipelines.step.failure import reported

MERGED, RULES, SUITE, QUARANTINE = TABLE_CHECKS

_DESCRIPTIONS = {
    MERGED: "Passes while the table is merged up to each round's LSN.",
    RULES: "Passes while no change fails a rule of severity error. A streaming run counts its own changes; executed by "
    "itself, the check counts the changes that wait in the quarantine table.",
    SUITE: "Passes while no expectation of severity critical fails. Great Expectations judges each slice of changes "
    "before it is merged; executed by itself, the check says which expectations keep changes waiting.",
    QUARANTINE: "Passes while no change is quarantined, and none is in the quarantine table.",
}


def check_specs(site: Site, table: TableId) -> list[dg.AssetCheckSpec]:
    """The checks of one lake table."""
    return [
        dg.AssetCheckSpec(name, asset=lake_key(site, table), description=text, blocking=blocks(site, name))
        for name, text in _DESCRIPTIONS.items()
    ]


def check_keys(site: Site) -> list[dg.AssetCheckKey]:
    """The checks of all lake tables."""
    return [dg.AssetCheckKey(lake_key(site, table.id), name) for table in site.tables for name in TABLE_CHECKS]


def blocks(site: Site, name: str) -> bool:
    """Whether assets that depend on a table wait while this check fails."""
    return site.check_levels.get(name) is CheckLevel.BLOCK


def severity(
    site: Site, name: str, usual: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckSeverity:
    """The severity of a failure of the check, as configured; else ``usual``."""
    level = site.check_levels.get(name)
    if level is None:
        return usual
    return dg.AssetCheckSeverity.WARN if level is CheckLevel.WARN else dg.AssetCheckSeverity.ERROR


def table_checks(site: Site) -> dg.AssetChecksDefinition | None:
    """The checks of all lake tables, to be executed by themselves; None if no table is known yet.

    They read the tables' commits and quarantine tables, and use neither the slot nor Spark, so they take seconds and
    the stream goes on. Streaming runs and replays report the same checks as they go.
    """
    if not site.tables:
        return None

    @dg.multi_asset_check(
        name=f"{site.safe_name}_checks",
        specs=[spec for table in site.tables for spec in check_specs(site, table.id)],
        can_subset=True,
    )
    def checked(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        wanted = context.selected_asset_check_keys
        tables = {table.id for table in site.tables if any(key.asset_key == lake_key(site, table.id) for key in wanted)}
        with reported():
            found = {one.table: one for one in site.open().status().tables}
        statuses = [found.get(table) or _missing(table) for table in sorted(tables)]
        for result in state_results(site, statuses):
            if dg.AssetCheckKey(result.asset_key, str(result.check_name)) in wanted:  # type: ignore[arg-type]
                yield result

    return checked


def _missing(table: TableId) -> TableStatus:
    return TableStatus(table, (), None, None, None, None, None, None)


def state_results(site: Site, statuses: Sequence[TableStatus]) -> Iterator[dg.AssetCheckResult]:
    """All checks of tables as they are in the lake now."""
    facts = LakeFacts(site)
    for status in statuses:
        key, table = lake_key(site, status.table), status.table
        where = facts.places(table) if status.quarantined else {}
        yield _merged_now(site, status, facts)
        failed = _failed_rules(status)
        told: metadata.Metadata = {"waiting": status.quarantined, "rules": metadata.reasons(failed), **where}
        yield dg.AssetCheckResult(
            asset_key=key,
            check_name=RULES,
            passed=not failed,
            severity=severity(site, RULES),
            description=_failures(failed),
            metadata=told,
        )
        refused = status.paused.reason if status.paused is not None and status.paused.by_rules else ""
        yield dg.AssetCheckResult(
            asset_key=key,
            check_name=SUITE,
            passed=not failed and not refused,
            severity=severity(site, SUITE),
            description=refused or _failures(failed),
            metadata=told,
        )
        yield quarantine_result(site, table, status.quarantined, where=where)


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
    on_rows = {rule.name: rule.failed for rule in failed if not rule.over_slice}
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=RULES,
        passed=not on_rows,
        severity=severity(site, RULES),
        description=_failures(on_rows),
        metadata={
            "rules": metadata.rules(checks.rules),
            "rows": checks.rows,
            "warnings": ", ".join(rule.name for rule in checks.failed_rules(errors=False)),
            **(where if on_rows else {}),
        },
    )
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=SUITE,
        passed=not checks.failed_checks,
        severity=severity(site, SUITE),
        description="; ".join(f"{rule.name}: {rule.said}" for rule in failed),
        metadata={
            "batches": checks.checks,
            "failed_batches": checks.failed_checks,
            "failed": metadata.rules(failed),
            **(where if checks.failed_checks else {}),
        },
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
        severity=severity(site, MERGED),
        description=error or "",
        metadata={"error": error or "", **(paused or {})},
    )


def quarantine_result(
    site: Site, table: TableId, waiting: int, quarantined: int = 0, where: metadata.Metadata | None = None
) -> dg.AssetCheckResult:
    """The result of ``quarantine``: changes in the quarantine table, and how many of them this run wrote there."""
    # Changes that are in quarantine since an earlier run were reported by that run.
    usual = dg.AssetCheckSeverity.ERROR if quarantined else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        asset_key=lake_key(site, table),
        check_name=QUARANTINE,
        passed=not (quarantined or waiting),
        severity=severity(site, QUARANTINE, usual),
        description=_waiting(site, table, waiting),
        metadata={
            "quarantined": quarantined,
            "waiting": waiting,
            **((where or {}) if quarantined or waiting else {}),
        },
    )


def _merged_now(site: Site, status: TableStatus, facts: LakeFacts) -> dg.AssetCheckResult:
    error = status.paused.reason if status.paused is not None else status.error or None
    if error is None and status.lake_version is None:
        error = "The table is not in the lake yet; take a snapshot of it."
    return merged_result(site, status.table, error, facts.paused(status.table) if status.paused is not None else None)


def _failed_rules(status: TableStatus) -> dict[str, int]:
    """The rules that waiting changes failed, with the number of changes."""
    from cdc_core.lake.stores.quarantine import WAITS_FOR_EARLIER  # loads Arrow

    return {name: count for name, count in sorted(status.reasons.items()) if name != WAITS_FOR_EARLIER}


def _failures(counts: Mapping[str, int]) -> str:
    """Return which rules failed, and for how many rows."""
    return "failed: " + ", ".join(f"{name} ({count} rows)" for name, count in counts.items()) if counts else ""


def _waiting(site: Site, table: TableId, waiting: int) -> str:
    if not waiting:
        return ""
    file = site.file if site.file is not None else "CONFIG"
    return (
        f"{waiting} changes are waiting in the quarantine table. Correct the rows at the source, or "
        f"correct the rule and run: wal2lake replay {file} {table}, or the job {site.safe_name}_replay_job"
    )

"""The checks of a lake table: the results of rounds before each merge, and, if executed, the lake table."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Collection, Iterator, Mapping, Sequence

import dagster as dg

from cdc_core.engine import LakeJudgement, TableStatus
from cdc_core.errors import CdcError
from cdc_core.observe import TABLE_CHECKS, CheckLevel
from cdc_core.schema import TableId
from wal2lake.pipelines.connector.keys import lake_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.reports.lake_facts import LakeFacts, PausedFacts
from wal2lake.pipelines.reports.stream_tally import CheckTotals
from wal2lake.pipelines.step.failure import reported

MERGED, SUITE = TABLE_CHECKS
REPORTED_BY = "reported_by"
"""Metadata of a failed check: the name of another that reports the same failure, for which there is one alert."""

_DESCRIPTIONS = {
    MERGED: "Passes while the table is merged up to each round's LSN.",
    SUITE: "Passes while no expectation of severity critical fails and no change waits in quarantine. A streaming run "
    "reports what Great Expectations decided on each slice of changes before it was merged. Executed separately, the "
    "check has Great Expectations judge all rows of the lake table; DuckDB reads them and computes the metrics, in "
    "this process and without Spark.",
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

    They use neither the slot nor Spark, so the stream continues. Streaming runs and replays report the same checks as
    they go.
    """
    if not site.tables:
        return None

    @dg.multi_asset_check(
        name=f"{site.safe_name}_checks",
        specs=[spec for table in site.tables for spec in check_specs(site, table.id)],
        can_subset=True,
    )
    def checked(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected_keys = context.selected_asset_check_keys
        tables = {
            table.id for table in site.tables if any(key.asset_key == lake_key(site, table.id) for key in selected_keys)
        }
        with reported():
            by_table = {status.table: status for status in site.open().status().tables}
        statuses = [by_table.get(table) or _missing(table) for table in sorted(tables)]
        # Dagster adds its checks to an asset that is materialised by hand: the run has judged what it merged.
        is_alone = not context.job_def.asset_layer.selected_asset_keys
        in_lake = [
            status.table
            for status in statuses
            if status.lake_version is not None
            and dg.AssetCheckKey(lake_key(site, status.table), SUITE) in selected_keys
        ]
        judged = _judged(site, in_lake) if is_alone else {}
        for result in state_results(site, statuses, judged):
            if dg.AssetCheckKey(result.asset_key, str(result.check_name)) in selected_keys:  # type: ignore[arg-type]
                yield result

    return checked


def _judged(site: Site, tables: Sequence[TableId]) -> dict[TableId, LakeJudgement]:
    """Have the rules judge lake tables as they are; a rule that is not valid is the reason why none is judged."""
    try:
        return {judgement.table: judgement for judgement in site.open().quality_test(tables)} if tables else {}
    except CdcError as error:
        return {table: LakeJudgement(table, reason=str(error)) for table in tables}


def _missing(table: TableId) -> TableStatus:
    return TableStatus(table, (), None, None, None, None, None, None)


def state_results(
    site: Site, statuses: Sequence[TableStatus], judged: Mapping[TableId, LakeJudgement] | None = None
) -> Iterator[dg.AssetCheckResult]:
    """All checks of the present lake tables; ``judged`` is the verdict of the rules on all rows, if requested."""
    facts = LakeFacts(site)
    for status in statuses:
        yield _merged_now(site, status, facts)
        yield _suite_now(site, status, (judged or {}).get(status.table), facts)


def _suite_now(site: Site, status: TableStatus, judged: LakeJudgement | None, facts: LakeFacts) -> dg.AssetCheckResult:
    reasons = [status.paused.reason] if status.paused is not None and status.paused.by_rules else []
    entries: metadata.Metadata = {
        "waiting": status.quarantined,
        "waiting_rules": metadata.reasons(_failed_rules(status)),
    }
    if judged is not None and judged.report is None:
        reasons.append(f"Not judged: {judged.reason}")
    elif judged is not None and judged.report is not None:
        failed = [rule for rule in judged.report.rules if not rule.success and rule.severity == "error"]
        reasons += [f"{rule.name.removeprefix('user:')}: {rule.said}" for rule in failed]
        entries |= metadata.lake_judgement(judged, judged.report)
    return _suite_result(site, status.table, reasons, status.quarantined, entries, facts.places(status.table))


def _suite_result(
    site: Site,
    table: TableId,
    reasons: Collection[str],
    waiting: int,
    entries: metadata.Metadata,
    places: metadata.Metadata,
) -> dg.AssetCheckResult:
    """The result of ``great_expectations``: it fails for these reasons, and warns of changes that only wait."""
    fails = bool(reasons or waiting)
    usual = dg.AssetCheckSeverity.ERROR if reasons else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        asset_key=lake_key(site, table),
        check_name=SUITE,
        passed=not fails,
        severity=severity(site, SUITE, usual),
        description="; ".join([*reasons, *([_waiting(site, table, waiting)] if waiting else [])]),
        metadata={**entries, **(places if fails else {})},
    )


def check_results(
    site: Site,
    table: TableId,
    checks: CheckTotals,
    error: str | None,
    paused: PausedFacts | None = None,
    places: metadata.Metadata | None = None,
) -> Iterator[dg.AssetCheckResult]:
    """One result per check for the run so far.

    ``error`` is the reason why the table is not merged, None if it is. ``places`` has the paths of the quarantine table
    and the data docs.
    """
    failed, stopped = checks.failed_rules(errors=True), paused or PausedFacts()
    yield merged_result(site, table, error, stopped.facts, is_reported=stopped.by_rules and bool(failed))
    if not checks.checks:
        return
    reasons = [f"{rule.name.removeprefix('user:')}: {rule.said}" for rule in failed]
    entries: metadata.Metadata = {
        "batches": checks.checks,
        "failed_batches": checks.failed_checks,
        "rows": checks.rows,
        "quarantined": checks.quarantined,
        "waiting": checks.waiting,
        "rules": metadata.rules(checks.rules),
        "warnings": ", ".join(rule.name for rule in checks.failed_rules(errors=False)),
    }
    yield _suite_result(site, table, reasons, checks.waiting, entries, places or {})


def merged_result(
    site: Site, table: TableId, error: str | None, paused: metadata.Metadata | None = None, *, is_reported: bool = False
) -> dg.AssetCheckResult:
    """The result of ``merged``; ``is_reported``: the check of the table's rules fails for the same reason."""
    return dg.AssetCheckResult(
        asset_key=lake_key(site, table),
        check_name=MERGED,
        passed=error is None,
        severity=severity(site, MERGED),
        description=error or "",
        metadata={"error": error or "", **(paused or {}), **({REPORTED_BY: SUITE} if is_reported else {})},
    )


def _merged_now(site: Site, status: TableStatus, facts: LakeFacts) -> dg.AssetCheckResult:
    error = status.paused.reason if status.paused is not None else status.error or None
    if error is None and status.lake_version is None:
        error = "The table is not in the lake yet; take a snapshot of it."
    if status.paused is None:
        return merged_result(site, status.table, error)
    return merged_result(
        site, status.table, error, facts.paused(status.table).facts, is_reported=status.paused.by_rules
    )


def _failed_rules(status: TableStatus) -> dict[str, int]:
    """The rules that waiting changes failed, with the number of changes."""
    from cdc_core.lake import WAITS_FOR_EARLIER  # loads Arrow

    return {name: count for name, count in sorted(status.reasons.items()) if name != WAITS_FOR_EARLIER}


def _waiting(site: Site, table: TableId, waiting: int) -> str:
    return (
        f"{waiting} changes are waiting in the quarantine table. Correct the rows at the source, or "
        f"correct the rule and run: wal2lake replay {site.typed_file} {table.argument}, or the job "
        f"{site.safe_name}_replay_job"
    )

"""Whether lake tables equal their source: one asset check a table, which compares it by ``reconcile``."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from cdc_core.schema import TableId
from wal2lake.pipelines.connector.keys import lake_key
from wal2lake.pipelines.connector.site import ComparedTable, Site
from wal2lake.pipelines.reports.metadata import Metadata
from wal2lake.pipelines.step.failure import reported
from wal2lake.pipelines.step.log import is_not_about_missing_results

EQUAL = "equal_to_source"


def reconcile_keys(site: Site) -> dict[TableId, dg.AssetCheckKey]:
    """The check of each captured table."""
    return {table.id: dg.AssetCheckKey(lake_key(site, table.id), EQUAL) for table in site.tables}


def reconcile_checks(site: Site) -> dg.AssetChecksDefinition | None:
    """The checks of a connector's tables; None if no table is known yet. They do not use the slot or Spark."""
    by_key = {key: table for table, key in reconcile_keys(site).items()}
    if not by_key:
        return None

    @dg.multi_asset_check(
        name=f"{site.safe_name}_reconcile",
        specs=[
            dg.AssetCheckSpec(
                EQUAL,
                asset=key.asset_key,
                description=f"Passes if the lake table has exactly the rows of {table}: every row is compared, while "
                "the stream may go on. A table that is paused or cannot be compared passes with a reason.",
            )
            for key, table in by_key.items()
        ],
        can_subset=True,
    )
    def compared(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        if context.job_def.asset_layer.selected_asset_keys:
            # Dagster adds its checks to an asset that is materialised by hand; this one reads whole tables.
            context.log.info("Not compared with the source: execute this check separately, or the reconcile job.")
            context.log.addFilter(is_not_about_missing_results)
            return
        tables = {by_key[key]: key for key in context.selected_asset_check_keys}
        with reported():
            report = site.open().reconcile(sorted(tables))
        for result in report.tables:
            yield result_of(site, result, str(report.lsn))

    return compared


def result_of(site: Site, result: ComparedTable, lsn: str) -> dg.AssetCheckResult:
    """A table's result. It warns if the table could not be read, and fails if rows differ."""
    plain = result.to_plain()
    differs = plain["state"] == "different" or not _is_whole(plain)
    return dg.AssetCheckResult(
        asset_key=lake_key(site, result.table),
        check_name=EQUAL,
        passed=not differs and not result.is_error,
        severity=dg.AssetCheckSeverity.ERROR if differs else dg.AssetCheckSeverity.WARN,
        description=_said(plain, site),
        metadata=facts(plain, site, lsn),
    )


def facts(plain: dict[str, Any], site: Site, lsn: str) -> Metadata:
    """Counts, cost, and where the keys are listed."""
    metadata: Metadata = {
        "state": plain["state"],
        "lsn": lsn,
        **{name: plain["counts"][name] for name in ("missing", "extra", "changed", "quarantined")},
        "bytes_read": plain["bytes_read"],
        "seconds": plain["seconds"],
        "keys_listed_in": str(site.paths().reconciliations),
    }
    if plain["rows"] is not None:
        metadata["rows"] = plain["rows"]
    if plain["repaired"]:
        metadata["repaired"] = plain["repaired"]
    if not _is_whole(plain):
        metadata["changelog"] = "different"
    return metadata


def _is_whole(plain: dict[str, Any]) -> bool:
    """Whether nothing is wrong with the changelog, or with the versions that it leads to, as far as they were read."""
    return plain["changelog"] is None or plain["changelog"]["state"] == "equal"


def _said(plain: dict[str, Any], site: Site) -> str:
    if plain["state"] == "left out":
        return f"Not compared: {plain['reason']}."
    listed = f"their keys are in the column keys of {site.paths().reconciliations}"
    if plain["state"] == "equal":
        return "" if _is_whole(plain) else f"The changelog leads to other rows or versions; {listed}."
    counts = plain["counts"]
    return (
        f"{counts['missing']:,} rows are missing, {counts['extra']:,} extra, {counts['changed']:,} changed; {listed}."
    )

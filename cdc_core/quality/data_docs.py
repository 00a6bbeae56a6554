"""Great Expectations' pages about the results of a run's expectations, built by the library from its own layout."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cdc_core.observe import pages_folder
from cdc_core.quality.check_report import CheckReport, RuleResult
from cdc_core.quality.great_expectations import library
from cdc_core.quality.rules import CONDITION

_SITE = "wal2lake_site"


def write_data_docs(directory: Path, checks: Iterable[CheckReport], places: Mapping[str, str]) -> Path | None:
    """Build data docs of a run's judgements, one for each table; returns the path of index.html, None without any.

    ``places`` maps schema.table to the table's refused rows. The folder is replaced completely, so it shows the latest
    run and does not grow; Dagster keeps the history. For the end of a run: the site has some megabytes of static files.
    """
    checks = list(checks)
    if not checks:
        return None
    gx = library()
    making = directory.with_name(directory.name + ".new")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True, exist_ok=True)
    context = gx.get_context(mode="file", project_root_dir=making)
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    _configure_site(context, making)
    run = gx.RunIdentifier(run_name="wal2lake", run_time=datetime.now(UTC))
    for check in checks:
        _store(context, run, check, places.get(str(check.table), ""))
    context.build_data_docs(site_names=[_SITE])
    _add_links(pages_folder(making))
    shutil.rmtree(directory, ignore_errors=True)
    making.rename(directory)
    return pages_folder(directory) / "index.html"


def _store(context: Any, run: Any, check: CheckReport, place: str) -> None:
    from great_expectations.core.batch import IDDict
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    results = [_result(rule, place) for rule in check.rules]
    met = sum(rule.success for rule in check.rules)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": met,
        "unsuccessful_expectations": len(results) - met,
        "success_percent": 100 * met / len(results) if results else None,
    }
    validation = ExpectationSuiteValidationResult(
        success=check.success,
        results=results,
        suite_name=str(check.table),
        statistics=statistics,
        meta={"run_id": run, "active_batch_definition": IDDict(), "rows": check.rows, "quarantined": check.quarantined},
    )
    suite = ExpectationSuiteIdentifier(name=str(check.table))
    key = ValidationResultIdentifier(expectation_suite_identifier=suite, run_id=run, batch_identifier="run")
    context.validation_results_store.set(key, validation)


def _result(rule: RuleResult, place: str) -> Any:
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    is_condition = rule.kind in (CONDITION, "")
    configuration = ExpectationConfiguration(
        type=CONDITION if is_condition else rule.kind,
        kwargs={"condition": rule.description} if is_condition else json.loads(rule.kwargs),
        severity="critical" if rule.severity == "error" else "warning",
        description=_described(rule, place),
    )
    counts: dict[str, Any] = {"element_count": rule.checked, "unexpected_count": rule.failed}
    if rule.checked:
        counts["unexpected_percent"] = 100 * rule.failed / rule.checked
    result = {"observed_value": rule.observed} if rule.observed else counts
    return ExpectationValidationResult(success=rule.success, expectation_config=configuration, result=result)


def _described(rule: RuleResult, place: str) -> str:
    """What a rule states and, if it failed, what follows from it: the page's own marks need fonts of other sites."""
    expected = f" ({rule.expected})" if rule.expected and rule.expected != rule.description else ""
    text = f"{rule.description}{expected}"
    if rule.success:
        return text
    if rule.severity != "error":
        return f"Warning: {text}"
    if rule.over_slice:
        return f"Failed: {text}. The changes are not in the lake table; the changelog has them."
    return f"Failed: {text}. The rows are in {place}, where reasons has {rule.name}." if place else f"Failed: {text}"


def _add_links(site: Path) -> None:
    """Add a link per table to the first page: its own list is rendered by external scripts, which may be unreachable.

    A table's page is ``validations/<schema>/<table>/<run>/<time>/<batch>.html``, with the name split at its dots.
    """
    index = site / "index.html"
    if not index.exists():
        return
    pages = sorted(page.relative_to(site) for page in site.glob("validations/**/*.html"))
    links = "".join(
        f'<li><a href="{quote(page.as_posix())}">{escape(".".join(page.parts[1:-3]))}</a></li>' for page in pages
    )
    before, body, after = index.read_text(encoding="utf-8").rpartition("</body>")
    listed = f'<nav class="container-fluid"><h5>Tables</h5><ul>{links}</ul></nav>'
    index.write_text(f"{before}{listed}{body}{after}", encoding="utf-8")


def _configure_site(context: Any, directory: Path) -> None:
    site = {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": {
            "class_name": "TupleFilesystemStoreBackend",
            "base_directory": str(pages_folder(directory).resolve()),
        },
    }
    if _SITE in context.get_site_names():
        context.update_data_docs_site(site_name=_SITE, site_config=site)
    else:
        context.add_data_docs_site(site_name=_SITE, site_config=site)

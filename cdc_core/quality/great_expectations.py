"""The one door to Great Expectations: suites made from rules, validated on a batch's one-row summary.

The rows are counted by Spark in one aggregate; a suite then states what the counts may be. So a validation costs
milliseconds whatever the batch's size, and its result, with descriptions and severities, is Great Expectations' own.
The library is imported at first use, for it costs seconds; context and suites live as long as the process.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_core.quality.report import Summary
from cdc_core.quality.rules import Rule, Severity

ROWS = "rows"
DUPLICATES = "duplicate_positions"
_DATA_SOURCE = "wal2lake"
_SITE = "wal2lake_site"

_lock = threading.Lock()
_shared: list[_Session] = []
_last: dict[str, tuple[tuple[Rule, ...], Summary]] = {}


@dataclass(frozen=True, slots=True)
class Validation:
    """A suite's verdict. ``success`` is False when a critical expectation failed or could not be evaluated."""

    success: bool
    json: str


def validate(table: str, rules: tuple[Rule, ...], summary: Summary) -> Validation:
    """Run the suite of ``table`` (``schema.table``) on a batch's summary. Safe to call from several threads."""
    with _lock:
        if not _shared:
            _shared.append(_Session(None))
        _last[table] = (rules, summary)
        result = (
            _shared[0]
            .definition(table, rules, summary)
            .run(batch_parameters={"dataframe": _frame(rules, summary)}, result_format="BASIC")
        )
    return Validation(_passed(result), json.dumps(result.to_json_dict(), default=str))


def write_data_docs(directory: Path) -> Path | None:
    """Build data docs of the last validation of each table in this process; the path of index.html.

    None is returned where nothing was validated. The folder is replaced as a whole, so it shows the latest run and
    does not grow; history is Dagster's. Meant for the end of a run: the site is some megabytes of static files.
    """
    with _lock:
        batches = dict(_last)
    if not batches:
        return None
    making = directory.with_name(directory.name + ".new")
    shutil.rmtree(making, ignore_errors=True)
    with _lock:
        session = _Session(making)
        for table, (rules, summary) in batches.items():
            session.checkpoint(table, rules, summary).run(batch_parameters={"dataframe": _frame(rules, summary)})
        session.context.build_data_docs(site_names=[_SITE])
    shutil.rmtree(directory, ignore_errors=True)
    making.rename(directory)
    return _site_directory(directory) / "index.html"


class _Session:
    """A context with a pandas data source. ``directory`` None keeps everything in memory."""

    def __init__(self, directory: Path | None) -> None:
        gx = _library()
        if directory is None:
            self.context: Any = gx.get_context(mode="ephemeral")
        else:
            directory.mkdir(parents=True, exist_ok=True)
            self.context = gx.get_context(mode="file", project_root_dir=directory)
            _configure_site(self.context, directory)
        self.context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        source = self.context.data_sources.add_or_update_pandas(_DATA_SOURCE)
        self.batch = source.add_dataframe_asset("summary").add_batch_definition_whole_dataframe("row")
        self._definitions: dict[tuple[str, tuple[Rule, ...], bool], Any] = {}

    def definition(self, table: str, rules: tuple[Rule, ...], summary: Summary) -> Any:
        """The table's validation definition, made anew when its rules changed."""
        gx = _library()
        identity = (table, rules, summary.duplicates is None)
        if identity not in self._definitions:
            suite = gx.ExpectationSuite(
                name=table,
                expectations=_expectations(rules, summary),
                meta={"table": table, "rules": len(rules)},
            )
            self._definitions = {kept: held for kept, held in self._definitions.items() if kept[0] != table}
            suite = self.context.suites.add_or_update(suite)
            self._definitions[identity] = self.context.validation_definitions.add_or_update(
                gx.ValidationDefinition(name=table, data=self.batch, suite=suite)
            )
        return self._definitions[identity]

    def checkpoint(self, table: str, rules: tuple[Rule, ...], summary: Summary) -> Any:
        """A checkpoint of that definition, which stores its results for the data docs."""
        gx = _library()
        return self.context.checkpoints.add_or_update(
            gx.Checkpoint(
                name=table, validation_definitions=[self.definition(table, rules, summary)], result_format="BASIC"
            )
        )


@contextmanager
def _without_spark_connect() -> Iterator[None]:
    """Hide pyspark's Connect client while Great Expectations is imported.

    It looks for it and can do without; but in a process whose main module has no file (Dagster's run workers) that
    client takes itself for a doctest and ends the process.
    """
    name = "pyspark.sql.connect"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(name, None)


def _library() -> Any:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    with _without_spark_connect():
        import great_expectations

    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    return great_expectations


def _expectations(rules: tuple[Rule, ...], summary: Summary) -> list[Any]:
    import great_expectations.expectations as gxe

    found = [
        gxe.ExpectColumnMinToBeBetween(column=ROWS, min_value=0, severity="info", description="rows of the batch"),
    ]
    if summary.duplicates is not None:
        found.append(
            gxe.ExpectColumnMaxToBeBetween(
                column=DUPLICATES, max_value=0, severity="critical", description="no position occurs twice"
            )
        )
    found += [
        gxe.ExpectColumnMaxToBeBetween(
            column=rule.name,
            max_value=0,
            severity="critical" if rule.severity is Severity.ERROR else "warning",
            description=rule.description,
        )
        for rule in rules
    ]
    return found


def _frame(rules: tuple[Rule, ...], summary: Summary) -> Any:
    import pandas as pd

    row: dict[str, int] = {ROWS: summary.rows}
    if summary.duplicates is not None:
        row[DUPLICATES] = summary.duplicates
    row |= {rule.name: summary.failed.get(rule.name, 0) for rule in rules}
    return pd.DataFrame([row])


def _passed(result: Any) -> bool:
    """True unless a critical expectation failed; one that could not be evaluated counts as failed."""
    return not any(
        outcome.exception_info.get("raised_exception")
        or (not outcome.success and outcome.expectation_config.severity == "critical")
        for outcome in result.results
    )


def _site_directory(directory: Path) -> Path:
    return directory / "site"


def _configure_site(context: Any, directory: Path) -> None:
    site = {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": {
            "class_name": "TupleFilesystemStoreBackend",
            "base_directory": str(_site_directory(directory).resolve()),
        },
    }
    if _SITE in context.get_site_names():
        context.update_data_docs_site(site_name=_SITE, site_config=site)
    else:
        context.add_data_docs_site(site_name=_SITE, site_config=site)

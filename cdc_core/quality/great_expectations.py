"""Validates a batch's one-row summary with Great Expectations suites created from rules.

The rows are counted where the rules are evaluated; a suite then states the allowed counts. So a validation does not
depend on the batch's size, and its result, with descriptions and severities, is Great Expectations' own. A table's
suite takes about 60 ms of CPU with fifteen rules, so many tables are validated as one frame with one row per table, and
a table's own suite runs only if a rule failed there, and once to get the layout of its result. The library is imported
on first use, because this takes seconds; context and suites are kept until the process ends.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cdc_core.errors import InvariantError
from cdc_core.observe.static_pages import pages_folder
from cdc_core.quality.report import Stated, Statement, Summary, statements
from cdc_core.quality.rules import Severity

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = "rows"
DUPLICATES = "duplicate_positions"
ERRORS = "failures_of_error_rules"
WARNINGS = "failures_of_warn_rules"
_ROUND = "wal2lake round"
_DATA_SOURCE = "wal2lake"
_SITE = "wal2lake_site"

_lock = threading.Lock()
_shared: list[_Session] = []
_last: dict[str, tuple[tuple[Statement, ...], Summary]] = {}
# Each table's last own result without failures, and the statements of its suite.
_passing: dict[str, tuple[tuple[Statement, ...], dict[str, Any]]] = {}


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of a suite. ``success`` is False if a critical expectation failed or could not be evaluated.

    ``json`` is Great Expectations' result as a text, empty if it was not asked for.
    """

    success: bool
    json: str


def validate(table: str, rules: Iterable[Stated], summary: Summary) -> Validation:
    """Run the suite of ``table`` (``schema.table``) on a batch's summary. Thread-safe."""
    stated = statements(rules)
    with _lock:
        _last[table] = (stated, summary)
        return _own(table, stated, summary)


def validate_round(batches: Iterable[tuple[str, Iterable[Stated], Summary]]) -> dict[str, Validation]:
    """Validate one summary per table, all of them as one frame; returns the result of each table's suite.

    A table in which a rule failed is validated by its own suite as well. A table without failures has the result of its
    own suite's last run without failures, with the frame's validation as its origin and its own number of rows; its own
    suite runs if it has never run. Thread-safe.
    """
    return dict(validations(batches))


def validations(
    batches: Iterable[tuple[str, Iterable[Stated], Summary]], *, is_last: bool = False
) -> Iterator[tuple[str, Validation]]:
    """``validate_round`` table by table: first those that need no suite of their own, then failing ones.

    ``is_last``: nobody asks for the results any more. Then a table without failures whose own suite has never run is
    validated by the frame alone, and its ``json`` is empty: a short run of many tables would take most of its time to
    lay out results that it throws away.
    """
    entries = [(table, statements(rules), summary) for table, rules, summary in batches]
    if not entries:
        return
    with _lock:
        for table, stated, summary in entries:
            held = _last.get(table)
            _last[table] = (stated, held[1].plus(summary) if held is not None and held[0] == stated else summary)
        meta = _session().round(entries)
    alone = []
    for table, stated, summary in entries:
        passing = _passing.get(table)
        if not _failures(stated, summary) and passing is not None and passing[0] == stated:
            yield table, _renewed(passing[1], summary, meta)
        elif is_last and not _failures(stated, summary):
            yield table, Validation(True, "")
        else:
            alone.append((table, stated, summary))
    for table, stated, summary in sorted(alone, key=lambda entry: not _failures(entry[1], entry[2])):
        with _lock:
            found = _own(table, stated, summary)
        yield table, found


def validate_sample(table: str, suite: str, rows: pa.Table) -> Validation:
    """Run expectations of the user (a JSON list) on sampled rows. Thread-safe.

    One that cannot be evaluated counts as failed; one whose severity is not critical does not fail the suite.
    """
    gx = _library()
    with _lock:
        session = _session()
        name = f"{table} sample"
        held = session.context.suites.add_or_update(gx.ExpectationSuite(name=name, expectations=json.loads(suite)))
        made = session.context.validation_definitions.add_or_update(
            gx.ValidationDefinition(name=name, data=session.batch, suite=held)
        )
        # Only the outcome: more detailed results would contain values.
        result = made.run(batch_parameters={"dataframe": rows.to_pandas()}, result_format="BOOLEAN_ONLY")
        session.forget_results()
    return Validation(_passed(result), json.dumps(result.to_json_dict(), default=str))


def suite_problem(suite: str) -> str:
    """Return Great Expectations' error in expectations of the user, as a sentence; empty for none."""
    gx = _library()
    logger = logging.getLogger("great_expectations")
    before = logger.level
    logger.setLevel(logging.CRITICAL)  # it logs rejected expectations with a traceback, and continues without them
    try:
        for each in json.loads(suite):
            try:
                made = gx.ExpectationSuite(name="check", expectations=[each])
            except Exception as error:  # any error of a library of validators
                return f"{each['type']} ({type(error).__name__})"
            if not made.expectations:
                return f"{each['type']} is not known, or its kwargs are wrong"
    finally:
        logger.setLevel(before)
    return ""


def load() -> None:
    """Import the library and open its context, which takes seconds, before the first validation."""
    with _lock:
        _session()


def _own(table: str, stated: tuple[Statement, ...], summary: Summary) -> Validation:
    """Run one table's suite; called with the lock held."""
    result = (
        _session()
        .definition(table, stated, summary)
        .run(batch_parameters={"dataframe": _frame(stated, summary)}, result_format="BASIC")
    )
    _session().forget_results()
    found = result.to_json_dict()
    if found["success"]:
        _passing[table] = (stated, found)
    return Validation(_passed(result), json.dumps(found, default=str))


def _renewed(passing: dict[str, Any], summary: Summary, meta: dict[str, Any]) -> Validation:
    """Return the result of a suite without failures, for another number of rows without failures."""
    results = [
        {**entry, "result": {"observed_value": summary.rows}}
        if entry["expectation_config"]["kwargs"]["column"] == ROWS
        else entry
        for entry in passing["results"]
    ]
    renewed = {**passing, "results": results, "meta": {**meta, "validation_id": passing["meta"]["validation_id"]}}
    return Validation(True, json.dumps(renewed, default=str))


def _failures(stated: tuple[Statement, ...], summary: Summary) -> int:
    return sum(summary.failed.get(rule.name, 0) for rule in stated) + (summary.duplicates or 0)


def _session() -> _Session:
    if not _shared:
        _shared.append(_Session(None))
    return _shared[0]


def write_data_docs(directory: Path, places: Mapping[str, str] | None = None, seconds: float = 120.0) -> Path | None:
    """Build data docs of a run's validations of each table; returns the path of index.html.

    ``places`` maps schema.table to the table's refused rows, for each table of the run: a process may have had runs of
    other connectors before. None: every table that this process has validated. A run may have several folders. Tables
    in which a rule failed are first: after ``seconds`` no further table is added. Returns None if nothing was
    validated. The folder is replaced completely, so it shows the latest run and does not grow; Dagster keeps the
    history. For the end of a run: the site has some megabytes of static files.
    """
    with _lock:
        batches = {table: held for table, held in _last.items() if places is None or table in places}
    if not batches:
        return None
    making = directory.with_name(directory.name + ".new")
    shutil.rmtree(making, ignore_errors=True)
    with _lock:
        session = _Session(making, places or {})
        started = time.monotonic()
        for table, (rules, summary) in sorted(batches.items(), key=lambda each: -_failures(*each[1])):
            if time.monotonic() - started > seconds:
                break
            session.checkpoint(table, rules, summary).run(batch_parameters={"dataframe": _frame(rules, summary)})
        session.context.build_data_docs(site_names=[_SITE])
        _add_links(pages_folder(making))
    shutil.rmtree(directory, ignore_errors=True)
    making.rename(directory)
    return pages_folder(directory) / "index.html"


class _Session:
    """A context with a pandas data source. ``directory`` None keeps everything in memory.

    ``places`` maps tables to their refused rows.
    """

    def __init__(self, directory: Path | None, places: Mapping[str, str] | None = None) -> None:
        gx = _library()
        self._places = places or {}
        if directory is None:
            self.context: Any = gx.get_context(mode="ephemeral")
        else:
            directory.mkdir(parents=True, exist_ok=True)
            self.context = gx.get_context(mode="file", project_root_dir=directory)
            _configure_site(self.context, directory)
        self.context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        source = self.context.data_sources.add_or_update_pandas(_DATA_SOURCE)
        self.batch = source.add_dataframe_asset("summary").add_batch_definition_whole_dataframe("row")
        self._definitions: dict[tuple[str, tuple[Statement, ...], bool], Any] = {}
        self._round: Any = None

    def definition(self, table: str, rules: tuple[Statement, ...], summary: Summary) -> Any:
        """Return the table's validation definition, created again if its rules changed."""
        gx = _library()
        identity = (table, rules, summary.duplicates is None)
        if identity not in self._definitions:
            suite = gx.ExpectationSuite(
                name=table,
                expectations=_expectations(rules, summary, self._places.get(table, "")),
                meta={"table": table, "rules": len(rules)},
            )
            for former in [held for held in self._definitions if held[0] == table]:
                del self._definitions[former]
                self.context.validation_definitions.delete(table)
                self.context.suites.delete(table)
            # Nothing is updated: that would compare each expectation with each former one, which takes seconds with
            # some hundred rules.
            suite = self.context.suites.add(suite)
            self._definitions[identity] = self.context.validation_definitions.add(
                gx.ValidationDefinition(name=table, data=self.batch, suite=suite)
            )
        return self._definitions[identity]

    def checkpoint(self, table: str, rules: tuple[Statement, ...], summary: Summary) -> Any:
        """Return a checkpoint of that definition, which stores its results for the data docs."""
        gx = _library()
        return self.context.checkpoints.add_or_update(
            gx.Checkpoint(
                name=table, validation_definitions=[self.definition(table, rules, summary)], result_format="BASIC"
            )
        )

    def forget_results(self) -> None:
        """Remove the results that the context stores for each run; they would accumulate until the process ends."""
        store = self.context.validation_results_store
        for key in store.list_keys():
            store.remove_key(key)

    def round(self, entries: list[tuple[str, tuple[Statement, ...], Summary]]) -> dict[str, Any]:
        """Validate a frame of one row per table; returns its result's meta. Each of its failures is one of a table."""
        import great_expectations.expectations as gxe
        import pandas as pd

        gx = _library()
        if self._round is None:
            expectations = [
                gxe.ExpectColumnMinToBeBetween(column=ROWS, min_value=0, severity="info"),
                gxe.ExpectColumnMaxToBeBetween(column=DUPLICATES, max_value=0, severity="critical"),
                gxe.ExpectColumnMaxToBeBetween(column=ERRORS, max_value=0, severity="critical"),
                gxe.ExpectColumnMaxToBeBetween(column=WARNINGS, max_value=0, severity="warning"),
            ]
            suite = self.context.suites.add_or_update(gx.ExpectationSuite(name=_ROUND, expectations=expectations))
            self._round = self.context.validation_definitions.add_or_update(
                gx.ValidationDefinition(name=_ROUND, data=self.batch, suite=suite)
            )
        rows = []
        for table, stated, summary in entries:
            errors = sum(summary.failed.get(rule.name, 0) for rule in stated if rule.severity == Severity.ERROR)
            warnings = _failures(stated, summary) - errors - (summary.duplicates or 0)
            rows.append((table, summary.rows, summary.duplicates or 0, errors, warnings))
        frame = pd.DataFrame(rows, columns=["table", ROWS, DUPLICATES, ERRORS, WARNINGS])
        result = self._round.run(batch_parameters={"dataframe": frame}, result_format="BASIC").to_json_dict()
        self.forget_results()
        if result["success"] and any(_failures(stated, summary) for _, stated, summary in entries):
            raise InvariantError("A batch of summaries passed validation although a rule failed in one of them.")
        meta: dict[str, Any] = result["meta"]
        return meta


@contextmanager
def _without_spark_connect() -> Iterator[None]:
    """Hide pyspark's Connect client while Great Expectations is imported.

    The library imports it if available, but does not need it; in a process whose main module has no file (Dagster's run
    workers) that client assumes that it is run as a doctest and ends the process.
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


def _expectations(rules: tuple[Statement, ...], summary: Summary, place: str = "") -> list[Any]:
    import great_expectations.expectations as gxe

    def described(rule: Statement) -> str:
        where = f" (rows that fail: {place}, where reasons has {rule.name})"
        return rule.description + (where if place and rule.severity == Severity.ERROR else "")

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
            severity="critical" if rule.severity == Severity.ERROR else "warning",
            description=described(rule),
        )
        for rule in rules
    ]
    return found


def _frame(rules: tuple[Statement, ...], summary: Summary) -> Any:
    import pandas as pd

    row: dict[str, int] = {ROWS: summary.rows}
    if summary.duplicates is not None:
        row[DUPLICATES] = summary.duplicates
    row |= {rule.name: summary.failed.get(rule.name, 0) for rule in rules}
    return pd.DataFrame([row])


def _passed(result: Any) -> bool:
    """Return True unless a critical expectation failed; one that could not be evaluated counts as failed."""
    return not any(
        outcome.exception_info.get("raised_exception")
        or (not outcome.success and outcome.expectation_config.severity == "critical")
        for outcome in result.results
    )


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

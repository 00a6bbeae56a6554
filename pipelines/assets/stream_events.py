"""What a run of the stream tells Dagster: while it runs, and at its end, however it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from cdc_core.engine.reports import StreamReport
from cdc_core.errors import CdcError
from cdc_core.schema.table import TableId
from pipelines import metadata
from pipelines.checks.evaluation import evaluation
from pipelines.checks.slot import SLOT_HEALTH, judge
from pipelines.checks.tables import check_results
from pipelines.keys import changes_key, lake_key
from pipelines.lake_facts import LakeFacts
from pipelines.site import Site
from pipelines.stream_tally import ChangesTotals, RunTally, TableNews

DATA_DOCS = "data_docs"
_SLICE_SECONDS = 1.0
# Reporting takes a tenth of the time at most: with many tables, reports become rarer instead of slowing the stream. It
# takes half of it while tables wait for their first report in the run.
_REST_FACTOR = 9.0
_FIRST_REST_FACTOR = 1.0
# An event costs Dagster's database some 20 ms of CPU: checks in which nothing new failed are repeated so often only.
_SAME_CHECKS_SECONDS = 600.0

_log = logging.getLogger(__name__)


class StreamEvents:
    """Reports what a ``RunTally`` holds. Used by the step's own thread only, for Dagster's contexts are not shared.

    Tables that the loaded definitions do not know, or that were not selected, are reported too: materialisations only.
    """

    def __init__(self, context: dg.AssetExecutionContext, site: Site, tally: RunTally, facts: LakeFacts) -> None:
        self._context = context
        self._site = site
        self._tally = tally
        self._facts = facts
        self._wanted_checks = context.selected_asset_check_keys
        known = {table.id for table in site.tables}
        self._selected = {table for table in known if lake_key(site, table) in context.selected_asset_keys}
        self._said: dict[TableId, str | None] = {}
        self._told_checks: dict[TableId, tuple[object, float]] = {}
        self._changes_are_made = False
        self._rest_until = 0.0

    def report_due(self) -> None:
        """Report what is due, within bounds of time. What Dagster's database does not take now is tried again later."""
        started = time.monotonic()
        if started < self._rest_until:
            return
        try:
            if self._tally.changes_are_due():
                self._log_changes()
                self._log_slot_health()
            for table in self._tally.due():
                if time.monotonic() - started >= _SLICE_SECONDS:
                    break
                self._log_table(table)
        except Exception as error:
            # Not by context.log: that is the same database.
            _log.warning("Dagster did not take a report of the stream: %s. It is tried again.", type(error).__name__)
            self._rest_until = time.monotonic() + _SLICE_SECONDS
        ended = time.monotonic()
        factor = _FIRST_REST_FACTOR if self._tally.has_new() else _REST_FACTOR
        self._rest_until = max(self._rest_until, ended + factor * (ended - started))

    def flush(self) -> None:
        """Report all that no report has told yet, as plain events: what reached the lake before an error stays."""
        if self._tally.has_changes:
            self._log_changes()
        for table in self._tally.unreported():
            self._log_table(table, all_checks=True)

    def results(self, report: StreamReport, *, with_data_docs: bool) -> Iterator[Any]:
        """The end of a run: the changes and each table with news as materialised, and every table's check results."""
        if changes_key(self._site) in self._context.selected_asset_keys:
            with self._tally.changes_taken() as totals:
                changes = self._changes(totals, report, with_data_docs)
            yield changes
        for table in self._tally.tables():
            with self._tally.taken(table) as news:
                results = self._last(news)
            yield from results

    def _last(self, news: TableNews) -> list[Any]:
        found: list[Any] = []
        if news.table in self._selected and news.table in self._tally.merged and news.error is None:
            found.append(self._materialised(news))
        elif news.totals.rounds:
            # Not selected, not known yet, or the rounds before the failing one: they did reach the lake.
            self._context.log_event(self._materialisation(news))
            news.told = True
        self._say(news)
        return [*found, *self._results(news)]

    def _log_changes(self) -> None:
        """Materialised once a run, then observed: a newer materialisation than a table's own makes Dagster call every
        table out of sync, also those that the changes since do not concern.
        """
        key = changes_key(self._site)
        with self._tally.changes_taken() as totals:
            found = metadata.changes(totals)
            if self._changes_are_made:
                self._log(dg.AssetObservation(asset_key=key, metadata=found))
            else:
                self._log(dg.AssetMaterialization(asset_key=key, metadata=found, tags=_version(self._site.slot)))
        self._changes_are_made = True

    def _log_slot_health(self) -> None:
        """The job looks at the slot after the stream only, which may be in an hour."""
        try:
            result = judge(self._site, self._site.open().pending())
        except CdcError:
            return  # a server that is away is the stream's to report
        self._log(evaluation(result, dg.AssetCheckKey(changes_key(self._site), SLOT_HEALTH), blocking=False))

    def _log_table(self, table: TableId, *, all_checks: bool = False) -> None:
        with self._tally.taken(table) as news:
            if news.totals.rounds:
                self._log(self._materialisation(news))
                news.told = True
            if all_checks or self._has_new_checks(news):
                for result in self._results(news):
                    key = dg.AssetCheckKey(lake_key(self._site, table), str(result.check_name))
                    self._log(evaluation(result, key, blocking=True))
                self._told_checks[table] = (news.error, news.checks.state()), time.monotonic()
        self._say(news)

    def _has_new_checks(self, news: TableNews) -> bool:
        told, at = self._told_checks.get(news.table, (None, 0.0))
        is_same = told == (news.error, news.checks.state())
        return not is_same or time.monotonic() - at >= _SAME_CHECKS_SECONDS

    def _say(self, news: TableNews) -> None:
        """Log an error once: a table that stands still does so in every round."""
        if news.error is not None and self._said.get(news.table) != news.error:
            self._context.log.error(f"{news.table} stands still: {news.error}")
        self._said[news.table] = news.error

    def _log(self, event: Any) -> None:
        self._context.log_event(event)
        # It is in the event log by now. The step would keep it for whoever iterates over the run in this process, and
        # over an hour that would be much.
        for _ in self._context.consume_events():
            pass

    def _materialisation(self, news: TableNews) -> dg.AssetMaterialization:
        return dg.AssetMaterialization(
            asset_key=lake_key(self._site, news.table),
            metadata=metadata.table(news.totals) | self._facts.of(news.table),
            tags=_version(str(news.totals.lsn)),
        )

    def _materialised(self, news: TableNews) -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(
            asset_key=lake_key(self._site, news.table),
            metadata=metadata.table(news.totals) | self._facts.of(news.table),
            data_version=dg.DataVersion(str(news.totals.lsn)),
        )

    def _results(self, news: TableNews) -> Iterator[dg.AssetCheckResult]:
        if news.table not in self._selected:
            return
        paused = self._facts.paused(news.table) if news.error is not None else None
        for result in check_results(self._site, news.table, news.checks, news.error, paused):
            if dg.AssetCheckKey(lake_key(self._site, news.table), str(result.check_name)) in self._wanted_checks:
                yield result

    def _changes(self, totals: ChangesTotals, report: StreamReport, with_data_docs: bool) -> dg.MaterializeResult[Any]:
        found = metadata.changes(totals) | metadata.stream(report)
        if with_data_docs:
            found |= self._data_docs()
        # The same version at every position: each table takes its own changes, and those of others make it no older.
        return dg.MaterializeResult(
            asset_key=changes_key(self._site), metadata=found, data_version=dg.DataVersion(self._site.slot)
        )

    def _data_docs(self) -> metadata.Metadata:
        """Great Expectations' pages about this run's last validations, beside the connector's state."""
        from cdc_core.quality.great_expectations import write_data_docs

        try:
            index = write_data_docs(self._site.state_path.resolve() / DATA_DOCS)
        except Exception as error:
            # Pages about a stream that did its work: no reason to call it failed.
            self._context.log.warning(f"The data docs could not be written: {type(error).__name__}: {error}")
            return {}
        return {"data_docs": dg.MetadataValue.path(str(index))} if index else {}


def _version(version: str) -> dict[str, str]:
    """What ``MaterializeResult.data_version`` becomes."""
    return {"dagster/data_version": version}

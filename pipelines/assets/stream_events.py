"""Events that a streaming run logs to Dagster: while it is running, and at its end, also after an error."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from typing import Any

import dagster as dg

from cdc_core.engine import StreamReport
from cdc_core.errors import CdcError
from cdc_core.observe import DATA_DOCS_FOLDER, TABLE_CHECKS
from cdc_core.schema import TableId
from wal2lake.pipelines.assets.notification_events import NotificationEvents
from wal2lake.pipelines.checks.changes import changes_result, expectations_key
from wal2lake.pipelines.checks.evaluation import Evaluations
from wal2lake.pipelines.checks.slot import SAME_SECONDS, check_keys, results
from wal2lake.pipelines.checks.tables import SUITE, blocks, check_results
from wal2lake.pipelines.connector.keys import changes_key, lake_key, own_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.reports.freshness import is_current
from wal2lake.pipelines.reports.lake_facts import LakeFacts, data_docs_link
from wal2lake.pipelines.reports.provenance import lake_tags, version_tags
from wal2lake.pipelines.reports.stream_tally import ChangesTotals, RunTally, TableSummary
from wal2lake.pipelines.step.log import logged

_SLICE_SECONDS = 1.0
# Reporting takes at most a tenth of the time: with many tables, reports become less frequent instead of slowing the
# stream. It takes half of the time while tables wait for their first report in the run.
_REST_FACTOR = 9.0
_FIRST_REST_FACTOR = 1.0
# An event takes about 20 ms of CPU in Dagster's database: unchanged check results are repeated at this interval only.
_SAME_CHECKS_SECONDS = 600.0

_log = logging.getLogger(__name__)


class StreamEvents:
    """Logs the content of a ``RunTally``. For the step's thread only, as Dagster's contexts must not be shared.

    Tables that are not in the loaded definitions, or were not selected, are logged too, as materializations only.
    """

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        site: Site,
        tally: RunTally,
        facts: LakeFacts,
        notifications: NotificationEvents,
    ) -> None:
        self._context = context
        self._site = site
        self._tally = tally
        self._facts = facts
        self._notifications = notifications
        self._evaluations = Evaluations(context)
        self._known = {table.id for table in site.tables}
        self._selected = {table for table in self._known if lake_key(site, table) in context.selected_asset_keys}
        self._said: dict[TableId, str | None] = {}
        self._reported_checks: dict[TableId, tuple[object, float]] = {}
        self._told_slot: tuple[list[bool], float] = [], 0.0
        self._changes_are_made = False
        self._told_failed = 0
        self._rest_until = 0.0

    def report_due(self) -> None:
        """Log pending events, in a limited share of the time. Those that Dagster refuses are retried later."""
        started = time.monotonic()
        if started < self._rest_until:
            return
        try:
            if self._tally.changes_are_due():
                self._log_changes()
                self._log_slot_health()
            elif self._tally.judged_batches[1] != self._told_failed:
                self._log_expectations()
            self._log_notifications()
            for table in self._tally.due():
                if time.monotonic() - started >= _SLICE_SECONDS:
                    break
                self._log_table(table)
        except Exception as error:
            # Not by context.log, which uses the same database.
            _log.warning("A report of the stream could not be logged to Dagster: %s. Retrying.", type(error).__name__)
            self._rest_until = time.monotonic() + _SLICE_SECONDS
        ended = time.monotonic()
        factor = _FIRST_REST_FACTOR if self._tally.has_new() else _REST_FACTOR
        self._rest_until = max(self._rest_until, ended + factor * (ended - started))

    def flush(self) -> None:
        """Log all remaining changes as events, so that merges before an error are reported."""
        if self._tally.has_changes:
            self._log_changes()
        self._log_notifications(is_last=True)
        for table in self._tally.unreported():
            self._log_table(table, all_checks=True)

    def results(self, report: StreamReport, *, with_data_docs: bool) -> Iterator[Any]:
        """Results at the end of a run: materializations of tables with changes. The checks of all tables are logged."""
        if changes_key(self._site) in self._context.selected_asset_keys:
            self._log_expectations()
            with self._tally.changes_taken() as totals:
                changes = self._changes(totals, report, with_data_docs)
                self._log_own(totals)
            yield changes
        for table in self._tally.tables():
            with self._tally.taken(table) as summary:
                results = self._last(summary)
            yield from results

    def unchanged(self) -> Iterator[dg.MaterializeResult[Any]]:
        """The selected tables that are up to date without a change in this run, for a run that was to make them so."""
        rest = self._selected - self._tally.merged
        try:
            statuses = self._site.open().status().tables if rest else ()
        except CdcError:
            return  # an unavailable server was reported by the stream
        for status in statuses:
            version = status.lake_lsn or status.snapshot_lsn
            if status.table in rest and version is not None and is_current(status):
                told: metadata.Metadata = {"lsn": str(version), "events": 0}
                yield dg.MaterializeResult(
                    asset_key=lake_key(self._site, status.table),
                    metadata=told | self._facts.of(status.table),
                    data_version=dg.DataVersion(str(version)),
                )

    def _last(self, summary: TableSummary) -> list[Any]:
        events: list[Any] = []
        if summary.table in self._selected and summary.table in self._tally.merged and summary.error is None:
            events.append(self._materialised(summary))
        elif summary.totals.rounds:
            # Not selected, not known yet, or the rounds before the failing one, which were merged.
            self._context.log_event(self._materialisation(summary))
            summary.reported = True
        self._log_checks(summary)
        self._say(summary)
        return events

    def _log_changes(self) -> None:
        """Materialized once per run, then observed.

        With a newer materialization than a table's own, Dagster would show every table as out of sync, including tables
        without changes since.
        """
        key = changes_key(self._site)
        with self._tally.changes_taken() as totals:
            facts = metadata.changes(totals)
            if self._changes_are_made:
                self._log(dg.AssetObservation(asset_key=key, metadata=facts))
            else:
                facts |= self._facts.data_docs()
                self._log(dg.AssetMaterialization(asset_key=key, metadata=facts, tags=version_tags(self._site.slot)))
            self._log_own(totals)
        self._changes_are_made = True
        self._log_expectations()

    def _log_own(self, totals: ChangesTotals) -> None:
        """Log the rows appended to the tables of the stream's own."""
        for table in self._site.own_tables:
            if rows := totals.own_rows[table]:
                told: metadata.Metadata = {"rows": rows, "lsn": str(totals.commit_lsn)}
                self._log(dg.AssetMaterialization(asset_key=own_key(self._site, table), metadata=told))

    def _log_expectations(self) -> None:
        """Log what the expectations decided, with the changes that they judged and before the tables merged from them.

        A failure is logged at once, and not once a minute as the changes.
        """
        batches, failed = self._tally.judged_batches
        result = changes_result(self._site, self._tally.judgements(), batches, failed)
        self._evaluations.log(result, expectations_key(self._site), blocking=True)
        self._told_failed = failed

    def _log_slot_health(self) -> None:
        """Log the slot's checks: the job evaluates them only after the stream, which may be in an hour."""
        try:
            slot_results = results(self._site, self._site.open().pending())
        except CdcError:
            return  # an unavailable server is reported by the stream
        state, now = [bool(result.passed) for result in slot_results], time.monotonic()
        reported, at = self._told_slot
        if state == reported and now - at < SAME_SECONDS:
            return
        self._told_slot = state, now
        for result, key in zip(slot_results, check_keys(self._site), strict=True):
            self._evaluations.log(result, key, blocking=False)

    def _log_notifications(self, *, is_last: bool = False) -> None:
        """Notifications of snapshots taken by the streaming run."""
        for observation in self._notifications.due(is_last=is_last):
            self._log(observation)

    def _log_table(self, table: TableId, *, all_checks: bool = False) -> None:
        with self._tally.taken(table) as summary:
            if summary.totals.rounds:
                self._log(self._materialisation(summary))
                summary.reported = True
            if all_checks or self._has_new_checks(summary):
                self._log_checks(summary)
            elif summary.totals.rounds:
                keys = [dg.AssetCheckKey(lake_key(self._site, table), name) for name in TABLE_CHECKS]
                self._log_checks(summary, {SUITE, *(key.name for key in self._evaluations.hidden(keys))})
        self._say(summary)

    def _has_new_checks(self, summary: TableSummary) -> bool:
        reported, at = self._reported_checks.get(summary.table, (None, 0.0))
        is_same = reported == (summary.error, summary.checks.state())
        return not is_same or time.monotonic() - at >= _SAME_CHECKS_SECONDS

    def _say(self, summary: TableSummary) -> None:
        """Log an error once: a table that is not merged has the same error in every round."""
        if summary.error is not None and self._said.get(summary.table) != summary.error:
            self._context.log.error(f"{summary.table} is not merged: {summary.error}")
        self._said[summary.table] = summary.error

    def _log(self, event: Any) -> None:
        logged(self._context, event)

    def _materialisation(self, summary: TableSummary) -> dg.AssetMaterialization:
        return dg.AssetMaterialization(
            asset_key=lake_key(self._site, summary.table),
            metadata=metadata.table(summary.totals) | self._facts.of(summary.table),
            tags=lake_tags(self._site, summary.table, str(summary.totals.lsn)),
        )

    def _materialised(self, summary: TableSummary) -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(
            asset_key=lake_key(self._site, summary.table),
            metadata=metadata.table(summary.totals) | self._facts.of(summary.table),
            data_version=dg.DataVersion(str(summary.totals.lsn)),
        )

    def _log_checks(self, summary: TableSummary, names: Collection[str] = TABLE_CHECKS) -> None:
        """Log a table's checks as events: a check that fails is not a failure of the run, which did its work.

        That of Great Expectations is logged with each materialization that it judged, the other once it changes. Both
        are where another run has evaluated them: Dagster shows only what was found of the latest materialization.
        """
        table = summary.table
        if table in self._known:
            paused = self._facts.paused(table) if summary.error is not None else None
            places = self._facts.places(table)
            for result in check_results(self._site, table, summary.checks, summary.error, paused, places):
                name = str(result.check_name)
                if name not in names:
                    continue
                key = dg.AssetCheckKey(lake_key(self._site, table), name)
                self._evaluations.log(result, key, blocking=blocks(self._site, name))
        if names is TABLE_CHECKS:
            self._reported_checks[table] = (summary.error, summary.checks.state()), time.monotonic()

    def _changes(self, totals: ChangesTotals, report: StreamReport, with_data_docs: bool) -> dg.MaterializeResult[Any]:
        facts = metadata.changes(totals) | metadata.stream(report)
        if with_data_docs:
            facts |= self._data_docs()
        # The same version at every position: each table has its own changes, and those of others do not make it out of
        # date.
        return dg.MaterializeResult(
            asset_key=changes_key(self._site), metadata=facts, data_version=dg.DataVersion(self._site.slot)
        )

    def _data_docs(self) -> metadata.Metadata:
        """Great Expectations' pages about this run's judgements, in the connector's state folder."""
        from cdc_core.quality import write_data_docs

        try:
            places = {str(table): self._facts.place(table) for table in self._tally.tables()}
            index = write_data_docs(
                self._site.state_path.resolve() / DATA_DOCS_FOLDER, self._tally.judgements(), places
            )
        except Exception as error:
            # Missing pages are not a reason to fail a successful stream.
            self._context.log.warning(f"The data docs could not be written: {type(error).__name__}: {error}")
            return {}
        return {"data_docs": data_docs_link(self._site, index)} if index else {}

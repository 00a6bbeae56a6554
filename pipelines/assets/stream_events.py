"""What a run of the stream tells Dagster: observations while it runs, materialisations and check results at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from cdc_core.engine.reports import BatchReport, CheckReport, MergeReport, RoundReport, StreamReport
from cdc_core.schema.table import TableId
from pipelines import metadata
from pipelines.checks.tables import check_results
from pipelines.keys import changes_key, lake_key
from pipelines.lake_facts import LakeFacts
from pipelines.site import Site

DATA_DOCS = "data_docs"


class StreamEvents:
    """Gathers a run's reports. Tables that the loaded definitions do not know are reported too, as plain events."""

    def __init__(self, context: dg.AssetExecutionContext, site: Site, facts: LakeFacts) -> None:
        self._context = context
        self._facts = facts
        self._site = site
        self._known = {table.id for table in site.tables}
        self._rounds: list[RoundReport] = []

    def on_batch(self, report: BatchReport) -> None:
        """One micro-batch, as a point in the plots of the changes."""
        key = changes_key(self._site)
        self._context.log_event(dg.AssetObservation(asset_key=key, metadata=metadata.batch(report)))

    def on_round(self, report: RoundReport) -> None:
        """One merge round, as a point in the plots of each table it touched."""
        self._rounds.append(report)
        for merge in report.merges:
            key = lake_key(self._site, merge.table)
            self._context.log_event(dg.AssetObservation(asset_key=key, metadata=metadata.merge(merge, report)))
        for table, error in report.failed.items():
            self._context.log.error(f"{table} stands still: {error}")

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        """Record what the rounds before an error brought into the lake, for that stays."""
        try:
            yield
        except BaseException:  # a run that is cancelled ends with an interrupt
            for table, pairs in self._merges().items():
                self._context.log_event(self._plain_event(table, pairs))
            raise

    def results(self, report: StreamReport, *, with_data_docs: bool) -> Iterator[Any]:
        """Materialisations of the changes and of each table with news, and every table's check results."""
        merged, failed = self._merges(), self._failed()
        whole = metadata.stream(report)
        if with_data_docs:
            whole |= self._data_docs()
        if changes_key(self._site) in self._context.selected_asset_keys:
            yield dg.MaterializeResult(
                asset_key=changes_key(self._site), metadata=whole, data_version=dg.DataVersion(str(report.lsn))
            )
        for table in sorted({*merged, *failed}):
            pairs = merged.get(table, [])
            if table not in self._known or lake_key(self._site, table) not in self._context.selected_asset_keys:
                if pairs:
                    self._context.log_event(self._plain_event(table, pairs))
                continue
            if pairs and table not in failed:
                yield self._materialised(table, pairs)
            elif pairs:
                # The rounds before the failing one did reach the lake.
                self._context.log_event(self._plain_event(table, pairs))
            yield from self._checks(table, pairs, failed.get(table))

    def _checks(
        self, table: TableId, pairs: list[tuple[RoundReport, MergeReport]], error: str | None
    ) -> Iterator[dg.AssetCheckResult]:
        checks: list[CheckReport] = [merge.check for _, merge in pairs if merge.check is not None]
        wanted = self._context.selected_asset_check_keys
        for result in check_results(self._site, table, checks, error):
            if dg.AssetCheckKey(lake_key(self._site, table), str(result.check_name)) in wanted:
                yield result

    def _materialised(self, table: TableId, pairs: list[tuple[RoundReport, MergeReport]]) -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(
            asset_key=lake_key(self._site, table),
            metadata=metadata.merges(pairs) | self._facts.of(table),
            data_version=dg.DataVersion(str(pairs[-1][1].lsn)),
        )

    def _plain_event(self, table: TableId, pairs: list[tuple[RoundReport, MergeReport]]) -> dg.AssetMaterialization:
        return dg.AssetMaterialization(asset_key=lake_key(self._site, table), metadata=metadata.merges(pairs))

    def _merges(self) -> dict[TableId, list[tuple[RoundReport, MergeReport]]]:
        found: dict[TableId, list[tuple[RoundReport, MergeReport]]] = {}
        for report in self._rounds:
            for merge in report.merges:
                found.setdefault(merge.table, []).append((report, merge))
        return found

    def _failed(self) -> dict[TableId, str]:
        """The tables that the last round left behind: an earlier failure that passed is none."""
        return dict(self._rounds[-1].failed) if self._rounds else {}

    def _data_docs(self) -> metadata.Metadata:
        """Great Expectations' pages about this run's last validations, beside the connector's state."""
        from cdc_core.quality.great_expectations import write_data_docs

        try:
            index = write_data_docs(self._site.state_path.resolve() / DATA_DOCS)
        except OSError as error:
            self._context.log.warning(f"The data docs could not be written: {error.strerror}.")
            return {}
        return {"data_docs": dg.MetadataValue.path(str(index))} if index else {}

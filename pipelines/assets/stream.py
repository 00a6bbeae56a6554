"""The stream as one step: the slot's drain into the changelog, and each captured table of the lake with its checks."""

# Dagster looks at the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from cdc_core.engine.reports import StreamReport, Until
from cdc_core.lsn import Lsn
from pipelines.assets.beside import Beside
from pipelines.assets.failure import reported, retried
from pipelines.assets.interrupts import held
from pipelines.assets.source import table_metadata
from pipelines.assets.stream_events import StreamEvents
from pipelines.checks.tables import check_specs
from pipelines.keys import changes_key, lake_key, snapshot_key, source_key
from pipelines.lake_facts import LakeFacts
from pipelines.resources import spark_key
from pipelines.site import Site
from pipelines.slot_runs import Turn
from pipelines.stream_tally import RunTally

FIRST_REPORT_SECONDS = 3.0


class StreamConfig(dg.Config):
    """Where a run of the stream ends, whichever comes first, and how often it reports.

    A run costs seconds to start and minutes to become fast, so it lasts. It ends earlier, after the round at hand,
    when another run of its slot waits. ``report_seconds`` is the time between two reports of one table.
    """

    max_seconds: float = 3600.0
    idle_seconds: float = 300.0
    max_rows: int | None = None
    until_lsn: str | None = None
    report_seconds: float = 60.0
    data_docs: bool = True

    def until(self) -> Until:
        """The same as the engine takes it; a bound of 0 is none."""
        lsn = Lsn.parse(self.until_lsn) if self.until_lsn else None
        return Until(lsn, self.idle_seconds or None, self.max_seconds or None, self.max_rows or None)


def stream_assets(site: Site) -> dg.AssetsDefinition:
    """Changes and lake tables of a connector, made together: one process, one Spark session, one consumer."""
    tables = [table.id for table in site.tables]

    @dg.multi_asset(
        name=f"{site.safe_name}_stream",
        specs=[_changes_spec(site), *_lake_specs(site)],
        check_specs=[spec for table in tables for spec in check_specs(site, table)],
        can_subset=True,
        pool=site.pool,
        required_resource_keys={spark_key(site)},
    )
    def stream(context: dg.AssetExecutionContext, config: StreamConfig) -> Iterator[Any]:
        tally = RunTally(FIRST_REPORT_SECONDS, config.report_seconds)
        events = StreamEvents(context, site, tally, LakeFacts(site))
        turn = Turn(context.instance, context.run.run_id, site)

        def drain(should_stop: Callable[[], bool]) -> StreamReport:
            return site.open().stream(
                config.until(),
                # Started by the engine beside its other beginnings, and never in the main thread, where PySpark would
                # take the handler of interrupts from Dagster.
                spark=lambda: getattr(context.resources, spark_key(site)).spark_session,
                on_batch=tally.add_batch,
                on_round=tally.add_round,
                should_stop=should_stop,
            )

        work = Beside(drain, f"stream-{site.safe_name}")

        def tick() -> None:
            with held():
                events.report_due()
            reason = turn.reason()
            if reason is not None and work.stop():
                context.log.info(f"The stream ends after this round: {reason}.")

        with retried(context), reported():
            try:
                report = work.run(tick, context.log)
                yield from events.results(report, with_data_docs=config.data_docs)
            finally:
                with held():
                    events.flush()

    return stream


def _changes_spec(site: Site) -> dg.AssetSpec:
    return dg.AssetSpec(
        changes_key(site),
        deps=[source_key(site, table.id) for table in site.tables],
        group_name=site.safe_name,
        kinds={"postgres", "delta", "spark"},
        skippable=True,
        description=f"Drains the slot {site.slot} into one changelog table a captured table, each event once.",
    )


def _lake_specs(site: Site) -> list[dg.AssetSpec]:
    return [
        dg.AssetSpec(
            lake_key(site, table.id),
            deps=[changes_key(site), snapshot_key(site)],
            group_name=site.safe_name,
            kinds={"delta", "spark"},
            # A table without news in a run is not materialised by it.
            skippable=True,
            description=f"Table {table.id} of the source as a Delta table, merged from its changelog.",
            metadata=table_metadata(table),
        )
        for table in site.tables
    ]

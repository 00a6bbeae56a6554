"""The stream as one step: the changelog, and each captured table of the lake with its checks."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import dagster as dg

from cdc_core.engine import StreamReport, Until
from cdc_core.lake import StreamTable
from cdc_core.lsn import Lsn
from wal2lake.pipelines.assets.notification_events import NotificationEvents
from wal2lake.pipelines.assets.source import named
from wal2lake.pipelines.assets.stream_events import StreamEvents
from wal2lake.pipelines.assets.streaming import streaming
from wal2lake.pipelines.connector.keys import changes_key, lake_key, own_key, snapshot_key, source_key
from wal2lake.pipelines.connector.site import Engine, Site
from wal2lake.pipelines.jobs.connector import stream_job_name
from wal2lake.pipelines.reports.freshness import freshness_policy
from wal2lake.pipelines.reports.lake_facts import LakeFacts
from wal2lake.pipelines.reports.metadata import CHANGES_HELP, TABLE_HELP
from wal2lake.pipelines.reports.stream_tally import RunTally
from wal2lake.pipelines.step.failure import reported, retried
from wal2lake.pipelines.step.resources import spark_key

FIRST_REPORT_SECONDS = 3.0
# A run that was to bring assets up to date ends when the slot has had no changes for so long.
CAUGHT_UP_SECONDS = 10.0
_CHANGES = (
    "Consumes the replication slot {}: each event is appended exactly once to the changelog table of its source table."
)


_OWN = {
    StreamTable.MESSAGES: "Logical messages (pg_logical_emit_message) as a Delta table.",
    StreamTable.TRANSACTIONS: "Begin and end of each transaction, with its numbers of events, as a Delta table.",
}


class StreamConfig(dg.Config):
    """Limits of a streaming run, of which the first that is reached ends the run, and its reporting interval.

    A run takes seconds to start and minutes to warm up, so it is long by default. It ends earlier, after its current
    round, when another run of its slot is waiting. ``report_seconds`` is the interval between reports of a table.
    """

    max_seconds: float = 3600.0
    idle_seconds: float = 300.0
    max_rows: int | None = None
    until_lsn: str | None = None
    report_seconds: float = 60.0
    data_docs: bool = True

    def until(self) -> Until:
        """The limits for the engine; 0 means no limit."""
        lsn = Lsn.parse(self.until_lsn) if self.until_lsn else None
        return Until(lsn, self.idle_seconds or None, self.max_seconds or None, self.max_rows or None)


def stream_assets(site: Site) -> dg.AssetsDefinition:
    """Changelog and lake assets of a connector, materialized together: one process, Spark session and consumer."""

    @dg.multi_asset(
        name=f"{site.safe_name}_stream",
        specs=[
            changes_spec(site, {"postgres", "delta", "spark"}, _CHANGES.format(site.slot) + CHANGES_HELP),
            *_lake_specs(site),
        ],
        can_subset=True,
        pool=site.pool,
        required_resource_keys={spark_key(site)},
    )
    def stream(context: dg.AssetExecutionContext, config: StreamConfig) -> Iterator[Any]:
        tally = RunTally(FIRST_REPORT_SECONDS, config.report_seconds)
        notifications = NotificationEvents(site)
        events = StreamEvents(context, site, tally, LakeFacts(site), notifications)
        is_stream = context.run.job_name == stream_job_name(site)

        def drain(should_stop: Callable[[], bool]) -> StreamReport:
            engine = site.open()
            return engine.stream(
                config.until() if is_stream else _caught_up(context, engine, config),
                # Started by the engine concurrently with its other preparations, and never in the main thread, where
                # PySpark would replace Dagster's handler of interrupts.
                spark=lambda: getattr(context.resources, spark_key(site)).spark_session,
                on_batch=tally.add_batch,
                on_round=tally.add_round,
                should_stop=should_stop,
                on_notification=notifications.listen,
            )

        with retried(context), reported():
            if not site.open().streams:
                context.log.warning("snapshot.mode does not stream changes: nothing is read from the slot.")
                return
        if not is_stream and context.selected_asset_keys == {changes_key(site)} and not _has_slot(context, site):
            yield _nothing_yet(context, site)
            return
        with streaming(context, site, drain, events) as report:
            yield from events.results(report, with_data_docs=config.data_docs)
            if not is_stream:
                yield from events.unchanged()

    return stream


def _has_slot(context: dg.AssetExecutionContext, site: Site) -> bool:
    with retried(context), reported():
        return site.open().pending().slot_exists


def _nothing_yet(context: dg.AssetExecutionContext, site: Site) -> dg.MaterializeResult[Any]:
    """The changelog of a connector without a slot, if only this asset was selected: it has no changes yet.

    A backfill of all assets selects it before or after the snapshot, which makes the slot, and for the lake tables
    once it has both.
    """
    context.log.info(f"The replication slot {site.slot} does not exist yet: the first snapshot makes it.")
    return dg.MaterializeResult(
        asset_key=changes_key(site), metadata={"events": 0}, data_version=dg.DataVersion(site.slot)
    )


def _caught_up(context: dg.AssetExecutionContext, engine: Engine, config: StreamConfig) -> Until:
    """The limits of a run that materializes assets: launched by hand, or by another job than the stream's.

    It is expected to bring them up to date and to end: at the position where the server's WAL ends now, or once the
    slot is idle.
    """
    until = config.until()
    if until.lsn is not None:
        return until
    now = engine.pending().wal_end_lsn
    context.log.info(f"This run ends when it is up to date: at {now}, where the server's WAL ends now.")
    return replace(until, lsn=now, idle_seconds=min(until.idle_seconds or CAUGHT_UP_SECONDS, CAUGHT_UP_SECONDS))


def changes_spec(site: Site, kinds: set[str], description: str) -> dg.AssetSpec:
    """The asset of a connector's stream, for every destination."""
    return dg.AssetSpec(
        changes_key(site),
        group_name=site.group(),
        kinds=kinds,
        owners=site.owners,
        tags=site.tags,
        skippable=True,
        description=description,
    )


def own_specs(site: Site) -> list[dg.AssetSpec]:
    """The tables of the stream's own. The stream's step logs their materializations, when it has appended rows."""
    return [
        dg.AssetSpec(
            own_key(site, table),
            deps=[changes_key(site)],
            group_name=site.group(),
            kinds={"delta"},
            owners=site.owners,
            tags=site.tags,
            description=_OWN[table],
            metadata={"path": dg.MetadataValue.path(table.path(site.paths()))},
        )
        for table in site.own_tables
    ]


def _lake_specs(site: Site) -> list[dg.AssetSpec]:
    facts = LakeFacts(site)
    return [
        dg.AssetSpec(
            lake_key(site, table.id),
            deps=[source_key(site, table.id), snapshot_key(site), changes_key(site)],
            group_name=site.group("lake"),
            kinds={"delta", "spark"},
            owners=site.owners,
            tags=site.tags,
            # A run does not materialize a table without changes.
            skippable=True,
            description=f"Source table {table.id} as a Delta table, merged from its changelog by "
            f"{stream_job_name(site)}.{TABLE_HELP}",
            metadata=named(table) | facts.expected(table.id),
            freshness_policy=freshness_policy(site, table.id),
        )
        for table in site.tables
    ]

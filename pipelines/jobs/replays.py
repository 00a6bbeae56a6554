"""The job that replays quarantined changes and resumes paused tables, as ``wal2lake replay``.

It writes to the slot's tables and uses the slot's pool, like a snapshot: a streaming run ends after its current round,
and the sensor starts the next one afterwards.
"""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_core.engine import ReplayReport, TableStatus
from cdc_core.errors import CdcError, ConfigError, TableError
from cdc_core.schema import TableId
from wal2lake.pipelines.checks.evaluation import evaluation
from wal2lake.pipelines.checks.tables import blocks, state_results
from wal2lake.pipelines.connector.keys import lake_key
from wal2lake.pipelines.connector.site import Engine, Site
from wal2lake.pipelines.jobs.connector import SLOT_TAG
from wal2lake.pipelines.jobs.signals import matched_tables
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.reports.lake_facts import LakeFacts
from wal2lake.pipelines.reports.provenance import lake_tags
from wal2lake.pipelines.step.background import BackgroundWork
from wal2lake.pipelines.step.failure import reported
from wal2lake.pipelines.step.resources import spark_key

_STOP_SECONDS = 60.0


class ReplayConfig(dg.Config):
    """Tables whose changes are merged again."""

    tables: list[str] = Field(
        default=[],
        description="Captured tables (schema.table), or regular expressions that match such names. Empty: all "
        "paused tables and all tables with changes in quarantine; with accept, accept_all or drop those that rules "
        "keep back.",
    )
    accept: list[str] = Field(default=[], description="Rules whose failures are accepted, such as user:email_shape.")
    accept_all: bool = Field(default=False, description="Accept the changes regardless of the rules they fail.")
    drop: bool = Field(default=False, description="Discard the quarantined changes instead.")

    def checked(self) -> "ReplayConfig":
        """Return itself. Raises ConfigError if its fields contradict each other."""
        if self.drop and (self.accept or self.accept_all):
            raise ConfigError("drop cannot be combined with accept or accept_all.", "Remove one of them.")
        return self

    def needed_by(self, status: TableStatus) -> bool:
        """Whether a table that was not named needs the replay."""
        if status.paused is None:
            return status.quarantined > 0
        is_decided = self.drop or self.accept_all or bool(self.accept)
        return status.quarantined > 0 or status.paused.by_rules or not is_decided


def replay_job_name(site: Site) -> str:
    """The name of the job."""
    return f"{site.safe_name}_replay_job"


def replay_job(site: Site) -> dg.JobDefinition:
    """The job of a connector."""

    @dg.op(
        name=f"{site.safe_name}_replay",
        description="Checks quarantined changes with the current rules, merges those that pass, and merges the changes "
        "of paused tables.",
        pool=site.pool,
        required_resource_keys={spark_key(site)},
    )
    def replay(context: dg.OpExecutionContext, config: ReplayConfig) -> None:
        with reported():
            config.checked()
            engine = site.open()
            tables = _chosen(engine, config)

            def one(table: TableId) -> None:
                session = getattr(context.resources, spark_key(site)).spark_session
                done = engine.replay(table, session, None, config.accept, config.accept_all, config.drop)
                context.log.info(told(done))

            _work(context, site, engine, tables, one)

    @dg.job(
        name=replay_job_name(site),
        description="Checks quarantined changes again and merges those that pass, in their original order; with accept "
        "or drop, accepts or discards them. A paused table whose cause is corrected resumes: its changes are merged "
        "from the changelog, and it is re-read only if that is not possible.",
        tags={SLOT_TAG: site.pool},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        replay()

    return job


def told(done: ReplayReport) -> str:
    """Return a table's replay as a line for the log."""
    read = f"{done.snapshot.rows:,} rows re-read as of {done.snapshot.lsn}, " if done.snapshot is not None else ""
    quarantine = done.quarantine
    return (
        f"{done.table}: {read}{done.events:,} changes merged; {quarantine.replayed:,} replayed from quarantine, "
        f"{quarantine.dropped:,} dropped, {quarantine.waiting:,} still waiting"
    )


def _chosen(engine: Engine, config: ReplayConfig) -> list[TableId]:
    """Return the requested tables, or those that need it if none is requested. Raises ConfigError if unknown."""
    if not config.tables:
        return [status.table for status in engine.status().tables if config.needed_by(status)]
    return matched_tables(engine, config.tables)


def _work(
    context: dg.OpExecutionContext,
    site: Site,
    engine: Engine,
    tables: Sequence[TableId],
    replay: Callable[[TableId], None],
) -> None:
    """Do ``replay`` for each table, then report the tables to Dagster. A failed table does not affect the others."""
    if not tables:
        context.log.info("No table is paused or has changes in quarantine: nothing to do.")
        return
    failed: dict[TableId, CdcError] = {}

    def each(should_stop: Callable[[], bool]) -> None:
        for table in tables:
            if should_stop():
                return
            try:
                replay(table)
            except TableError as error:
                failed[table] = error

    # Not in the main thread, where PySpark would replace Dagster's handler of interrupts.
    BackgroundWork(each, f"The replay of {site.name}").run(lambda: None, context.log, _STOP_SECONDS)
    done = [status for status in engine.status().tables if status.table in set(tables) - set(failed)]
    _report(context, site, done)
    if failed:
        raise TableError(
            f"{len(failed)} of {len(tables)} tables could not be resumed: "
            + " ".join(f"{table}: {error.message}" for table, error in failed.items()),
            "Correct the cause given for each table and run the job again.",
            ", ".join(map(str, failed)),
        )


def _report(context: dg.OpExecutionContext, site: Site, done: Sequence[TableStatus]) -> None:
    """Materialize the tables at their new positions, and evaluate all their checks again."""
    facts = LakeFacts(site)
    known = {table.id for table in site.tables}
    for status in done:
        key = lake_key(site, status.table)
        entries: metadata.Metadata = {"lsn": str(status.lake_lsn), "waiting": status.quarantined}
        if status.lake_version is not None:
            entries["delta_version"] = status.lake_version
        context.log_event(
            dg.AssetMaterialization(
                asset_key=key,
                metadata=entries | facts.of(status.table),
                tags=lake_tags(site, status.table, str(status.lake_lsn)),
            )
        )
    for result in state_results(site, [status for status in done if status.table in known]):
        name = str(result.check_name)
        event: Any = evaluation(result, dg.AssetCheckKey(result.asset_key, name), blocking=blocks(site, name))  # type: ignore[arg-type]
        context.log_event(event)

"""The Spark session of a connector's runs: started at first use with the engine's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from wal2lake.pipelines.connector.keys import incremental_key, is_maintenance, snapshot_key, uses_slot
from wal2lake.pipelines.connector.site import Site


def spark_key(site: Site) -> str:
    """The name of the connector's Spark resource."""
    return f"spark_{site.safe_name}"


# The settings of the connector file are not its default: they may contain secrets, which launchpads would show.
_SCHEMA = {
    "spark_config": dg.Field(
        dict,
        default_value={},
        description="Settings of Spark, such as spark.master and spark.executor.memory, for this run; they prevail "
        "over wal2lake.spark.* of the connector and over a component's settings of a job.",
    )
}


def spark_resource(site: Site) -> dg.ResourceDefinition:
    """The connector's Spark session as dagster-pyspark's lazy resource; no JVM is started before an asset uses it."""

    def made(context: dg.InitResourceContext) -> Any:
        # PySpark is imported by the runs that use it, and not by each process that loads the definitions.
        from wal2lake.pipelines.step.spark import QuietSparkResource

        own = {} if context.run is None else settings_of(context.run, site)
        return QuietSparkResource(
            spark_config={**site.spark_settings, **own, **context.resource_config["spark_config"]}
        )

    description = f"The Spark session of {site.name}, by dagster-pyspark: started at its first use."
    return dg.ResourceDefinition(made, _SCHEMA, description)


def settings_of(run: dg.DagsterRun, site: Site) -> Mapping[str, str]:
    """The settings of Spark of the run's job; of assets that were selected without a job, of their job."""
    return site.job_spark_settings.get(_job_of(run, site), {})


def _job_of(run: dg.DagsterRun, site: Site) -> str:
    jobs = {snapshot_key(site): "snapshot", incremental_key(site): "incremental_snapshot"}
    for key in run.asset_selection or ():
        if key in jobs:
            return jobs[key]
        if is_maintenance(site, key):
            return "maintenance"
        if uses_slot(site, key):
            return "stream"
    return run.job_name.removeprefix(f"{site.safe_name}_").removesuffix("_job")

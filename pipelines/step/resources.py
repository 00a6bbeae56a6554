"""The Spark session of a connector's runs: started at first use with the engine's settings."""

from __future__ import annotations

from typing import Any

import dagster as dg

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
        "over wal2lake.spark.* of the connector.",
    )
}


def spark_resource(site: Site) -> dg.ResourceDefinition:
    """The connector's Spark session as dagster-pyspark's lazy resource; no JVM is started before an asset uses it."""

    def made(context: dg.InitResourceContext) -> Any:
        # PySpark is imported by the runs that use it, and not by each process that loads the definitions.
        from wal2lake.pipelines.step.spark import QuietSparkResource

        return QuietSparkResource(spark_config={**site.spark_settings, **context.resource_config["spark_config"]})

    description = f"The Spark session of {site.name}, by dagster-pyspark: started at its first use."
    return dg.ResourceDefinition(made, _SCHEMA, description)

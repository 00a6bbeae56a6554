"""The Spark session of a connector's runs: started at first use with the engine's settings."""

from __future__ import annotations

from typing import Any

import dagster as dg

from pipelines.connector.site import Site


def spark_key(site: Site) -> str:
    """The name of the connector's Spark resource."""
    return f"spark_{site.safe_name}"


def spark_resource(site: Site) -> dg.ResourceDefinition:
    """The connector's Spark session as dagster-pyspark's lazy resource; no JVM is started before an asset uses it."""

    def made(_: dg.InitResourceContext) -> Any:
        # PySpark is imported by the runs that use it, and not by each process that loads the definitions.
        from pipelines.step.spark import QuietSparkResource

        return QuietSparkResource(spark_config=dict(site.spark_settings))

    return dg.ResourceDefinition(made, description=f"The Spark session of {site.name}: started at its first use.")

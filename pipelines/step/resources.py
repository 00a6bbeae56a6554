"""The Spark session of a connector's runs: started at first use with the engine's settings."""

from __future__ import annotations

from dagster_pyspark import LazyPySparkResource

from cdc_core.spark.session import spark_conf
from pipelines.connector.site import Site


def spark_key(site: Site) -> str:
    """The name of the connector's Spark resource."""
    return f"spark_{site.safe_name}"


def spark_resource(site: Site) -> LazyPySparkResource:
    """The connector's Spark session; no JVM is started before an asset uses it."""
    return LazyPySparkResource(spark_config=dict(spark_conf(site.spark_settings)))

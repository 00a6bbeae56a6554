"""The Spark session of a connector's runs: started at first use with the engine's settings."""

from __future__ import annotations

from typing import Any

from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from cdc_core.spark.session import get_session
from pipelines.connector.site import Site


class QuietSparkResource(LazyPySparkResource):  # type: ignore[misc]
    """Starts Spark as the command line does: without Spark's startup messages in the run's log."""

    _spark_session: Any = PrivateAttr(default=None)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = get_session(self.spark_config)


def spark_key(site: Site) -> str:
    """The name of the connector's Spark resource."""
    return f"spark_{site.safe_name}"


def spark_resource(site: Site) -> LazyPySparkResource:
    """The connector's Spark session; no JVM is started before an asset uses it."""
    return QuietSparkResource(spark_config=dict(site.spark_settings))

"""dagster-pyspark's lazy resource with the engine's own Spark session."""

from __future__ import annotations

from typing import Any

from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import PrivateAttr

from cdc_core.spark import get_session


class QuietSparkResource(LazyPySparkResource):  # type: ignore[misc]
    """Starts Spark as the command line does: without Spark's startup messages in the run's log."""

    _spark_session: Any = PrivateAttr(default=None)

    def _init_session(self) -> None:
        if self._spark_session is None:
            # As dagster-pyspark does, settings may be nested: {"spark": {"executor": {"memory": "2g"}}}.
            self._spark_session = get_session(dict(flatten_dict(self.spark_config)))  # type: ignore[no-untyped-call]

"""The Spark context of a borrowed Java process, which the next run takes where it would start the same.

To start a context and its Python workers, and to stop them, is a third of what a run computes that merges a few rows.
``Program`` stops the context after a run that was killed, failed or left a job.
"""

from __future__ import annotations

import os
from typing import Any

_SETTINGS = "wal2lake.tests.settings"  # of the context, among Java's properties


def lend() -> None:
    """In the process that forks runs: have each of them look for the context of its Java process first."""
    from pyspark import SparkContext

    start = SparkContext._initialize_context

    def taken_or_started(python: Any, settings: Any) -> Any:
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            return start(python, settings)
        jvm = python._jvm
        active, wanted = _companion(jvm).getActive(), settings.toDebugString()
        if active.isDefined() and jvm.System.getProperty(_SETTINGS) == wanted:
            return jvm.JavaSparkContext.fromSparkContext(active.get())
        if active.isDefined():
            active.get().stop()
        jvm.System.setProperty(_SETTINGS, wanted)
        return start(python, settings)

    SparkContext._initialize_context = taken_or_started  # type: ignore[method-assign]


def _companion(jvm: Any) -> Any:
    """What has the methods of ``SparkContext`` that are Spark's own."""
    return jvm.java.lang.Class.forName("org.apache.spark.SparkContext$").getField("MODULE$").get(None)

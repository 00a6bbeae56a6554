"""One Spark session for one process, and the settings that make it fit for many small Delta commits.

``spark_conf`` is a plain dictionary, so whoever builds the session (we, or Dagster's ``LazyPySparkResource``) gets the
same one. Delta's jars come from ``WAL2LAKE_DELTA_JARS`` (a folder, or a list of files), else from the list that an
earlier start resolved, else from Maven Central by Spark's own Ivy (``DEFAULT_ARTIFACT_REPOSITORY`` names a mirror).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cdc_core.errors import ConfigError
from cdc_core.spark.quiet_start import quiet_start

JARS_VARIABLE = "WAL2LAKE_DELTA_JARS"
_SCALA = "2.13"


def spark_conf(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every setting of the session, ``extra`` on top (its ``spark.jars`` and ``spark.jars.packages`` join ours).

    Also sets ``PYSPARK_PYTHON`` in this process unless it is set: else Spark takes another Python from the PATH.
    Raises ConfigError when ``WAL2LAKE_DELTA_JARS`` names no jar.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    given = {str(key): str(value) for key, value in (extra or {}).items()}
    master = given.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    cores = str(_local_cores(master))
    conf = {
        "spark.master": master,
        "spark.app.name": "wal2lake",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A table's log is replayed by a Spark job; its default of 50 partitions costs seconds a MERGE on small tables.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
        # Delta's VACUUM lists a table's folders in so many tasks, however few there are; Spark's default is 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        # Dates before 1582 are PostgreSQL's proleptic Gregorian ones, as Spark's own.
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        # Spark's default, INT96, is read as nanoseconds by others (delta-rs, pandas): instants past 1677 to 2262 wrap.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "wal2lake-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.debug.maxToStringFields": "10",
        "spark.python.worker.reuse": "true",
        # Over TCP every job waits some 40 ms for its tasks' input: each side holds small packets back for the other.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf |= {key: value for key, value in given.items() if key not in ("spark.jars", "spark.jars.packages")}
    return conf | _jars(given)


def get_session(extra: Mapping[str, str] | None = None) -> SparkSession:
    """The process's session, started with ``spark_conf(extra)`` unless one runs already.

    Raises ConfigError where Java is missing or refuses to start.
    """
    return get_context(extra).session


def get_context(extra: Mapping[str, str] | None = None) -> LazySession:
    """The same with the context alone started: a session costs two seconds more, and rounds in tasks need none."""
    conf = SparkConf()
    for key, value in spark_conf(extra).items():
        conf.set(key, value)
    try:
        with quiet_start() as stderr:
            if SparkContext._gateway is None:
                # Java prints to stdout too (VACUUM does), where a command's own output stands.
                pipes = {"stdout": stderr, "stderr": stderr}
                SparkContext._ensure_initialized(gateway=launch_gateway(conf, pipes))
            context = SparkContext.getOrCreate(conf)
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise ConfigError(
            "Spark's Java process did not start.", "Install Java 17 or 21, or set JAVA_HOME to its folder."
        ) from None
    remember_jars(context)
    return LazySession(context)


class LazySession:
    """Stands for the session over a running context, and makes it when something else than the context is asked for."""

    def __init__(self, context: SparkContext) -> None:
        self.sparkContext = context

    @cached_property
    def session(self) -> SparkSession:
        """The session; the context's settings are its own."""
        return SparkSession.builder.getOrCreate()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def remember_jars(context: SparkContext) -> None:
    """Keep the list of jars that Ivy resolved for this context, so that the next start need not ask again (6 s)."""
    conf = context.getConf()
    if not conf.get("spark.jars.packages"):
        return
    # Only a resolution of Delta alone can be reused: packages of the user's are asked for at every start.
    if conf.get("spark.jars.packages") != _delta_package():
        return
    files = [_local_path(entry) for entry in (conf.get("spark.jars") or "").split(",") if entry]
    if not files or not all(file.is_file() for file in files) or not any("delta-spark" in f.name for f in files):
        return
    known = _known_jars_file()
    try:
        known.parent.mkdir(parents=True, exist_ok=True)
        partial = known.with_suffix(f".{os.getpid()}")
        partial.write_text("\n".join(str(file) for file in files))
        partial.replace(known)
    except OSError:
        return  # a cache that cannot be written costs seconds, nothing else


def _jars(given: Mapping[str, str]) -> dict[str, str]:
    own_jars = [entry for entry in given.get("spark.jars", "").split(",") if entry]
    own_packages = [entry for entry in given.get("spark.jars.packages", "").split(",") if entry]
    if any("delta-spark" in entry for entry in own_jars + own_packages):
        jars, packages = own_jars, own_packages
    elif os.environ.get(JARS_VARIABLE):
        jars, packages = own_jars + _named_jars(os.environ[JARS_VARIABLE]), own_packages
    elif known := _known_jars():
        jars, packages = own_jars + known, own_packages
    else:
        jars, packages = own_jars, [_delta_package(), *own_packages]
    out = {"spark.jars": ",".join(jars), "spark.jars.packages": ",".join(packages)}
    return {key: value for key, value in out.items() if value}


def _named_jars(text: str) -> list[str]:
    folder = Path(text)
    found = sorted(str(file) for file in folder.glob("*.jar")) if folder.is_dir() else re.split(r"[,:]", text)
    if not found or not all(Path(file).is_file() for file in found):
        raise ConfigError(
            f"{JARS_VARIABLE} is neither a folder with jars nor a list of existing jars.",
            "Set it to a folder with delta-spark and delta-storage, or unset it to resolve them from Maven.",
        )
    return found


def _known_jars() -> list[str]:
    try:
        files = _known_jars_file().read_text().split("\n")
    except OSError:
        return []
    return files if all(Path(file).is_file() for file in files) else []


def _known_jars_file() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "wal2lake" / f"jars-delta-{version('delta-spark')}-spark-{version('pyspark')}.txt"


def _delta_package() -> str:
    # The coordinates that delta's configure_spark_with_delta_pip would set; that function wants a builder.
    spark = ".".join(version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{spark}_{_SCALA}:{version('delta-spark')}"


def _local_path(entry: str) -> Path:
    return Path(entry.removeprefix("file://").removeprefix("file:"))


def _local_cores(master: str) -> int:
    match = re.match(r"local\[(\d+)", master)
    if match:
        return int(match[1])
    if master == "local":
        return 1
    return os.cpu_count() or 2

"""One Spark session per process, with settings for many small Delta commits.

``spark_conf`` is a plain dictionary, so that everything that builds a session (wal2lake, or Dagster's
``LazyPySparkResource``) gets the same one. Delta's jars are taken from ``WAL2LAKE_DELTA_JARS`` (a folder, or a list of
files), else from the list that an earlier start resolved, else from Maven Central by Spark's own Ivy
(``DEFAULT_ARTIFACT_REPOSITORY`` names a mirror).
"""

from __future__ import annotations

import os
import pwd
import re
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cached_property
from glob import glob
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext, accumulators, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cdc_core.errors import ConfigError, SparkLostError
from cdc_core.spark.class_archive import archive_in, archive_name, reading_options
from cdc_core.spark.environment import INSTALL, cause_in, check_programs, java_program, not_started
from cdc_core.spark.errors import spark_lost
from cdc_core.spark.java_process import JavaProcess, was_killed
from cdc_core.spark.known_jars import JARS_VARIABLE, cache, jars_file, listed_jars
from cdc_core.spark.quiet_start import last_lines, quiet_start

_SCALA = "2.13"
_CLASS_PATH = "spark.driver.extraClassPath"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# What each command sets.
_OWN = ("spark.local.dir", "spark.sql.warehouse.dir")
# Whether Java has started in this process: then it is installed, and one that does not start was ended by something.
_started: list[bool] = []
# An entry for each Java process of this process that was lost.
_lost: list[bool] = []
# Held by the thread that starts Java or a context; the others wait for the result.
_starting = threading.Lock()


def spark_conf(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return every setting of the session, overridden by ``extra``.

    (``spark.jars`` and ``spark.jars.packages`` are joined.) Also sets ``PYSPARK_PYTHON`` in this process unless it is
    set: otherwise Spark uses another Python from the PATH. Raises ConfigError if ``WAL2LAKE_DELTA_JARS`` contains no
    jar.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    user_conf = {str(key): str(value) for key, value in (extra or {}).items()}
    master = user_conf.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    cores = str(_local_cores(master))
    conf = {
        "spark.master": master,
        "spark.app.name": "wal2lake",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A Spark job replays a table's log; the default of 50 partitions takes seconds on small tables.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
        # Number of tasks in which Delta's VACUUM lists a table's folders, however few there are; Spark's default is
        # 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        # Dates before 1582 are proleptic Gregorian in PostgreSQL, as in Spark.
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        # Other readers (delta-rs, pandas) read Spark's default, INT96, as nanoseconds: only timestamps from 1677 to
        # 2262 fit.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "wal2lake-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.debug.maxToStringFields": "10",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "cdc_core.engine.worker_daemon",
        # Over TCP every job waits about 40 ms for its tasks' input, because both sides delay small packets.
        "spark.python.unix.domain.socket.enabled": "true",
        # Connectors of one process have a pool each (``tasks``): a free slot is for the one with the fewest tasks.
        "spark.scheduler.mode": "FAIR",
    }
    if master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # A path without a scheme is on this machine, as for delta-rs, regardless of HADOOP_CONF_DIR.
        conf |= {"spark.hadoop.fs.defaultFS": "file:///"}
    conf |= {key: value for key, value in user_conf.items() if key not in ("spark.jars", "spark.jars.packages")}
    return conf | _jars(user_conf, conf, one_process=re.match(r"local(\[|$)", master) is not None)


def get_session(extra: Mapping[str, str] | None = None) -> SparkSession:
    """Return the process's session, started with ``spark_conf(extra)`` unless one is running.

    Raises ConfigError if Java is missing or does not start, SparkLostError if it was ended while it started.
    """
    return _lazy_session(extra).session


def get_context(extra: Mapping[str, str] | None = None) -> SparkSession:
    """As ``get_session``, but starts only the context: a session takes two more seconds, and tasks do not need one."""
    return cast(SparkSession, _lazy_session(extra))


def _lazy_session(extra: Mapping[str, str] | None) -> LazySession:
    with _starting:
        return _started_session(extra)


def _started_session(extra: Mapping[str, str] | None) -> LazySession:
    _forget_lost()
    settings = spark_conf(extra)
    check_programs(settings["spark.master"].startswith("local"))
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    try:
        _quiet_accumulators()
        with quiet_start() as stderr:
            if SparkContext._gateway is None:
                # Java (VACUUM, for example) also prints to stdout, which is for a command's own output.
                pipes = {"stdout": stderr, "stderr": stderr}
                setattr(java_gateway, "Popen", JavaProcess)  # noqa: B010  (a module's own import, to type checkers)
                gateway: Any = launch_gateway
                SparkContext._ensure_initialized(gateway=gateway(conf, pipes))
            context = SparkContext.getOrCreate(conf)
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        if _started or was_killed():
            raise SparkLostError(
                "Spark's Java process ended while it started.", "Check the memory of this machine."
            ) from None
        raise _not_started(extra or {}) from None
    except Py4JJavaError as error:
        raise not_started(str(error), _of_the_user(extra or {})) from None
    remember_jars(context)
    _started.append(True)
    return LazySession(context)


def _not_started(user_conf: Mapping[str, str] | None = None) -> ConfigError:
    """Java is missing, does not start with the settings ``user_conf``, or runs as a user without a name.

    Such a user has no home directory, and Hadoop no login.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return ConfigError(
            f"Spark's Java process did not start: user {os.getuid()} has no entry in /etc/passwd.",
            "Run as a user that has one; in the image this is 10001.",
        )
    java, said = java_program(), last_lines()
    if cause_in(said) and not java.problem:
        return not_started(said, _of_the_user(user_conf or {}))
    remedy = f"{java.remedy.rstrip('.')}: {java.problem}" if java.problem else INSTALL
    return ConfigError("Spark's Java process did not start.", remedy)


def _of_the_user(given: Mapping[str, str]) -> dict[str, str]:
    """The settings that are not wal2lake's own (``engine/scratch``)."""
    return {key: value for key, value in given.items() if key not in _OWN}


class JavaWatch:
    """Knows whether the Java process has been lost since this object was made, also if another thread noticed first."""

    def __init__(self) -> None:
        self._lost_before = len(_lost)

    def explains(self, error: BaseException) -> SparkLostError | None:
        """Return the error for a Java process that no longer answers; None if ``error`` has another reason."""
        return spark_lost(error, is_lost=len(_lost) > self._lost_before or _is_lost())


def _is_lost() -> bool:
    """Whether the Java process of this process's session has ended, or does not answer.

    A Java process that another process started (``PYSPARK_GATEWAY_PORT``) is called, not inspected.
    """
    gateway = SparkContext._gateway
    if gateway is None:
        return False
    process = getattr(gateway, "proc", None)
    if process is not None:
        return process.poll() is not None
    try:
        gateway.jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return True
    return False


def _forget_lost() -> None:
    """Forget a session whose Java process has ended, so that another one is started."""
    if _is_lost():
        _lost.append(True)
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None


def _quiet_accumulators() -> None:
    """Let the server that gets Spark's accumulators print no stack when Java ends: its connection ends then."""
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        setattr(server, "handle_error", lambda self, request, address: None)  # noqa: B010  (a method, to type checkers)


class LazySession:
    """A proxy of the session over a running context; the session is created when anything but the context is used."""

    def __init__(self, context: SparkContext) -> None:
        self.sparkContext = context

    @cached_property
    def session(self) -> SparkSession:
        """The session, with the context's settings."""
        return SparkSession.builder.getOrCreate()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def remember_jars(context: SparkContext) -> None:
    """Store the list of jars that Ivy resolved for this context, so that the next start need not resolve them (6 s)."""
    conf = context._conf  # getConf() copies all of them, by a call to Java each
    if not conf.get("spark.jars.packages"):
        return
    # Only a resolution of Delta alone can be reused: the user's packages are resolved at every start.
    if conf.get("spark.jars.packages") != _delta_package():
        return
    files = [_local_path(entry) for entry in (conf.get("spark.jars") or "").split(",") if entry]
    if not files or not all(file.is_file() for file in files) or not any("delta-spark" in f.name for f in files):
        return
    known = jars_file()
    try:
        known.parent.mkdir(parents=True, exist_ok=True)
        partial = known.with_suffix(f".{os.getpid()}")
        partial.write_text("\n".join(str(file) for file in files))
        partial.replace(known)
    except OSError:
        return  # without the cache, the next start only takes longer


def class_archive() -> tuple[Path, str | None]:
    """Return the folder and the name of a local session's archive of classes; no name if it cannot have one yet."""
    known = _known_jars()
    return cache(), archive_name(Path(_find_spark_home()), known) if known else None


def _jars(user_conf: Mapping[str, str], conf: Mapping[str, str], one_process: bool) -> dict[str, str]:
    own_jars = [entry for entry in user_conf.get("spark.jars", "").split(",") if entry]
    own_packages = [entry for entry in user_conf.get("spark.jars.packages", "").split(",") if entry]
    started: dict[str, str] = {}
    if any("delta-spark" in entry for entry in own_jars + own_packages):
        jars, packages = own_jars, own_packages
    elif os.environ.get(JARS_VARIABLE):
        jars, packages = own_jars + _named_jars(os.environ[JARS_VARIABLE]), own_packages
    elif (known := _known_jars()) and one_process and not any(os.pathsep in jar for jar in known):
        jars, packages, started = own_jars, own_packages, _started_with(known, conf)
    elif known:
        jars, packages = own_jars + known, own_packages
    else:
        jars, packages = own_jars, [_delta_package(), *own_packages]
    out = {"spark.jars": ",".join(jars), "spark.jars.packages": ",".join(packages), **started}
    return {key: value for key, value in out.items() if value}


def _started_with(jars: list[str], conf: Mapping[str, str]) -> dict[str, str]:
    """Settings that put Delta's jars on the class path that Java starts with: only those classes can be archived.

    For a session of one process: executors of their own would not have them. The jars stand before Spark's and must not
    contain any of its own.
    """
    users = [conf[_CLASS_PATH]] if conf.get(_CLASS_PATH) else []
    archive = archive_in(cache(), archive_name(Path(_find_spark_home()), jars))
    return {
        _CLASS_PATH: os.pathsep.join([*users, *jars]),
        _JAVA_OPTIONS: reading_options(archive, conf.get(_JAVA_OPTIONS, "")),
    }


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
    """The jars of an earlier start that Spark does not bring itself; none if one of them was removed.

    Spark looks into its own jars first, so others of the same name would never be read, but it copies all of them
    (100 MB) at every start of a context.
    """
    brought = {_artifact(name) for name in glob("*.jar", root_dir=Path(_find_spark_home()) / "jars")}
    # Ivy names a file after its organisation, too: org.slf4j_slf4j-api-2.0.13.jar
    return [file for file in listed_jars() if _artifact(Path(file).name.partition("_")[2]) not in brought]


def _artifact(jar: str) -> str:
    """A jar's name without its version."""
    return re.sub(r"-\d[^-]*\.jar$", "", jar)


def _delta_package() -> str:
    # The coordinates that delta's configure_spark_with_delta_pip would set; that function requires a builder.
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
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))  # as Java counts them
    return os.cpu_count() or 2

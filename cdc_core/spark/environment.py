"""The environment of Spark's Java process: variables that are set for it, and those that may prevent its start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_core.errors import ConfigError

INSTALL = "Install Java 17 or 21, or set JAVA_HOME to its folder."
_OLDEST = 17
_SECONDS = 30.0
# Java 24 and later lack the API by which Hadoop gets the user's name.
_NEWEST = 23
# Variables that change how Spark, Java or Hadoop start; their values are the user's.
_READ = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DIST_CLASSPATH", "SPARK_MEM"),
    *("SPARK_DRIVER_MEMORY", "SPARK_ENV_LOADED", "SPARK_PREPEND_CLASSES", "SPARK_CLASSPATH", "SPARK_REMOTE", "MASTER"),
    *("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "JAVA_TOOL_OPTIONS"),
    *("JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_CLASSPATH"),
    *("HADOOP_USER_NAME", "HADOOP_PROXY_USER", "HADOOP_OPTS", "YARN_CONF_DIR"),
)
# Of clusters whose nodes this machine may be one of: a session of one process has its folders and its address from us.
_OF_A_NODE = ("SPARK_LOCAL_DIRS", "SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "CONTAINER_ID", "SPARK_LOCAL_HOSTNAME")
_LOCAL = re.compile(r"spark\.master=local(\[|$)")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_CAUSE = re.compile(r"^(?:Caused by: |: |Exception in thread \S+ )?((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error).*)")
_PLAIN_CAUSE = re.compile(r"(?i)error|exception|unrecognized|invalid|could not|.*: no such")
_SHORT = re.compile(r"(?:[a-z]\w*\.)+([A-Z][\w$]*(?:Exception|Error))")
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """The Java that Spark's script starts. ``version`` is 0, and ``problem`` the cause, if it does not start."""

    path: str
    version: int
    problem: str = ""

    @property
    def remedy(self) -> str:
        """What to do about the problem."""
        variables = [name for name in _READ if name in os.environ and "JAVA" in name]
        return INSTALL.rstrip(".") + (f" (set now: {', '.join(variables)})." if variables else ".")


def java_environment(environment: Mapping[str, str], command: Sequence[str]) -> dict[str, str]:
    """Return the environment in which a command of Spark is to be started.

    A session of one process needs no name of this machine, which may not resolve in a container, and none of the
    folders that a cluster's node has. Java reads and writes names of files in the locale's character set, and compares
    names by the rules of its language.
    """
    made = dict(environment)
    if any(_LOCAL.match(part) for part in command):
        made = {name: value for name, value in made.items() if name not in _OF_A_NODE}
        made["SPARK_LOCAL_IP"] = "127.0.0.1"
    return {**made, "LC_ALL": "C.UTF-8"}


def java_program() -> JavaProgram:
    """Try the Java that Spark's script would start, in this process's environment."""
    home = os.environ.get("JAVA_HOME", "")
    path = f"{home}/bin/java" if home else shutil.which("java") or "java"
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except OSError as error:
        where = f"{path}, as JAVA_HOME says," if home else "Java"
        return JavaProgram(path, 0, f"{where} cannot be started: {error.strerror}.")
    except subprocess.TimeoutExpired:
        return JavaProgram(path, 0, f"{path} -version has not ended within {_SECONDS:g} s.")
    said = done.stdout + done.stderr
    match = _VERSION.search(said)
    if done.returncode or match is None:
        lines = [line for line in said.splitlines() if not line.startswith(("Picked up", "NOTE:"))]
        return JavaProgram(path, 0, f"{path} does not start: {' '.join(lines[:2])[:_LONGEST]}")
    version = int(match[1])
    if not _OLDEST <= version <= _NEWEST:
        return JavaProgram(path, 0, f"{path} is Java {version}, and Spark needs {_OLDEST} to {_NEWEST}.")
    return JavaProgram(path, version)


def check_programs(is_local: bool) -> None:
    """Raise ConfigError if a variable names a Spark or a Python that is not there."""
    home = os.environ.get("SPARK_HOME")
    if home is not None and not (Path(home) / "bin" / "spark-submit").is_file():
        raise ConfigError(
            f"SPARK_HOME is {home!r}, where there is no bin/spark-submit.",
            "Unset it: the Spark that PySpark brings is used then.",
        )
    python = os.environ.get("PYSPARK_PYTHON")
    # access(), which shutil.which calls, ignores capabilities that allow a process to read.
    if is_local and python and not Path(python).is_file() and shutil.which(python) is None:
        raise ConfigError(
            f"PYSPARK_PYTHON is {python!r}, which is no program.", "Unset it: this process's Python is used then."
        )


def not_started(said: str, conf: Mapping[str, str]) -> ConfigError:
    """Return the error for a Spark that does not start, from Java's output and the settings ``conf``."""
    variables = [name for name in _READ if os.environ.get(name)]
    settings = [f"wal2lake.spark.{name}" for name in sorted(conf)]
    places = [
        *([f"the settings {', '.join(settings)}"] if settings else []),
        *([f"the environment's {', '.join(variables)}"] if variables else []),
        *_defaults(),
    ]
    remedy = f"Look for the cause in {'; '.join(places)}." if places else "Run again with --verbose."
    return ConfigError(f"Spark does not start: {cause_in(said)}.", remedy)


def cause_in(said: str) -> str:
    """Return the cause of an error of Java: the last one that it prints; of its scripts, their first line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    causes = [match[1] for line in lines if (match := _CAUSE.match(line)) is not None]
    plain = [line for line in lines if _PLAIN_CAUSE.match(line)]
    found = causes[-1] if causes else plain[0] if plain else ""
    return _SHORT.sub(r"\1", found)[:_LONGEST].rstrip(". ")


def _defaults() -> list[str]:
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    file = Path(folder) / "spark-defaults.conf"
    return [f"the file {file}"] if folder and file.is_file() else []

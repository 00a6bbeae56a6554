"""What Spark, Java and Hadoop read of the environment and of wal2lake.spark.*: it does no harm, or is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.lake import lake_settings, write_properties
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def test_what_keeps_spark_from_starting_is_one_sentence(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("java")
    pg.execute(database, "create table t (id int primary key)")

    def file(**more: str) -> Path:
        settings = pg.properties(database, **{**lake_settings(tmp_path), "slot.max.retries": "0", **more})
        return write_properties(tmp_path / "java.properties", settings)

    nowhere = str(tmp_path / "none")
    for command, more, environment, wanted in (
        ("run", {}, {"SPARK_HOME": nowhere}, [f"SPARK_HOME is '{nowhere}'", "Unset it"]),
        ("run", {}, {"PYSPARK_PYTHON": nowhere}, [f"PYSPARK_PYTHON is '{nowhere}'", "Unset it"]),
        ("run", {}, {"JAVA_TOOL_OPTIONS": "-XX:NoSuch"}, ["Unrecognized VM option 'NoSuch'", "JAVA_TOOL_OPTIONS"]),
        (
            "run",
            {"wal2lake.spark.spark.driver.memory": "200m"},
            {},
            ["must be at least", "wal2lake.spark.spark.driver.memory"],
        ),
        (
            "run",
            {"wal2lake.spark.spark.eventLog.enabled": "true", "wal2lake.spark.spark.eventLog.dir": nowhere},
            {},
            ["FileNotFoundException", nowhere, "wal2lake.spark.spark.eventLog.dir"],
        ),
        ("check", {}, {"SPARK_HOME": nowhere}, ["FAIL java", f"SPARK_HOME is '{nowhere}'"]),
        ("check", {}, {"JAVA_HOME": nowhere}, ["FAIL java", f"{nowhere}/bin/java, as JAVA_HOME says", "17 or 21"]),
        ("check", {}, {"JAVA_TOOL_OPTIONS": "-XX:NoSuch"}, ["FAIL java", "Unrecognized VM option 'NoSuch'"]),
        ("check", {}, {}, ["Java 1", "/java"]),
        # Spark is started where an earlier start proves nothing: with settings, other jars, or jars to be downloaded.
        (
            "check",
            {"wal2lake.spark.spark.driver.memory": "200m"},
            {},
            ["FAIL java", "must be at least", "wal2lake.spark.spark.driver.memory"],
        ),
        ("check", {}, {"WAL2LAKE_DELTA_JARS": nowhere}, ["FAIL java", "WAL2LAKE_DELTA_JARS is neither"]),
    ):
        # A command with an interpreter of its own gets PYSPARK_PYTHON as it is.
        limit = ("--max-seconds", "60") if command == "run" else ()
        done = program.run(
            command, file(**more), *limit, own_java=True, cold="PYSPARK_PYTHON" in environment, **environment
        )
        said = done.stdout + done.stderr
        assert all(text in said for text in wanted), (environment, more, said[-3000:])
        assert "Traceback" not in said and "defect" not in said and "\tat " not in said, said[-3000:]
        if command == "run":
            assert done.returncode == 1
            # Java's own lines, where it does not start at all, come before.
            found, remedy = done.stderr.splitlines()[-2:]
            assert found.startswith("wal2lake: ") and remedy.startswith("  → "), done.stderr
    assert pg.execute(database, "select slot_name from pg_replication_slots where database = %s", [database]) == []
    # A run that goes on from its slot, and waits for changes, does not wait for the first of them to say it.
    assert program.run("run", file(), "--until-idle", "0.1").returncode == 0
    broken = program.run("run", file(), own_java=True, JAVA_HOME=nowhere)
    assert broken.returncode == 1 and f"{nowhere}/bin/java, as JAVA_HOME says" in broken.stderr, broken.stderr[-3000:]

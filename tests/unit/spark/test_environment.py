"""What the environment makes of Spark's Java process, and what is said where it does not start."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from cdc_core.errors import ConfigError
from cdc_core.spark.environment import cause_in, check_programs, java_environment, java_program, not_started
from cdc_core.spark.java_process import java_option

LOCAL, CLUSTER = ["spark-submit", "--conf", "spark.master=local[2]"], ["spark-submit", "--conf", "spark.master=yarn"]
NAMES = ["/tmp/My Projects", "a'b", 'a"b', "a\\b", "a\nb", "ü", "$(x) `y`", "a\tb 'c' \"d\" \\"]


@pytest.fixture(autouse=True)
def _none_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SPARK", "HADOOP", "JAVA", "PYSPARK", "JDK_"))]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", NAMES)
def test_an_option_of_java_is_one_whatever_it_contains(name: str) -> None:
    # Spark's launcher divides options as a shell does, but for its expansions.
    text = java_option(f"-Dx={name}")
    escaped = text.replace("$", "\\$").replace("`", "\\`").replace("(", "\\(").replace(")", "\\)")
    escaped = escaped.replace("\\\n", "'\n'")
    said = subprocess.run(["sh", "-c", f"printf %s {escaped}"], capture_output=True, text=True, check=True).stdout
    assert said == f"-Dx={name}"
    assert java_option("-Djava.io.tmpdir=/a-b_c.d/~%41[x]=,:") == "-Djava.io.tmpdir=/a-b_c.d/~%41[x]=,:"


def test_a_session_of_one_process_has_its_address_and_its_folders_from_us() -> None:
    given = {"CONTAINER_ID": "x", "LOCAL_DIRS": "/none", "SPARK_LOCAL_DIRS": "/none", "SPARK_LOCAL_IP": "no.such.host"}
    given |= {"SPARK_LOCAL_HOSTNAME": "no.such.host", "LC_ALL": "tr_TR.ISO-8859-9", "PATH": "/bin"}
    assert java_environment(given, LOCAL) == {"PATH": "/bin", "LC_ALL": "C.UTF-8", "SPARK_LOCAL_IP": "127.0.0.1"}
    assert java_environment(given, CLUSTER) == {**given, "LC_ALL": "C.UTF-8"}


def test_a_spark_or_python_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_programs(is_local=True)
    for value in (str(tmp_path / "none"), ""):
        monkeypatch.setenv("SPARK_HOME", value)
        with pytest.raises(ConfigError, match=f"SPARK_HOME is '{value}'"):
            check_programs(is_local=True)
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("PYSPARK_PYTHON", "no-such-python")
    check_programs(is_local=False)
    with pytest.raises(ConfigError, match="PYSPARK_PYTHON is 'no-such-python'"):
        check_programs(is_local=True)


def test_the_java_that_is_started_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert java_program().version >= 17 and not java_program().problem
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"{tmp_path}/bin/java, as JAVA_HOME says, cannot be started: No such file" in java_program().problem
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    for said, problem in (
        ('openjdk version "1.8.0_402"', "is Java 8, and Spark needs 17 to 23."),
        ('openjdk version "25" 2025-09-16', "is Java 25, and Spark needs 17 to 23."),
        ("nonsense", "does not start: nonsense"),
    ):
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(stat.S_IRWXU)
        assert java_program().problem.endswith(problem)
        assert "set now: JAVA_HOME" in java_program().remedy
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    assert (java_program().version, java_program().problem) == (21, "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:NoSuchOption")
    assert "Unrecognized VM option 'NoSuchOption'" in java_program().problem
    assert "JAVA_TOOL_OPTIONS" in java_program().remedy


def test_what_may_be_the_cause_is_named_without_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").touch()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dsecret=1")
    error = not_started(
        "An error occurred.\n: java.lang.RuntimeException: outer\n\tat x.y\nCaused by: java.io.IOException: no room\n",
        {"spark.eventLog.enabled": "hidden"},
    )
    assert error.message == "Spark does not start: IOException: no room."
    for named in (
        "wal2lake.spark.spark.eventLog.enabled",
        "SPARK_CONF_DIR",
        "JAVA_TOOL_OPTIONS",
        "spark-defaults.conf",
    ):
        assert named in error.remedy
    assert "secret" not in str(error) and "hidden" not in str(error)


def test_the_cause_in_what_java_or_its_script_says() -> None:
    assert cause_in("spark-class: line 71: /x/bin/java: No such file or directory\n").endswith(
        "No such file or directory"
    )
    text = "Error: Could not find or load main class Projects\nCaused by: java.lang.ClassNotFoundException: Projects"
    assert cause_in(text) == "ClassNotFoundException: Projects"
    assert cause_in("Picked up JAVA_TOOL_OPTIONS: x\nUnrecognized option: -x\nError: Could not create") == (
        "Unrecognized option: -x"
    )
    assert cause_in("") == ""

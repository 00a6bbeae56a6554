"""Why Java did not start, as far as it can be known."""

from __future__ import annotations

import os
import pwd

import pytest
from pyspark.errors import PySparkRuntimeError

from cdc_core.errors import ConfigError, SparkLostError
from cdc_core.spark import session
from cdc_core.spark.session import _not_started


def test_a_user_without_a_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Java said in this process may be that of another test.
    monkeypatch.setattr(session, "last_lines", lambda: "")
    assert "Install Java" in _not_started().remedy

    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    found = _not_started()
    assert f"user {os.getuid()} has no entry in /etc/passwd" in found.message and "10001" in found.remedy


@pytest.mark.parametrize(
    ("before", "killed", "kind"), [(0, 0, ConfigError), (1, 0, SparkLostError), (0, 1, SparkLostError)]
)
def test_java_that_was_ended_is_not_java_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, before: int, killed: int, kind: type[Exception]
) -> None:
    def ended(*_: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(session, "launch_gateway", ended)
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    monkeypatch.setattr(session, "_started", [True] * before)
    monkeypatch.setattr(session, "was_killed", lambda: bool(killed))
    with pytest.raises(kind):
        session.get_context()


def test_a_failed_start_of_spark_is_reported_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "Error: Could not find or load main class Projects.tmp\nCaused by: java.lang.ClassNotFoundException: Projects"
    )
    monkeypatch.setattr(session, "last_lines", lambda: said)
    found = _not_started({"spark.driver.memory": "1g", "spark.local.dir": "/x"})
    assert found.message == "Spark does not start: ClassNotFoundException: Projects."
    assert "wal2lake.spark.spark.driver.memory" in found.remedy and "spark.local.dir" not in found.remedy
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    found = _not_started()
    assert found.message == "Spark's Java process did not start."
    assert "Install Java" in found.remedy and "/nonexistent/bin/java, as JAVA_HOME says" in found.remedy

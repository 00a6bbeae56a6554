"""The session's settings, without a session."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cdc_core.errors import ConfigError
from cdc_core.spark.class_archive import sized
from cdc_core.spark.known_jars import JARS_VARIABLE, jars_file
from cdc_core.spark.quiet_start import quiet_start
from cdc_core.spark.session import class_archive, spark_conf

CLASS_PATH, JAVA_OPTIONS = "spark.driver.extraClassPath", "spark.driver.extraJavaOptions"


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in (JARS_VARIABLE, "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "MASTER", "WAL2LAKE_CLASS_ARCHIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """Delta's jar, as an earlier start has resolved it."""
    jar = tmp_path / "io.delta_delta-spark_4.2_2.13-4.4.0.jar"
    jar.touch()
    known = jars_file()
    known.parent.mkdir(parents=True)
    known.write_text(str(jar))
    return jar


def test_delta_is_resolved_by_maven_in_addition_to_the_users_packages() -> None:
    conf = spark_conf({"spark.master": "local[3]", "spark.jars.packages": "org.example:thing:1"})
    delta, other = conf["spark.jars.packages"].split(",")
    assert delta.startswith("io.delta:delta-spark_4.2_2.13:") and other == "org.example:thing:1"
    assert conf["spark.sql.shuffle.partitions"] == "3" and conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert pickle.loads(pickle.dumps(conf)) == conf and all(isinstance(value, str) for value in conf.values())


def test_settings_of_the_user_win_and_a_cluster_is_not_bound_to_the_loopback() -> None:
    conf = spark_conf({"spark.master": "spark://there:7077", "spark.sql.shuffle.partitions": "64"})
    assert conf["spark.sql.shuffle.partitions"] == "64" and "spark.driver.host" not in conf


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a system without affinity, as macOS: all cores")
def test_a_local_session_has_as_many_tasks_as_cores_that_it_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        conf = spark_conf({"spark.master": "local[*]"})
    finally:
        os.sched_setaffinity(0, allowed)
    assert conf["spark.sql.shuffle.partitions"] == conf["spark.default.parallelism"] == "1"


@pytest.mark.parametrize("as_folder", [True, False])
def test_jars_of_a_folder_or_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_folder: bool) -> None:
    jars = [tmp_path / "delta-spark.jar", tmp_path / "delta-storage.jar"]
    for jar in jars:
        jar.touch()
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path) if as_folder else ",".join(map(str, jars)))
    conf = spark_conf({"spark.jars": "mine.jar"})
    assert conf["spark.jars"].split(",") == ["mine.jar", *map(str, jars)] and "spark.jars.packages" not in conf


@pytest.mark.parametrize("missing", ["", "/nowhere/a.jar"])
def test_jars_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str) -> None:
    monkeypatch.setenv(JARS_VARIABLE, missing or str(tmp_path))
    with pytest.raises(ConfigError, match=JARS_VARIABLE):
        spark_conf()


def test_jars_of_an_earlier_start_that_spark_has_itself_are_left_out(tmp_path: Path) -> None:
    kept = ("io.delta_delta-spark_4.2_2.13-4.4.0.jar", "org.example_slf4j-api-extra-1.0.jar")
    jars = [
        tmp_path / name
        for name in (*kept, "org.slf4j_slf4j-api-2.0.13.jar", "org.apache.hadoop_hadoop-client-api-3.4.2.jar")
    ]
    for jar in jars:
        jar.touch()
    known = jars_file()
    known.parent.mkdir(parents=True)
    known.write_text("\n".join(map(str, jars)))
    assert "spark.jars.packages" not in spark_conf()
    here, cluster = spark_conf()[CLASS_PATH], spark_conf({"spark.master": "spark://there:7077"})
    assert here.split(os.pathsep) == cluster["spark.jars"].split(",") == [str(tmp_path / name) for name in kept]
    assert "spark.jars" not in spark_conf() and CLASS_PATH not in cluster, "executors elsewhere need them sent"
    jars[-1].unlink()
    assert CLASS_PATH not in spark_conf(), "one is gone, so that all are resolved again"


def test_users_jars_and_class_path_stay(delta: Path) -> None:
    conf = spark_conf({"spark.jars": "mine.jar", CLASS_PATH: "/my.jar"})
    assert conf["spark.jars"] == "mine.jar" and conf[CLASS_PATH] == os.pathsep.join(["/my.jar", str(delta)])


def test_the_archive_of_classes_is_read_where_there_is_one(delta: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, name = class_archive()
    archive = folder / sized(name, 4)
    archive.write_bytes(b"par")
    assert JAVA_OPTIONS not in spark_conf(), "Java would fail on a part"
    archive.write_bytes(b"here")
    assert spark_conf({JAVA_OPTIONS: "-Xss8m"})[JAVA_OPTIONS].startswith("-Xss8m -Xshare:auto ")
    assert spark_conf()[JAVA_OPTIONS].endswith(f"-XX:SharedArchiveFile={archive}")
    assert spark_conf({JAVA_OPTIONS: "-Xshare:off"})[JAVA_OPTIONS] == "-Xshare:off"
    assert JAVA_OPTIONS not in spark_conf({"spark.master": "spark://there:7077"})
    monkeypatch.setenv("WAL2LAKE_CLASS_ARCHIVE", "off")
    assert JAVA_OPTIONS not in spark_conf()
    monkeypatch.delenv("WAL2LAKE_CLASS_ARCHIVE")
    assert JAVA_OPTIONS in spark_conf()
    delta.write_text("another build")
    assert JAVA_OPTIONS not in spark_conf(), "an archive of other classes has another name"


def test_without_java_there_is_no_archive(delta: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert class_archive()[1] is None and str(delta) == spark_conf()[CLASS_PATH]


def test_what_java_says_at_its_start_is_filtered_and_our_own_stderr_is_not_touched(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with quiet_start() as stderr:
        os.write(2, b"ours\n")
        assert capfd.readouterr().err == "ours\n", "it needs nobody to pass it on"
        text = "Setting default log level to WARN\nan error of Java\n"
        subprocess.run([sys.executable, "-c", f"import sys; sys.stderr.write({text!r})"], stderr=stderr, check=True)
    said, deadline = "", time.monotonic() + 20
    while "Java" not in said and time.monotonic() < deadline:
        time.sleep(0.02)
        said += capfd.readouterr().err
    assert said == "an error of Java\n"

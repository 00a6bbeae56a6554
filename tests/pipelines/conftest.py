"""What the tests of runs and jobs share: an instance of Dagster, and definitions that start no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """An instance that keeps everything in files of a folder of its own, as a user's does.

    In memory, SQLite lets threads wait for no lock: one that writes while another reads fails at once.
    """
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as held:
        yield held


class NoSpark:
    """Stands where Dagster's Spark resource would be."""

    spark_session = "the session"


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions made from now on have no Spark session."""
    monkeypatch.setattr("wal2lake.pipelines.factory.spark_resource", lambda site: NoSpark())

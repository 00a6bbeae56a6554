"""What the tests of the program share: the program, and a database with the recordings' tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.golden.test_replay import RECORDED
from tests.support.cluster import Cluster
from tests.support.program import program

__all__ = ["program"]


@pytest.fixture
def database(debian15: Cluster, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"golden_{request.param}"
    monkeypatch.setenv("WAL2LAKE_TEST_PASSWORD", debian15.password)
    debian15.database(name=name)
    debian15.run_script(name, RECORDED / "types.sql")
    yield name
    debian15.drop_database(name)

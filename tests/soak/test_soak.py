"""The short form of the soak: each fault of the run, its server and its connection once, and one comparison.

The faults that need a Java process of the run's own are those of ``tests/faults``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import OF_JAVA, Pace, Soak
from tests.support.cluster import Cluster
from tests.support.program import Program, program
from tests.support.proxy import Proxy
from tests.support.sampling import seed

__all__ = ["program"]

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

_FAULTS = {"kill", "stop", "fast restart", "immediate restart", "cut", "stall", "terminate", "none"}


def test_faults_and_changes_at_random_leave_the_lake_equal(program: Program, tmp_path: Path) -> None:
    server = Cluster.start("debian15", {"wal_sender_timeout": "6s"})
    pace = Pace((0.1, 0.6), len(_FAULTS), 2.0, OF_JAVA, own_java=False, large_rows=4_000)
    try:
        with Proxy(server.host, server.port) as proxy:
            soak = Soak(seed(188), server, tmp_path, program, proxy, pace)
            assert soak(0.1) == []
            assert soak.done == dict.fromkeys(_FAULTS, 1)
    finally:
        server.stop()

"""The short form of the soak: one comparison after some faults, by a fixed seed (``make soak`` goes on and on)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import Soak
from tests.support.cluster import Cluster
from tests.support.program import Program, program
from tests.support.proxy import Proxy

__all__ = ["program"]

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_faults_and_changes_at_random_leave_the_lake_equal(program: Program, tmp_path: Path) -> None:
    server = Cluster.start("debian15", {"wal_sender_timeout": "6s"})
    try:
        with Proxy(server.host, server.port) as proxy:
            soak = Soak(188, server, tmp_path, program, proxy, between=(0.3, 1.5), faults_a_stop=5, cold=False)
            assert soak(1.0) == []
            assert soak.done.total() == 5 and len(soak.done) > 3, soak.done
    finally:
        server.stop()

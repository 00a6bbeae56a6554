"""Failpoints that several processes of a run reach."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.waits import patient

HIT = "from cdc_core import failpoints; failpoints.hit('after-spool'); failpoints.hit('before-confirm')"


def test_hits_are_counted_in_all_processes_of_a_run(tmp_path: Path) -> None:
    armed = {"WAL2LAKE_FAILPOINT": "after-spool:3"}
    together = {**armed, "WAL2LAKE_FAILPOINT_HITS": str(tmp_path / "hits")}

    def ended(environment: dict[str, str]) -> int:
        return subprocess.run(
            [sys.executable, "-c", HIT], env={**os.environ, **environment}, timeout=patient(60), check=False
        ).returncode

    assert [ended(together) for _ in range(3)] == [0, 0, -signal.SIGKILL]
    assert [ended(armed) for _ in range(3)] == [0, 0, 0], "each process counts its own"

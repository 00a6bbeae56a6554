"""A phase in a run of Dagster, as its launcher starts one: a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from tests.soak.places.phases import SMALL, TABLES, Phase
from tests.support.program import Running
from tests.support.waits import patient

_NAME = "test"  # topic.prefix
_ROOT = Path(__file__).parents[3]


class DagsterRuns:
    """Runs of one connector's jobs, with an instance in ``folder``."""

    def __init__(self, folder: Path, file: Path) -> None:
        self._home = folder / "dagster"
        self._home.mkdir()
        self._environment = {
            **os.environ,
            "DAGSTER_HOME": str(self._home),
            "WAL2LAKE_CONNECTORS": str(file),
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
        }

    @contextlib.contextmanager
    def started(self, phase: Phase, **more: str) -> Iterator[Running]:
        """The phase's job, killed at the end where it still runs."""
        job, config, tags = self._job(phase)
        asked = self._home / "config.json"
        asked.write_text(json.dumps(config))
        program = Path(sys.executable).with_name("dagster")
        order = [str(program), "job", "execute", "-m", "wal2lake.pipelines.definitions", "-j", job]
        order += ["-c", str(asked), "--tags", json.dumps(tags)]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(order, env={**self._environment, **more}, stdout=output, stderr=output)
            try:
                yield Running(process, output)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait(patient(20))

    def again(self, phase: Phase) -> None:
        """Run the phase's job to its end."""
        with self.started(phase) as running:
            if running.end(seconds=180):
                raise SystemExit(f"the job failed when it was run again: {running.said()[-4000:]}")

    def _job(self, phase: Phase) -> tuple[str, dict[str, Any], dict[str, str]]:
        if phase.before is None:
            names = sorted(map(str, TABLES))
            with dg.DagsterInstance.from_config(str(self._home)) as instance:
                instance.add_dynamic_partitions(f"{_NAME}_tables", names)
            return f"{_NAME}_snapshot_job", {}, _range(names)
        op, given = f"{_NAME}_stream", {"idle_seconds": 3.0, "max_seconds": 120.0}
        if phase.command[0] == "replay":
            op, given = f"{_NAME}_replay", {"tables": [str(SMALL)], "accept_all": True}
        elif phase.command[0] == "maintain":
            return f"{_NAME}_maintenance_job", {}, {}
        return f"{op}_job", {"ops": {op: {"config": given}}}, {}


def _range(names: list[str]) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": names[0], "dagster/asset_partition_range_end": names[-1]}

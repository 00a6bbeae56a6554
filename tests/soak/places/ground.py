"""What pairs stand on: the server, with a standby if it is promoted; small disks; a Spark cluster; a line."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.line import Line
from tests.support.program import Program
from tests.support.spark_cluster import SparkCluster
from tests.support.standby import servers

# So that a stall is noticed soon.
_SETTINGS = {"wal_sender_timeout": "6s"}


@dataclass(frozen=True)
class Ground:
    """One pair's. ``cluster``, ``standby`` and ``line`` are None where the fault does not need them."""

    server: Cluster
    program: Program
    cluster: SparkCluster | None = None
    standby: Cluster | None = None
    line: Line | None = None

    @property
    def settings(self) -> dict[str, str]:
        """What a connector's file needs on this ground."""
        more = {"slot.failover": "true"} if self.standby is not None else {}
        if self.line is not None:
            more["database.hostname"] = self.line.address
        return {**more, **(self.cluster.settings if self.cluster is not None else {})}


@contextlib.contextmanager
def ground(program: Program, server: Cluster, needs: str, folder: Path) -> Iterator[Ground]:
    """The ground that a fault needs; ``server`` where any will do."""
    with contextlib.ExitStack() as closing:
        if needs == "disks":
            closing.enter_context(_disks(folder))
        if needs == "cluster":
            yield Ground(server, program, closing.enter_context(SparkCluster(folder / "cluster")))
        elif needs == "standby":
            primary, standby = closing.enter_context(servers(**_SETTINGS, sync_replication_slots="on"))
            yield Ground(primary, program, standby=standby)
        elif needs == "line":
            yield Ground(server, program, line=closing.enter_context(Line()))
        else:
            yield Ground(server, program)


def usual_server() -> Cluster:
    """The server of pairs that need no other."""
    return Cluster.start("debian15", _SETTINGS)


@contextlib.contextmanager
def _disks(folder: Path) -> Iterator[None]:
    """Small file systems for lake and state, where they may be mounted."""
    mounted = []
    for name, size in (("lake", "64m"), ("state", "256m")):
        (folder / name).mkdir(parents=True)
        order = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder / name)]
        if subprocess.run(order, check=False, capture_output=True).returncode == 0:
            mounted.append(folder / name)
    if len(mounted) < 2:
        raise SystemExit("full disks need the right to mount one")
    try:
        yield
    finally:
        for each in mounted:
            subprocess.run(["umount", "-l", str(each)], check=False)

"""What happens while a process is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import deltalake

from cdc_core.config.connector import load
from tests.support.lake import lake_path
from tests.support.program import Running
from tests.support.spark_cluster import below, command_of
from tests.support.standby import caught_up, is_synchronized
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from tests.soak.places.tried import Tried

_FULL_SECONDS = 6.0
_UNPLUGGED_SECONDS = 75.0
_SPECULATION = {
    "wal2lake.spark.spark.speculation": "true",
    "wal2lake.spark.spark.speculation.multiplier": "1.1",
    "wal2lake.spark.spark.speculation.quantile": "0.1",
    "wal2lake.spark.spark.speculation.minTaskRuntime": "50ms",
    # A stage of one task has no others to be compared with.
    "wal2lake.spark.spark.speculation.task.duration.threshold": "2s",
}
Action = Callable[["Tried", Running], None]


@dataclass(frozen=True)
class Fault:
    """``holds``: a worker that was stopped is let go only when the lake is equal: it outlives its attempt.

    ``needs``: small ``disks``, a ``line``, a Spark ``cluster``, a ``standby``, or ``dagster``, in which the phase then
    runs.
    """

    happens: Action
    holds: bool = False
    needs: str = ""
    settings: dict[str, str] = field(default_factory=dict)


def _kill(pids: list[int], what: str) -> None:
    if not pids:
        raise SystemExit(f"there is no {what} to kill")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_worker(tried: Tried, running: Running) -> None:
    workers = [pid for pid in tried.processes(running) if "pyspark.daemon" in command_of(pid)]
    _kill([pid for pid in tried.held if pid in workers] or workers[-1:], "worker")


def _kill_java(tried: Tried, running: Running) -> None:
    found = [pid for pid in below(running.process.pid) if "org.apache.spark.deploy.SparkSubmit" in command_of(pid)]
    _kill(found, "Java process")


def _lose_executor(tried: Tried, running: Running) -> None:
    """The machine of the process that is stopped is gone, with everything on it; another one joins."""
    assert tried.ground.cluster is not None
    tried.ground.cluster.kill_worker_of(tried.held[0])
    tried.ground.cluster.add_worker()


def _speculate(tried: Tried, running: Running) -> None:
    """Nothing but that a task takes long: Spark starts it a second time."""


def _conflict(tried: Tried, running: Running) -> None:
    """Another writer's commit, with which every commit that is under way conflicts."""
    path = lake_path(load(tried.direct), tried.phase.table)
    if (path / "_delta_log").exists():
        deltalake.DeltaTable(str(path)).alter.set_table_properties({"delta.logRetentionDuration": "interval 31 days"})


def _full(name: str) -> Action:
    def fault(tried: Tried, running: Running) -> None:
        ballast = tried.folder / name / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)

        def again() -> None:
            ballast.unlink(missing_ok=True)

        tried.later(_FULL_SECONDS, again)

    return fault


def _unplug(tried: Tried, running: Running) -> None:
    """For longer than TCP tries: what is lost then is noticed by nothing else."""
    line = tried.ground.line
    assert line is not None
    line.unplug()
    tried.later(_UNPLUGGED_SECONDS, line.plug)


def _fail_over(tried: Tried, running: Running) -> None:
    """The primary is gone, and its address leads to its standby, which has all of its WAL."""
    standby = tried.ground.standby
    assert standby is not None
    if tried.phase.before is not None:
        assert is_synchronized(standby, tried.database)
    caught_up(tried.server, standby)
    tried.server.halt()
    standby.execute("postgres", "select pg_promote()")
    wait_until(lambda: not standby.execute("postgres", "select pg_is_in_recovery()")[0][0], 60, "the promotion")
    tried.go_on_at(standby)


FAULTS: dict[str, Fault] = {
    "kill a worker": Fault(_kill_worker),
    "kill Java": Fault(_kill_java, holds=True),
    "cut": Fault(lambda tried, running: tried.proxy.cut()),
    "stall": Fault(lambda tried, running: tried.proxy.abandon()),
    "line unplugged": Fault(_unplug, needs="line"),
    "fast restart": Fault(lambda tried, running: tried.server.restart()),
    "immediate restart": Fault(lambda tried, running: tried.server.restart(crash=True)),
    "failover": Fault(_fail_over, needs="standby"),
    "lake full": Fault(_full("lake"), needs="disks"),
    "state full": Fault(_full("state"), needs="disks"),
    "conflict": Fault(_conflict),
    "task killed": Fault(_kill_worker, needs="cluster"),
    "executor lost": Fault(_lose_executor, needs="cluster"),
    "speculation": Fault(_speculate, holds=True, needs="cluster", settings=_SPECULATION),
    # Of the run, which is Dagster's; it is then run again.
    "Dagster run killed": Fault(lambda tried, running: running.process.kill(), holds=True, needs="dagster"),
    "Dagster run cancelled": Fault(lambda tried, running: running.process.send_signal(signal.SIGINT), needs="dagster"),
}

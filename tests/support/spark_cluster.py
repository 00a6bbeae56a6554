"""A Spark standalone cluster on the loopback: a master and workers, each a process of its own that can be killed.

with SparkCluster(folder, workers=2) as cluster:
    settings = {"wal2lake.spark.spark.master": cluster.url, **cluster.settings}
    cluster.kill_worker(0)
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType

from pyspark.find_spark_home import _find_spark_home

from cdc_core.demo.processes import free_port
from tests.support.spark import JAVA_OPTIONS
from tests.support.waits import patient, wait_until

_SECONDS = 90.0
_JAVA = "-XX:+UseSerialGC -Xshare:auto"


class SparkCluster:
    """``workers`` with one core and 1 GB each, the executor's heap 512 MB. ``jvm`` are the options of executors.

    Each has an address of its own: Spark repeats a slow task (speculation) on another host only.
    """

    def __init__(self, folder: Path, workers: int = 2, jvm: str = JAVA_OPTIONS) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._log = folder / "daemons.log"
        self._log.touch()
        self._started: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self.settings = {
            "wal2lake.spark.spark.master": self.url,
            "wal2lake.spark.spark.driver.host": "127.0.0.1",
            "wal2lake.spark.spark.executor.memory": "512m",
            "wal2lake.spark.spark.executor.extraJavaOptions": f"{_JAVA} {jvm}",
        }
        self._count = workers

    def __enter__(self) -> SparkCluster:
        try:
            self._start("127.0.0.1", "master.Master", "--port", str(self._port))
            for _ in range(self._count):
                self.add_worker()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_worker(self) -> None:
        """Start another worker, and wait until the master knows it."""
        number = len(self._started)
        here = str(self._folder / f"worker-{number}")
        self._start(
            f"127.0.0.{number + 1}", "worker.Worker", "--cores", "1", "--memory", "1G", "--work-dir", here, self.url
        )
        wait_until(
            lambda: self.said().count("Registering worker") >= number, _SECONDS, f"worker {number}; {self.said()}"
        )

    @property
    def newest(self) -> int:
        """The number of the worker that was added last."""
        return len(self._started) - 2

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executor and that one's Python processes, as the loss of a machine would."""
        for pid in [self._started[number + 1].pid, *below(self._started[number + 1].pid)]:
            _kill(pid)

    def kill_worker_of(self, pid: int) -> None:
        """Kill the worker below which a process is."""
        (number,) = [each for each, one in enumerate(self._started[1:]) if pid in below(one.pid)]
        self.kill_worker(number)

    def below(self) -> list[int]:
        """All processes below master and workers."""
        return [pid for each in self._started for pid in below(each.pid)]

    def python_of(self, number: int) -> list[int]:
        """The Python processes of a worker's executor that run tasks; their daemon is not among them."""
        found = [pid for pid in below(self._started[number + 1].pid) if "pyspark" in command_of(pid)]
        return [pid for pid in found if any(pid in children(daemon) for daemon in found)]

    def said(self) -> str:
        """What master and workers have printed."""
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        """End everything."""
        for process in reversed(self._started):
            for pid in [process.pid, *below(process.pid)]:
                _kill(pid)
            process.wait(patient(20))

    def _start(self, host: str, name: str, *arguments: str) -> None:
        home = Path(_find_spark_home())
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else Path("java")
        order = [str(java), "-cp", f"{home}/conf:{home}/jars/*", "-Xmx192m", *_JAVA.split(), "-XX:TieredStopAtLevel=1"]
        order += ["-Dspark.ui.enabled=false", f"org.apache.spark.deploy.{name}", "--host", host]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_SCALA_VERSION": "2.13",
        }
        with self._log.open("ab") as log:
            self._started.append(
                subprocess.Popen([*order, "--webui-port", "0", *arguments], env=environment, stdout=log, stderr=log)
            )


def children(pid: int) -> list[int]:
    """The processes that one has started, and that still run."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def below(pid: int) -> list[int]:
    """All processes below one."""
    found = children(pid)
    return [*found, *(each for child in found for each in below(child))]


def command_of(pid: int) -> str:
    """The command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return

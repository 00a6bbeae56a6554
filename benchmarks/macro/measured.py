"""One command of the program, measured from outside: seconds, the peak memory of its processes, what else ran."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.freshness.processes import DRIVER, JVM, OTHERS, POSTGRES, WORKERS, Sampler, kinds, processes
from tests.support.cluster import Cluster

SECONDS = 3_600
_SAMPLE_SECONDS = 0.1
_PROGRAM = Path(sys.executable).parent / "wal2lake"


@dataclass(frozen=True, slots=True)
class Measured:
    """Memory in megabytes: the peak of the driver's Python, of Java, and of the largest of the Python workers.

    ``others`` are the cores that processes of neither the program nor the server used meanwhile.
    """

    seconds: float
    driver_mb: float
    java_mb: float
    worker_mb: float
    others: float


class Peaks:
    """The largest peak of a process of each kind below ``root``, in megabytes."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.peak = {DRIVER: 0.0, JVM: 0.0, WORKERS: 0.0}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Sample until the end of the block."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(10)

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(_SAMPLE_SECONDS):
            for pid, kind in kinds(self._root, DRIVER, processes()).items():
                if kind in self.peak:
                    self.peak[kind] = max(self.peak[kind], _peak_mb(pid))


def measured(cluster: Cluster, *command: str) -> Measured:
    """Run ``wal2lake`` with these arguments to its end. Raises SystemExit unless it succeeds."""
    started, began = time.monotonic(), time.time()
    with Sampler(interval=1.0, memory_interval=SECONDS) as sampler:
        process = subprocess.Popen([str(_PROGRAM), *command])
        sampler.watch(process.pid, DRIVER)
        sampler.watch(cluster.pid, POSTGRES)
        peaks = Peaks(process.pid)
        with peaks.watched():
            code = process.wait(SECONDS)
        seconds = time.monotonic() - started
        others = sampler.cpu(began, time.time()).get(OTHERS, 0.0) / seconds
    if code:
        raise SystemExit(f"wal2lake {command[0]} ended with {code}")
    return Measured(seconds, peaks.peak[DRIVER], peaks.peak[JVM], peaks.peak[WORKERS], others)


def recvlogical(cluster: Cluster, database: str, slot: str, publication: str) -> float:
    """Seconds that pg_recvlogical takes for everything that ``slot`` holds now, into /dev/null over TCP."""
    end = cluster.execute(database, "select pg_current_wal_insert_lsn()")[0][0]
    started = time.monotonic()
    subprocess.run(
        [
            str(cluster.bin / "pg_recvlogical"),
            *("-h", cluster.host, "-p", str(cluster.port), "-U", cluster.user, "-d", database),
            *("--slot", slot, "--start", "-F", "0", "-f", "/dev/null", "--no-loop", "--endpos", end),
            *("-o", "proto_version=1", "-o", f"publication_names={publication}"),
        ],
        check=True,
        timeout=SECONDS,
        env={**os.environ, "PGPASSWORD": cluster.password},
        capture_output=True,
    )
    return time.monotonic() - started


def _peak_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # ended meanwhile
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmHWM:")), 0.0)

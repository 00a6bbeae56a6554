"""CPU time and memory of processes by kind, sampled from /proc (Linux).

CPU time of a kind is that of its living processes and of their children that ended and were waited for. Memory is the
proportional set size (PSS), in which a page shared by several processes counts once; the kernel walks all pages for
it, so it is read every few seconds only.

What no process under observation used of the machine's CPU time (``OTHERS``, time stolen by a hypervisor included)
tells whether figures were taken in peace.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.freshness.figures import Floats, spread, used_between

DRIVER, JVM, WORKERS, POSTGRES, LOAD = "driver Python", "JVM", "Python workers", "PostgreSQL", "load"
OBSERVER, OTHERS = "observer", "all else on the machine"
PRODUCT = (DRIVER, JVM, WORKERS)

_TICKS = os.sysconf("SC_CLK_TCK")
_MB = 1024 * 1024


class Process(NamedTuple):
    """One line of /proc/<pid>/stat: ``cpu`` in seconds, its own and that of children waited for."""

    pid: int
    parent: int
    name: str
    cpu: float


def read_stat(text: str) -> Process:
    """Parse /proc/<pid>/stat."""
    pid, rest = text.split(" (", 1)
    name, rest = rest.rsplit(") ", 1)  # a name may hold brackets
    fields = rest.split()
    return Process(int(pid), int(fields[1]), name, sum(map(int, fields[11:15])) / _TICKS)


def processes() -> dict[int, Process]:
    """Every process now, by its id."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                process = read_stat(Path(f"/proc/{entry}/stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
            found[process.pid] = process
    return found


def descendants(root: int, everybody: Mapping[int, Process]) -> list[int]:
    """``root`` and every process below it, parents before children; empty where ``root`` is gone."""
    if root not in everybody:
        return []
    children: dict[int, list[int]] = {}
    for process in everybody.values():
        children.setdefault(process.parent, []).append(process.pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def kinds(root: int, kind: str, everybody: Mapping[int, Process]) -> dict[int, str]:
    """The kind of ``root`` and of every process below it.

    Below the product's driver (``kind`` DRIVER) are Java, and Pythons that the driver or Java started; below others
    everything is of their kind.
    """
    found: dict[int, str] = {}
    for pid in descendants(root, everybody):
        process = everybody[pid]
        if kind != DRIVER or pid == root:
            found[pid] = kind
        elif process.name == "java":
            found[pid] = JVM
        elif process.name.startswith("python") or found[process.parent] == WORKERS:
            found[pid] = WORKERS
        else:
            found[pid] = found[process.parent]
    return found


def busy_seconds(stat: str) -> float:
    """CPU seconds that the machine was not idle, of all cores together, from /proc/stat."""
    fields = [int(field) for field in stat.splitlines()[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / _TICKS


def pss_bytes(pid: int) -> int:
    """Proportional set size; 0 where the process has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """At ``time``: CPU seconds since some start, and bytes where they were read, by kind."""

    time: float
    cpu: dict[str, float]
    memory: dict[str, int] | None


class Sampler:
    """Samples in a thread of its own, from ``__enter__`` to ``__exit__``."""

    def __init__(self, interval: float = 0.5, memory_interval: float = 5.0) -> None:
        self._interval, self._memory_interval = interval, memory_interval
        self._roots: dict[int, str] = {}
        self._samples: list[Sample] = []
        self._counted: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def watch(self, pid: int, kind: str) -> None:
        """Count this process and all below it from now on."""
        with self._lock:
            self._roots[pid] = kind

    def cpu(self, start: float, end: float) -> dict[str, float]:
        """CPU seconds by kind between two times."""
        samples = self._between(0.0, float("inf"))
        times = np.array([sample.time for sample in samples])
        names = sorted({name for sample in samples for name in sample.cpu})
        return {name: used_between(times, self._used(samples, name), start, end) for name in names}

    def product_cpu(self) -> Callable[[float, float], float]:
        """A function of (start, end): CPU seconds of the product's processes together."""
        samples = self._between(0.0, float("inf"))
        times = np.array([sample.time for sample in samples])
        used = np.sum([self._used(samples, name) for name in PRODUCT], axis=0)
        return lambda start, end: used_between(times, used, start, end)

    def memory(self, start: float, end: float) -> dict[str, dict[str, float]]:
        """Megabytes by kind, and of the product's processes together (``product``): p50, p95 and max of the samples."""
        held = [sample.memory for sample in self._between(start, end) if sample.memory is not None]
        found: dict[str, dict[str, float]] = {}
        for name in sorted({name for one in held for name in one}):
            found[name] = spread([one.get(name, 0) / _MB for one in held])
        found["product"] = spread([sum(one.get(name, 0) for name in PRODUCT) / _MB for one in held])
        return found

    def _between(self, start: float, end: float) -> list[Sample]:
        with self._lock:
            return [sample for sample in self._samples if start <= sample.time <= end]

    @staticmethod
    def _used(samples: list[Sample], name: str) -> Floats:
        return np.maximum.accumulate(np.array([sample.cpu.get(name, 0.0) for sample in samples]))

    def _run(self) -> None:
        memory_due = 0.0
        while not self._stop.is_set():
            with_memory = time.monotonic() >= memory_due
            if with_memory:
                memory_due = time.monotonic() + self._memory_interval
            sample = self._sample(with_memory)
            with self._lock:
                self._samples.append(sample)
            self._stop.wait(self._interval)

    def _sample(self, with_memory: bool) -> Sample:
        with self._lock:
            roots = dict(self._roots)
        now, everybody = time.time(), processes()
        busy = busy_seconds(Path("/proc/stat").read_text())
        cpu: dict[str, float] = {OBSERVER: time.process_time()}
        memory: dict[str, int] = {}
        for root, root_kind in roots.items():
            for pid, kind in kinds(root, root_kind, everybody).items():
                cpu[kind] = cpu.get(kind, 0.0) + everybody[pid].cpu
                if with_memory:
                    memory[kind] = memory.get(kind, 0) + pss_bytes(pid)
        # A process that ended takes its time out of the sum: keep what was counted.
        self._counted = {kind: max(used, cpu.get(kind, 0.0)) for kind, used in {**cpu, **self._counted}.items()}
        cpu = {**self._counted, OTHERS: busy - sum(self._counted.values())}
        return Sample(now, cpu, memory if with_memory else None)

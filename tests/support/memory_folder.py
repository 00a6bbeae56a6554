"""Where servers of tests keep their data: in memory, where there is plenty.

A database is 300 files, and nearly every test makes one; on a disk they are written there, too, some seconds later, and
tests wait meanwhile. `tests/postgres`, `tests/property` and `tests/house` in four processes on two cores: 177 CPU
seconds in 104 seconds in memory, 213 in 137 on a disk.

Memory is not given back when a process is killed, so each folder bears the process that made it, and the next one
removes those whose process is gone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests.support.processes import state

MEMORY = Path("/dev/shm")
_GB = 1 << 30
# All servers of a run of `make test` together hold less than half of the former; Java and Python need the rest.
FREE_BYTES, AVAILABLE_BYTES = 8 * _GB, 14 * _GB
_PREFIX = "w2l-pg"


def data_folder(place: Path = MEMORY, free: int = FREE_BYTES, available: int = AVAILABLE_BYTES) -> Path:
    """A new folder: in ``place`` if it is in memory and has ``free`` bytes, and the machine ``available`` ones; else
    where temporary files are.
    """
    if not _is_in_memory(place):
        return Path(tempfile.mkdtemp(prefix="w2l-"))
    _remove_left_behind(place)
    if shutil.disk_usage(place).free < free or _available() < available:
        return Path(tempfile.mkdtemp(prefix="w2l-"))
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{_namespace()}-{os.getpid()}-", dir=place))


def _is_in_memory(place: Path) -> bool:
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return False
    return [str(place), "tmpfs"] in mounts and os.access(place, os.W_OK)


def _available() -> int:
    """Bytes that the system can give without swapping; 0 where it does not tell."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    return 0


def _namespace() -> int:
    """Whose process ids they are: containers may share the memory, and number their processes each for itself."""
    return os.stat("/proc/self/ns/pid").st_ino


def _remove_left_behind(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}-{_namespace()}-*-*"):
        pid = folder.name.split("-")[3]
        if pid.isdigit() and not state(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)

"""``wal2lake`` as a user runs it, and a database with a lake for it: started here, ended here, by process id."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.freshness.load import create_table
from benchmarks.freshness.processes import descendants, processes
from tests.support.cluster import Cluster
from tests.support.lake import write_properties

PROGRAM = Path(sys.executable).parent / "wal2lake"
_STOP_SECONDS = ((signal.SIGINT, 120), (signal.SIGTERM, 30), (signal.SIGKILL, 20))


class MeasureError(RuntimeError):
    """What was to be measured did not happen, or not within its bound."""


@dataclass(frozen=True, slots=True)
class Site:
    """A database with tables, and the connector file that takes them to a lake of their own."""

    cluster: Cluster
    database: str
    folder: Path
    config: Path
    tables: tuple[str, ...]
    lake_uri: str = ""
    storage: dict[str, str] | None = None

    @property
    def slot(self) -> str:
        """The replication slot's name."""
        return self.database

    @property
    def lake(self) -> Path:
        """``<lake root>/<topic.prefix>``."""
        return self.folder / "lake" / "test"

    @property
    def conninfo(self) -> str:
        """For the load: over the unix socket, which asks for no password."""
        return self.cluster.conninfo(self.database, unix=True)

    def table_folders(self) -> list[Path] | list[str]:
        """The lake tables' folders; of a lake in a store (``lake_uri``), their URIs."""
        if self.lake_uri:
            return [f"{self.lake_uri}/test/{table.replace('.', '/', 1)}" for table in self.tables]
        return [self.lake.joinpath(*table.split(".", 1)) for table in self.tables]


@contextmanager
def made_site(
    cluster: Cluster,
    folder: Path,
    prefix: str,
    tables: int,
    rows: int,
    alter: str = "",
    *,
    storage: dict[str, str] | None = None,
    **extra: str,
) -> Iterator[Site]:
    """``tables`` equal tables of ``rows`` rows in a fresh database; gone afterwards, with slot and lake.

    ``alter``: as in ``create_table``. ``extra`` are connector properties beside the defaults, ``storage`` delta-rs'
    options of a lake in a store.
    """
    database = cluster.database(prefix)
    home = folder / database
    home.mkdir(parents=True)
    try:
        names = tuple(f"public.t{number:03d}" for number in range(tables))
        for name in names:
            cluster.execute(database, create_table(name, rows, alter))
        cluster.execute(database, "checkpoint")
        given = {
            "schema.include.list": "public",
            "wal2lake.lake.path": str(home / "lake"),
            "wal2lake.state.path": str(home / "state"),
            **extra,
        }
        config = write_properties(home / "connector.properties", cluster.properties(database, **given))
        lake = given["wal2lake.lake.path"]
        yield Site(cluster, database, home, config, names, lake if "://" in lake else "", storage)
    finally:
        cluster.drop_database(database)
        shutil.rmtree(home, ignore_errors=True)


class Product:
    """A running ``wal2lake run CONFIG``."""

    def __init__(self, config: Path, *arguments: str) -> None:
        self._log = config.with_suffix(".log")
        self.started = time.time()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(PROGRAM), "run", str(config), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=config.parent,
            )

    @property
    def pid(self) -> int:
        """The driver's process id."""
        return self._process.pid

    def require_running(self) -> None:
        """Raises MeasureError with the end of its output when it has ended."""
        if self._process.poll() is not None:
            raise MeasureError(f"wal2lake run ended with {self._process.returncode}: {self.said()}")

    def said(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-3000:]

    def wait(self, seconds: float) -> None:
        """Wait until it has ended well. Raises MeasureError when it fails or takes longer."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise MeasureError(f"wal2lake run did not end within {seconds:g} s: {self.said()}") from None
        if code:
            raise MeasureError(f"wal2lake run ended with {code}: {self.said()}")

    def stop(self) -> float:
        """Ask it to end, then less politely; nothing that it started is left. The seconds it took."""
        began = time.monotonic()
        below = descendants(self.pid, processes()) if self._process.poll() is None else []
        for sign, seconds in _STOP_SECONDS:
            if self._process.poll() is not None:
                break
            self._process.send_signal(sign)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
        _end(below[1:])
        return time.monotonic() - began


@contextmanager
def running(config: Path, *arguments: str) -> Iterator[Product]:
    """A run from here to the end of the block."""
    product = Product(config, *arguments)
    try:
        yield product
    finally:
        product.stop()


def _end(pids: list[int]) -> None:
    """Wait a moment for processes whose parent has ended, then kill those that stay."""
    end = time.monotonic() + 10
    names = {pid: process.name for pid, process in processes().items() if pid in pids}
    while names and time.monotonic() < end:
        now = processes()
        names = {pid: name for pid, name in names.items() if pid in now and now[pid].name == name}
        time.sleep(0.1)
    for pid in names:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue

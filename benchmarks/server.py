"""The PostgreSQL server that a benchmark measures against, and a folder for what it makes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import Cluster, binaries

_SETTINGS = {"shared_buffers": "256MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}


@contextmanager
def bench_server(**settings: str) -> Iterator[tuple[Cluster, Path]]:
    """A fresh server and an empty folder, both removed at the end.

    ``settings`` are added to postgresql.conf. Checkpoints do not begin by themselves while something is measured.
    """
    folder = Path(tempfile.mkdtemp(prefix="w2l-bench-"))
    try:
        flavour = "debian15" if binaries("debian15") else "embedded18"
        cluster = Cluster.start(flavour, settings={**_SETTINGS, **settings})
        try:
            yield cluster, folder
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)

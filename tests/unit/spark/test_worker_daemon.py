"""Spark's daemon for Python workers: what is imported before it says that it is ready, and what it says."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cdc_core.spark.session import spark_conf
from tests.support.waits import patient


@pytest.mark.slow
def test_workers_are_forked_with_great_expectations_loaded():
    # The path of a socket has at most 107 octets.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        _look_at_the_daemon(folder)


def _look_at_the_daemon(folder):
    module = spark_conf()["spark.python.daemon.module"]
    there = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": folder}
    daemon = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **there},
    )
    try:
        # Spark reads the length of a path and the path: anything else that was written would be taken for it.
        path = daemon.stdout.read(int.from_bytes(daemon.stdout.read(4)))
        assert str(Path(path.decode()).parent) == folder
        mapped = Path(f"/proc/{daemon.pid}/maps").read_text()
        assert "/pandas/" in mapped and "/pyarrow/" in mapped
        # A fork has none of these; that of jemalloc begins again in a fork.
        threads = {(task / "comm").read_text().strip() for task in Path(f"/proc/{daemon.pid}/task").iterdir()}
        assert threads - {"jemalloc_bg_thd"} == {Path(f"/proc/{daemon.pid}/comm").read_text().strip()}
        daemon.stdin.close()
        daemon.wait(patient(30))
    finally:
        daemon.kill()
        daemon.wait()

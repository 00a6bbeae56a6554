"""A real S3 server (moto's, in a process of its own), and the program with Hadoop's S3A.

Run by ``make test-s3``, which installs the group ``s3``; hadoop-aws and the AWS SDK (some 690 MB) come from Maven by
``spark.jars.packages`` the first time, or from the folder that WAL2LAKE_S3_JARS names.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from cdc_core.demo.processes import free_port
from cdc_core.lake.delta.storage import LOG_STORE, Storage
from cdc_core.option import Secret
from tests.support.program import Program
from tests.support.waits import patient, wait_until

PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"
KEY, SECRET, REGION = "wal2lake", "a secret of the tests", "us-east-1"


@dataclass(frozen=True)
class Bucket:
    """An empty bucket."""

    endpoint: str
    name: str

    @property
    def storage(self) -> Storage:
        return Storage(self.endpoint, REGION, KEY, Secret(SECRET), True)

    def path(self, place: str) -> str:
        return f"s3a://{self.name}/{place}"

    @property
    def properties(self) -> dict[str, str]:
        """What a connector file says of it; the secret comes from the environment."""
        return {
            "wal2lake.storage.s3.endpoint": self.endpoint,
            "wal2lake.storage.s3.region": REGION,
            "wal2lake.storage.s3.access.key": KEY,
            "wal2lake.storage.s3.secret.key": "${env:TEST_S3_SECRET}",
            "wal2lake.storage.s3.path.style": "true",
        }


def jars() -> dict[str, str]:
    folder = os.environ.get("WAL2LAKE_S3_JARS")
    if folder:
        return {"spark.jars": ",".join(sorted(str(file) for file in Path(folder).glob("*.jar")))}
    return {"spark.jars.packages": PACKAGE}


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The server's URL."""
    if importlib.util.find_spec("moto") is None and not os.environ.get("WAL2LAKE_MOTO"):
        pytest.skip("moto is not installed: make test-s3 installs it")
    port = free_port()
    environment = dict(os.environ)
    if os.environ.get("WAL2LAKE_MOTO"):  # a folder with moto[server], apart from the program's own packages
        environment["PYTHONPATH"] = os.environ["WAL2LAKE_MOTO"]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, "the S3 server ended"
        try:
            return bool(urllib.request.urlopen(f"{url}/moto-api/", timeout=5).status == 200)
        except (URLError, OSError):
            return False

    try:
        wait_until(answers, 60, "the S3 server's answer", pause=0.2)
        yield url
    finally:
        process.terminate()
        process.wait(patient(20))


@pytest.fixture
def bucket(server: str) -> Bucket:
    """A bucket of its own for each test."""
    name = f"lake-{uuid.uuid4().hex[:12]}"
    made = urllib.request.urlopen(urllib.request.Request(f"{server}/{name}", method="PUT"), timeout=patient(20))
    assert made.status == 200
    return Bucket(server, name)


@pytest.fixture(scope="session")
def program() -> Iterator[Program]:
    """The program, on a Java process that has S3A."""
    os.environ["TEST_S3_SECRET"] = SECRET
    made = Program({**jars(), LOG_STORE[0]: LOG_STORE[1]})
    yield made
    made.close()


@pytest.fixture
def spark(bucket: Bucket) -> Iterator[Any]:
    """A session that reaches the bucket."""
    from cdc_core.lake.delta.storage import reach
    from cdc_core.spark.session import get_session
    from tests.support.spark import SETTINGS

    session = get_session({**SETTINGS, **jars(), LOG_STORE[0]: LOG_STORE[1]})
    reach(session, bucket.path(""), bucket.storage)
    yield session

"""A real S3 server (moto's) in a process of its own, and buckets of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.error import URLError

from cdc_core.demo.processes import free_port
from cdc_core.lake.delta.storage import Storage
from cdc_core.option import Secret
from tests.support.waits import patient, wait_until

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
        """What a connector file says of it; the secret comes from the environment (``TEST_S3_SECRET``)."""
        return {
            "wal2lake.storage.s3.endpoint": self.endpoint,
            "wal2lake.storage.s3.region": REGION,
            "wal2lake.storage.s3.access.key": KEY,
            "wal2lake.storage.s3.secret.key": "${env:TEST_S3_SECRET}",
            "wal2lake.storage.s3.path.style": "true",
        }

    def by(self, endpoint: str) -> Bucket:
        """The bucket as it is reached by another endpoint."""
        return replace(self, endpoint=endpoint)


def is_installed() -> bool:
    """Whether there is a server: the group ``s3``, or the folder of packages that WAL2LAKE_MOTO names."""
    return importlib.util.find_spec("moto") is not None or bool(os.environ.get("WAL2LAKE_MOTO"))


@contextmanager
def s3_server() -> Iterator[str]:
    """The server's URL."""
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


def made_bucket(server: str) -> Bucket:
    """A new bucket of a server."""
    name = f"lake-{uuid.uuid4().hex[:12]}"
    made = urllib.request.urlopen(urllib.request.Request(f"{server}/{name}", method="PUT"), timeout=patient(20))
    assert made.status == 200
    return Bucket(server, name)

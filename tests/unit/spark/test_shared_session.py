"""One Java process for several connectors: who starts it, who notices that it was lost, and whose jobs are whose."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from cdc_core.connector_threads import of_connector
from cdc_core.errors import SparkLostError
from cdc_core.spark import JavaWatch, run_tasks, session, tasks


class Java:
    """A gateway of a Java process that runs until it is lost."""

    def __init__(self):
        self.code = None
        self.proc = SimpleNamespace(poll=lambda: self.code)


@pytest.fixture
def java(monkeypatch):
    """The process's Java, as PySpark keeps it."""
    found = Java()
    for name, value in (("_gateway", found), ("_jvm", object()), ("_active_spark_context", object())):
        monkeypatch.setattr(SparkContext, name, value)
    monkeypatch.setattr(session, "_lost", [])
    return found


def test_every_attempt_knows_of_a_loss_also_after_another_has_started_java_again(java, monkeypatch):
    first, second = JavaWatch(), JavaWatch()
    error = ConnectionRefusedError()
    assert first.explains(error) is None
    java.code = -9
    assert isinstance(first.explains(error), SparkLostError)
    session._forget_lost()
    assert (SparkContext._gateway, SparkContext._jvm, SparkContext._active_spark_context) == (None, None, None)
    monkeypatch.setattr(SparkContext, "_gateway", Java())
    session._forget_lost()
    assert SparkContext._gateway is not None
    assert isinstance(second.explains(error), SparkLostError) and second.explains(ValueError()) is None
    assert JavaWatch().explains(error) is None


def test_one_thread_at_a_time_starts_java(monkeypatch):
    inside, most = [], []

    def start(extra):
        inside.append(extra)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()

    monkeypatch.setattr(session, "_started_session", start)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: session.get_context(), range(4)))
    assert most == [1, 1, 1, 1]


class Context(SparkContext):
    """A context that runs a job in this thread, and keeps the pool that it was in."""

    def __init__(self):
        self.pools, self.pool, self.failure = [], None, None

    def __del__(self):
        """Nothing to stop."""

    def setLocalProperty(self, key, value):  # noqa: N802
        assert key == "spark.scheduler.pool"
        self.pool = value

    def parallelize(self, groups, number):
        self.pools.append((threading.current_thread().name, self.pool))
        if self.failure is not None:
            self.failure()
        return SimpleNamespace(mapPartitions=lambda work: SimpleNamespace(collect=lambda: list(work(groups))))


@pytest.fixture
def context(monkeypatch):
    made = Context()
    monkeypatch.setattr(SparkContext, "_active_spark_context", made)
    monkeypatch.setattr(tasks, "_pool", threading.local())
    return made


def test_jobs_are_in_the_pool_of_their_connector(context):
    spark = SimpleNamespace(sparkContext=context)

    def run():
        assert run_tasks(spark, [[1], [-2]], abs, "testing") == [1, 2]

    run()
    with of_connector("shop"):
        run()
        run()
        with of_connector("billing"):
            run()
    run()
    assert [pool for _, pool in context.pools] == [None, "shop", "shop", "billing", None]


def test_a_context_that_was_replaced_is_a_lost_one(context, monkeypatch):
    spark = SimpleNamespace(sparkContext=context)

    def replaced():
        monkeypatch.setattr(SparkContext, "_active_spark_context", Context())
        raise AttributeError("of None")

    context.failure = replaced
    for _ in range(2):  # while it works, and before it begins
        with pytest.raises(SparkLostError, match="Java process lost"):
            run_tasks(spark, [[1]], abs, "testing")
    assert len(context.pools) == 1

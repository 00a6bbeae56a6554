"""Runs plain Python functions in Spark tasks and returns their results: no rows, no plan, no generated code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import SparkContext

from cdc_core.connector_threads import ConnectorThread, current_connector
from cdc_core.errors import ConfigError, SparkLostError
from cdc_core.spark.errors import received, sent
from cdc_core.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

_pool = threading.local()
_REMEDY = "Check the memory of this machine."


def run_tasks(
    spark: SparkSession,
    groups: Sequence[Sequence[Item]],
    work: Callable[[Item], Result],
    doing: str,
    of_group: Callable[[Callable[[Item], Result], Sequence[Item]], list[Result]] | None = None,
) -> list[Result]:
    """Run ``work(item)`` for every item, one group per task; returns results in item order.

    A group's items are processed in its order, or by ``of_group``, whose results are in this order.
    Items, ``work`` and results are pickled: facts and paths, never data. Spark may run a task again, so ``work`` must
    be repeatable. Raises a CdcError of a worker unchanged, anything else as LakeError ("Spark failed while ``doing``").
    ConfigError if the executors have another version of this package, or none.
    """
    if not groups:
        return []
    ours = __version__

    def run(parts: Iterable[Sequence[Item]]) -> Iterator[list[Result]]:
        with sent():
            require_version(ours)
            for part in parts:
                yield [work(item) for item in part] if of_group is None else of_group(work, part)

    context = spark.sparkContext
    with received(doing), _while_present(context):
        _enter_pool(context)
        results = context.parallelize([tuple(group) for group in groups], len(groups)).mapPartitions(run)
        return [result for part in results.collect() for result in part]


def _enter_pool(context: SparkContext) -> None:
    """Run this thread's jobs in the pool of its connector (``spark.scheduler.mode``)."""
    entered = (context, current_connector())
    if getattr(_pool, "entered", (context, "")) != entered:  # Spark keeps a thread's properties
        pool: Any = entered[1] or None  # None removes the property
        context.setLocalProperty("spark.scheduler.pool", pool)
        _pool.entered = entered


@contextmanager
def _while_present(context: SparkContext) -> Iterator[None]:
    """Raise SparkLostError if the context is not the process's, or is no more when the block fails.

    Another thread forgets a context whose Java process was lost, and starts the next one. What PySpark does in between
    with a part of each is an error of any kind.
    """
    _require_present(context)
    try:
        yield
    except Exception:
        _require_present(context)
        raise


def _require_present(context: SparkContext) -> None:
    if isinstance(context, SparkContext) and SparkContext._active_spark_context is not context:
        raise SparkLostError("Spark's context was stopped, or its Java process lost.", _REMEDY) from None


def start_workers(spark: SparkSession) -> None:
    """Have Spark start its daemon for Python workers now, in the background: it imports for seconds (``daemon``).

    An error is that of the first tasks.
    """

    def begin() -> None:
        with suppress(Exception):
            run_tasks(spark, [[None]], _nothing, "starting workers")

    ConnectorThread(target=begin, name="wal2lake-workers", daemon=True).start()


def _nothing(_: None) -> None:
    """The work of a task that only starts a worker."""


def require_version(wanted: str) -> None:
    """In a task: raise ConfigError if the executor has another version of this package than the driver."""
    if __version__ != wanted:
        raise ConfigError(
            f"Spark's executors have wal2lake {__version__}, and the driver has {wanted}.",
            "Install the same version on all of them (docs/scaling.md).",
        )


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that run in parallel."""
    return int(spark.sparkContext.defaultParallelism)


def balanced(items: Sequence[Item], weight: Callable[[Item], float], groups: int) -> list[list[Item]]:
    """Divide the items into at most ``groups`` groups of about equal weight, the heaviest placed first; none empty."""
    found: list[tuple[float, list[Item]]] = [(0.0, []) for _ in range(max(1, min(groups, len(items))))]
    for item in sorted(items, key=weight, reverse=True):
        at = min(range(len(found)), key=lambda number: found[number][0])
        total, members = found[at]
        members.append(item)
        found[at] = (total + weight(item), members)
    return [members for _, members in found if members]

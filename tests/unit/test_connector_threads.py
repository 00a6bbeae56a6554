"""A thread works for the connector of the thread that started it."""

import re
import threading
from pathlib import Path

from cdc_core.connector_threads import ConnectorThread, ConnectorThreadPool, current_connector, of_connector
from tests.support.waits import patient

ROOT = Path(__file__).parents[2] / "cdc_core"
# Threads of the process, or of a worker's task: they log nothing, and run no jobs of Spark.
OTHERS = {
    "cli/exits.py",
    "demo/workload.py",
    "lake/delta/objects.py",
    "lake/delta/side_by_side.py",
    "observe/endpoint.py",
    "quality/time_bound.py",
    "spark/quiet_start.py",
    "supervise/group.py",
}


def test_threads_and_pools_work_for_the_connector_of_their_creator():
    names = []
    with ConnectorThreadPool(1) as pool, of_connector("shop"):
        thread = ConnectorThread(target=lambda: names.append(current_connector()))
        with of_connector("billing"):
            first = pool.submit(current_connector)
            thread.start()
            thread.join()
        # The same thread of the pool, for another connector.
        assert [
            first.result(),
            pool.submit(current_connector).result(),
            *pool.map(lambda _: current_connector(), [1]),
        ] == [
            "billing",
            "shop",
            "shop",
        ]
    assert names == ["shop"] and current_connector() == ""


def test_connectors_do_not_see_each_other():
    begun, seen = threading.Barrier(2, timeout=patient(10)), {}

    def work(name):
        with of_connector(name):
            begun.wait()
            seen[name] = current_connector()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(10))
    assert seen == {"a": "a", "b": "b"}


def test_no_other_threads_are_started():
    plain = re.compile(r"(?<!Connector)(?<!\w)(?:threading\.)?(?:Thread|ThreadPoolExecutor)\(")
    using = {
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("**/*.py") if plain.search(path.read_text("utf-8"))
    }
    assert using == OTHERS

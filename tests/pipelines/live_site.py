"""A code location without server, Spark or lake, for real Dagster processes: an engine that only keeps time.

It writes what it does to ``journal`` in the folder ``WAL2LAKE_TEST_FOLDER``: start and end of each piece of work with
its process, and the number of events it told of.
"""

import json
import os
import time
from pathlib import Path

from cdc_core.engine.reports import BatchReport, SnapshotReport, StreamReport
from cdc_core.lsn import Lsn
from pipelines.factory import definitions_of
from tests.pipelines.fake import ORDERS, PEOPLE, News, merge, round_of, site, table

FOLDER = Path(os.environ["WAL2LAKE_TEST_FOLDER"])
MOST_SECONDS = 300


def write(kind, **facts):
    line = json.dumps({"kind": kind, "pid": os.getpid(), "at": time.time(), **facts})
    with (FOLDER / "journal").open("a") as journal:
        journal.write(line + "\n")


class LiveEngine:
    def tables(self):
        return [table(ORDERS), table(PEOPLE)]

    def pending(self):
        return News(has_changes=(FOLDER / "news").exists(), confirmed_lsn=Lsn(time.time_ns()), is_claimed=True)

    def snapshot(self, tables=None, spark=None, on_progress=None):
        write("start", work="snapshot")
        time.sleep(1)
        write("end", work="snapshot", events=0)
        return [SnapshotReport(one, 10, Lsn(4096), 0.5, 1) for one in tables]

    def stream(self, until, spark=None, on_batch=None, on_round=None, should_stop=None):
        write("start", work="stream")
        started, rounds = time.monotonic(), 0
        is_last = False
        while not is_last and time.monotonic() - started < MOST_SECONDS:
            # The round at hand is done to its end: one that is asked to stop always has something left to report.
            is_last = should_stop()
            rounds += 1
            on_batch(BatchReport(rounds, {ORDERS: 5}, Lsn(5000 + rounds), 77, 0.1))
            on_round(round_of(merge(ORDERS, lsn=5000 + rounds)))
            time.sleep(0.2)
        write("end", work="stream", events=5 * rounds)
        return StreamReport(rounds, 5 * rounds, Lsn(5000 + rounds), (), time.monotonic() - started, "request")


class NoSpark:
    spark_session = None


def definitions():
    from pipelines import factory

    factory.spark_resource = lambda here: NoSpark()
    return definitions_of([site(LiveEngine(), FOLDER / "state", known=(ORDERS, PEOPLE))])


defs = definitions()

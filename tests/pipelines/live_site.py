"""A code location without server, Spark or lake, for real Dagster processes: an engine that only keeps time.

It writes what it does to ``journal`` in the folder ``WAL2LAKE_TEST_FOLDER``: start and end of each piece of work with
its process, and the number of events it told of.
"""

import fcntl
import json
import os
import time
from pathlib import Path

from cdc_core.engine.reports import BatchReport, StreamReport
from cdc_core.errors import SourceError
from cdc_core.lsn import Lsn
from cdc_core.observe.options import FreshnessWindow
from cdc_core.snapshot.incremental.reports import KeyRange, RangeReport
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport
from tests.pipelines.fake import ORDERS, PEOPLE, Backlog, merge, round_of, site, status_of, table, table_status
from tests.support.waits import patient
from wal2lake.pipelines.connector.site import SnapshotPlan
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.jobs import slot_runs

FOLDER = Path(os.environ["WAL2LAKE_TEST_FOLDER"])
MOST_SECONDS = 1200
# Beside other tests Dagster's daemon may take more than a minute until it retries a run.
slot_runs.RETRY_SECONDS = patient(80)
FRESHNESS = (FreshnessWindow(r"public\..*", None, 600),)
PLAN = SnapshotPlan(os.environ.get("WAL2LAKE_TEST_CRON", ""), tables=("public.orders",))


def write(kind, **facts):
    line = json.dumps({"kind": kind, "pid": os.getpid(), "at": time.time(), **facts})
    with (FOLDER / "journal").open("a") as journal:
        journal.write(line + "\n")


def wait_while(file):
    deadline = time.monotonic() + MOST_SECONDS
    while file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def claim(how=fcntl.LOCK_EX):
    """The file that is locked while a stream's process runs, as the slot's claim is."""
    file = (FOLDER / "claim").open("a")
    fcntl.flock(file, how)
    return file


def is_claimed():
    try:
        claim(fcntl.LOCK_EX | fcntl.LOCK_NB).close()
    except OSError:
        return True
    return False


class LiveEngine:
    def tables(self):
        return [table(ORDERS), table(PEOPLE)]

    def pending(self):
        return Backlog(
            has_changes=(FOLDER / "backlog").exists(), confirmed_lsn=Lsn(time.time_ns()), is_claimed=is_claimed()
        )

    def status(self):
        return status_of(table_status(ORDERS), table_status(PEOPLE))

    streams = True

    def initial_snapshot(self, spark=None, on_progress=None, on_notification=None, *, only=None):
        return self.snapshot(only, spark, on_progress, on_notification)

    def snapshot(self, tables=None, spark=None, on_progress=None, on_notification=None):
        write("start", work="snapshot", tables=[str(one) for one in tables])
        reports = []
        for one in tables:
            for done in range(1, 11):
                time.sleep(0.05)
                on_progress(SnapshotProgress(one, done * 100, 1000, False, done, 10))
                if done == 5:
                    wait_while(FOLDER / f"hold_{one}")
            if (FOLDER / f"refuse_{one}").exists():
                write("end", work="snapshot", events=0)
                raise SourceError(f"Table {one} is locked.", "Try again later.")
            reports.append(SnapshotReport(one, 1000, Lsn(4096), 0.5, 1))
            on_progress(SnapshotProgress(one, 1000, 1000, True, 10, 10, reports[-1]))
        write("end", work="snapshot", events=0)
        return reports

    def plan_incremental(self, tables=None):
        return [KeyRange(one, number, 2) for one in tables or (ORDERS, PEOPLE) for number in (1, 2)]

    def incremental_snapshot(self, ranges, spark=None, on_progress=None, should_stop=None, *, on_range=None):
        write("start", work="incremental", ranges=[one.name for one in ranges])
        reports = [RangeReport(one, 10, is_applied=True) for one in ranges]
        for report in reports:
            on_range(report)
        return reports

    def signal(self, kind, data=""):
        write("signal", signal=kind, data=json.loads(data or "{}"))
        return "source"

    def stream(self, until, spark=None, on_batch=None, on_round=None, should_stop=None, *, on_notification=None):
        held = claim()
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
        held.close()
        write("end", work="stream", events=5 * rounds)
        return StreamReport(rounds, 5 * rounds, Lsn(5000 + rounds), (), time.monotonic() - started, "request")


class NoSpark:
    spark_session = None


def definitions():
    from wal2lake.pipelines import factory

    factory.spark_resource = lambda here: NoSpark()
    return definitions_of(
        [site(LiveEngine(), FOLDER / "state", known=(ORDERS, PEOPLE), plan=PLAN, freshness=FRESHNESS)]
    )


defs = definitions()

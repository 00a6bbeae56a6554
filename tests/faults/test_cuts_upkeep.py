"""Maintenance by another process while the stream goes on: both give way, and every round is still one state."""

import threading
from contextlib import contextmanager

import pytest

from cdc_core.assemble import Connector
from cdc_core.config.connector import load
from tests.faults.test_cuts import ACCOUNTS, COLUMNS, COUNTER, SCHEMA, Writer, check_rounds, connector, rounds_of
from tests.support.lake import difference
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

# Of one burst; every table but the quiet one changes in it.
TRANSACTIONS = 10


class InBursts(Writer):
    """Commits as many transactions as it was asked for, then waits: a round for each burst, however slow the machine.

    A slice of the clustered table is a merge by Spark, which costs a second of computing each time.
    """

    def __init__(self, pg, database, seed):
        super().__init__(pg, database, seed)
        self.asked = 0

    def _goes_on(self, number):
        while number >= self.asked and not self.stopped.wait(0.05):
            pass
        return not self.stopped.is_set()

    def burst(self, config) -> None:
        """Commit some more, and wait until a round has shown them."""
        before = rounds_of(config)
        self.asked += TRANSACTIONS
        wait_until(lambda: rounds_of(config) > before and self.error is None, 120, "a round", 0.3)


@contextmanager
def beside(work, times):
    """Do ``work`` so many times in another thread; all have been done at the end."""
    failed = []

    def go_on():
        try:
            for _ in range(times):
                work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    yield
    thread.join(patient(240))
    assert not thread.is_alive() and not failed, failed


def test_upkeep_and_rounds_give_way_to_each_other(pg, program, spark, tmp_path):
    """OPTIMIZE and VACUUM by another process while the stream goes on, one table with more features."""
    database = pg.database("cuts_upkeep")
    pg.execute(database, SCHEMA)
    more = {
        # A burst is one round, or two.
        "wal2lake.freshness.seconds": "2",
        "wal2lake.lake.clustered.tables": "public.counter",
        "wal2lake.lake.row.tracking.tables": "public.counter",
        "wal2lake.lake.change.feed.tables": "public.counter",
    }
    file = connector(pg, database, tmp_path, more)
    config = load(file)
    writer = InBursts(pg, database, seed=11)
    # This process has a session of its own: the Java process that is lent to runs holds the stream's.
    upkeep = Connector.from_file(file)
    assert program.stream(file).returncode == 0
    writer.start()
    with program.started("run", file) as running:
        for _ in range(2):
            writer.burst(config)
        with beside(lambda: writer.burst(config), 3):
            told = upkeep.maintain(spark=lambda: spark)
        writer.burst(config)
        writer.stopped.set()
        writer.join(patient(30))
        assert running.end(15, seconds=120) == 0, running.said()[-3000:]
    assert writer.error is None and not writer.is_alive()
    assert program.stream(file).returncode == 0
    assert difference(file, list(COLUMNS)) == []
    rounds, whole = check_rounds(config, writer)
    assert rounds > 6 and whole > 2
    assert {COUNTER, ACCOUNTS} <= {report.table for report in told if report.kind == "lake"}
    assert sum(report.done.rewritten for report in told) > 4

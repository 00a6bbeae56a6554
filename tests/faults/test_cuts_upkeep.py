"""Maintenance by another process while the stream goes on: both give way, and every round is still one state."""

import pytest

from cdc_core.assemble import Connector
from cdc_core.config.connector import load
from tests.faults.test_cuts import ACCOUNTS, COLUMNS, COUNTER, SCHEMA, Writer, check_rounds, connector, rounds_of
from tests.support.lake import difference
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_upkeep_and_rounds_give_way_to_each_other(pg, program, spark, tmp_path):
    """OPTIMIZE and VACUUM by another process while the stream goes on, of tables that Arrow and that Spark writes."""
    database = pg.database("cuts_upkeep")
    pg.execute(database, SCHEMA)
    more = {
        # A slice of the clustered table is a merge by Spark, which costs a second of computing each time.
        "wal2lake.freshness.seconds": "8",
        "wal2lake.lake.clustered.tables": "public.counter",
    }
    file = connector(pg, database, tmp_path, more)
    config = load(file)
    writer = Writer(pg, database, seed=11, at_once=40, pause=0.2)
    assert program.stream(file).returncode == 0
    # This process has a session of its own: the Java process that is lent to runs holds the stream's.
    upkeep, told = Connector.from_file(file), []
    writer.start()
    with program.started("run", file) as running:
        for count in (2, 1):
            some_rounds(config, count)
            told += upkeep.maintain(spark=lambda: spark)
        some_rounds(config, 1)
        writer.stopped.set()
        writer.join(patient(30))
        assert running.end(15, seconds=120) == 0, running.said()[-3000:]
    assert writer.error is None and not writer.is_alive()
    assert program.stream(file).returncode == 0
    assert difference(file, list(COLUMNS)) == []
    rounds, whole = check_rounds(config, writer)
    assert rounds > 4 and whole > 2
    engines = {(report.table, report.done.engine) for report in told if report.kind == "lake"}
    assert (COUNTER, "spark") in engines and (ACCOUNTS, "arrow") in engines
    assert sum(report.done.rewritten for report in told) > 10


def some_rounds(config, count) -> None:
    """Wait for so many rounds more: each table has as many new files."""
    wanted = rounds_of(config) + count
    wait_until(lambda: rounds_of(config) >= wanted, 120, "rounds")

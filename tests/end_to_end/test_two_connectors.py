"""Two ``Connector`` objects that stream in two threads of one program."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import wal2lake
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLE = TableId("public", "t")


def test_two_connectors_stream_in_two_threads(debian15, spark, tmp_path):
    files = []
    for name in ("west", "east"):
        database = debian15.database(name)
        debian15.execute(database, f"create table t (id int primary key, {name} text); insert into t values (1, 'a')")
        settings = {**lake_settings(tmp_path), "topic.prefix": name}
        files.append(write_properties(tmp_path / f"{name}.properties", debian15.properties(database, **settings)))

    def run(file):
        connector = wal2lake.Connector.from_file(file)
        database = connector.config.postgres.database_dbname
        connector.initial_snapshot(spark)
        rounds = 0

        def change(_):
            nonlocal rounds
            rounds += 1
            if rounds < 10:
                debian15.execute(database, f"insert into t values ({rounds + 1}, 'b')")

        debian15.execute(database, "insert into t values (0, 'c')")
        connector.stream(wal2lake.Until(idle_seconds=0.5), spark, on_round=change)
        return rounds

    with ThreadPoolExecutor(2) as pool:
        rounds = [future.result(patient(120)) for future in [pool.submit(run, file) for file in files]]
    assert min(rounds) >= 1
    assert [difference(file, [TABLE]) for file in files] == [[], []]
    # Their jobs are in pools of their own, so that neither waits for all tasks of the other.
    pools = spark.sparkContext._jsc.sc().getAllPools()
    names = {pools.apply(number).name() for number in range(pools.size())}
    assert {"west", "east"} <= names

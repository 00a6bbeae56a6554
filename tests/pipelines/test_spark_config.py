"""dagster-pyspark's spark_config in a run's configuration: the run's tasks are on a standalone cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_path, lake_settings, write_properties
from tests.support.spark_cluster import SparkCluster
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
ORDERS = TableId("public", "orders")
# A process of its own: one process has one Spark context.
RUN = """
import json, sys
import dagster as dg
import deltalake
from pathlib import Path
from wal2lake.pipelines.connector.files import load_sites
from wal2lake.pipelines.connector.keys import incremental_key
from wal2lake.pipelines.connector.partitions import partitions_name, ranges_name
from wal2lake.pipelines.factory import definitions_of

(site,), _ = load_sites([Path(sys.argv[1])])
config = {"resources": {"spark_shop": {"config": {"spark_config": json.loads(sys.argv[2])}}}}
with dg.DagsterInstance.local_temp() as instance:
    instance.add_dynamic_partitions(partitions_name(site), ["public.orders"])
    defs = definitions_of([site])
    job = defs.resolve_job_def("shop_snapshot_job")
    assert job.execute_in_process(instance=instance, partition_key="public.orders", run_config=config).success
    # Its ranges repair what is damaged now.
    deltalake.DeltaTable(sys.argv[3]).delete("id % 2 = 0")
    ranges = [one.name for one in site.open().plan_incremental()]
    assert len(ranges) == 4
    instance.add_dynamic_partitions(ranges_name(site), ranges)
    job = defs.resolve_job_def("shop_incremental_snapshot_job")
    both = {"dagster/asset_partition_range_start": ranges[0], "dagster/asset_partition_range_end": ranges[-1]}
    assert job.execute_in_process(instance=instance, tags=both, run_config=config).success
    assert instance.get_materialized_partitions(incremental_key(site)) == set(ranges)
"""


def test_a_run_is_on_the_cluster_that_its_spark_config_names(pg: Cluster, tmp_path: Path) -> None:
    database = pg.database("spark_config")
    pg.execute(database, "create table orders (id int primary key, n int)")
    pg.execute(database, "insert into orders select g, g from generate_series(1, 2000) g; analyze orders")
    settings = {**lake_settings(tmp_path), "topic.prefix": "shop", "table.include.list": str(ORDERS)}
    settings |= {"wal2lake.snapshot.rows.per.partition": "500"}
    # The run's configuration prevails over the connector's.
    settings["wal2lake.spark.spark.master"] = "local[1]"
    file = write_properties(tmp_path / "shop.properties", pg.properties(database, **settings))
    with SparkCluster(tmp_path / "cluster", workers=1) as cluster:
        # As YAML has it, nested where a user likes.
        given = '{"spark": {"master": "%s"}, "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}'
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(file), given % cluster.url, str(lake_path(load(file), ORDERS))],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=patient(200),
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        assert "Registering app wal2lake" in cluster.said()
    assert difference(file, [ORDERS]) == []

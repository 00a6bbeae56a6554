"""The code location loads fast, starts no JVM, and needs no server."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.waits import patient

ROOT = Path(__file__).parents[2]
CONNECTOR = """\
name=shop
database.hostname=127.0.0.1
database.port=1
database.user=nobody
database.password=${env:NO_SUCH_SECRET}
database.dbname=none
topic.prefix=shop
table.include.list=public.orders,public\\\\.people
slot.name=shop_slot
wal2lake.lake.path=%s/lake
wal2lake.state.path=%s/state
"""
LOAD = '''
import json, os, sys, time

def queued():
    """Seconds in which the main thread could have run but had no core; 0 where the kernel does not count them."""
    try:
        return int(open("/proc/self/schedstat").read().split()[1]) / 1e9
    except OSError:
        return 0.0

started, cpu_started, queued_started = time.perf_counter(), time.process_time(), queued()
import dagster
dagster_cpu = time.process_time() - cpu_started
from wal2lake.pipelines.definitions import defs
repository = defs.get_repository_def()
seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
seconds -= queued() - queued_started
gateway = None
if "pyspark" in sys.modules:
    from pyspark import SparkContext
    gateway = SparkContext._gateway
children = open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split()
print(json.dumps({
    "seconds": seconds,
    "cpu": cpu,
    "dagster_cpu": dagster_cpu,
    "jvm": gateway is not None,
    "children": len(children),
    "needless": sorted({"great_expectations", "pyspark", "duckdb", "deltalake"} & set(sys.modules)),
    "assets": sorted(key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()),
    "jobs": sorted(repository.job_names),
    "sensors": sorted(sensor.name for sensor in repository.sensor_defs),
}))
'''


def load(folder: Path) -> dict:
    environment = {**os.environ, "WAL2LAKE_CONNECTORS": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "connectors"
    place.mkdir()
    (place / "shop.properties").write_text(CONNECTOR % (tmp_path, tmp_path))
    return place


def test_definitions_load_in_under_three_seconds_without_jvm_and_server(folder):
    # Loading waits for nothing, so its own processor time is what it costs on a machine that other tests keep busy;
    # the wall's clock, without the time in which it waited for a core, would show a wait for a server.
    found = load(folder)
    # On a machine that needs more than a second for the import of Dagster alone, so many times that.
    assert found["cpu"] < 3.0 * max(1.0, found["dagster_cpu"])
    assert found["seconds"] < 3 * found["cpu"] + 2.0
    assert not found["jvm"]
    assert found["children"] == 0
    assert found["needless"] == []
    assert found["assets"] == [
        "shop/changes",
        "shop/incremental_snapshot",
        "shop/lake/public/orders",
        "shop/lake/public/people",
        "shop/maintenance/public/orders_maintenance",
        "shop/maintenance/public/people_maintenance",
        "shop/messages",
        "shop/snapshot",
        "shop/source/public/orders_source",
        "shop/source/public/people_source",
    ]
    assert {"shop_stream_job", "shop_snapshot_job", "shop_slot_health_job", "shop_maintenance_job"} <= set(
        found["jobs"]
    )
    assert found["sensors"] == ["shop_slot", "shop_slot_health", "shop_tables"]


def test_definitions_of_500_tables_of_three_connectors_load_and_read_each_thing_once(folder, tmp_path, monkeypatch):
    """Its time is measured by ``benchmarks/micro/bench_definitions.py``; here what it does is counted."""
    from tests.pipelines.fake import table
    from wal2lake.pipelines.connector import catalogue
    from wal2lake.pipelines.connector.files import connector_files, load_sites
    from wal2lake.pipelines.factory import definitions_of

    (folder / "shop.properties").unlink()
    for name, count in (("one", 200), ("two", 200), ("three", 100)):
        text = (CONNECTOR % (tmp_path / name, tmp_path / name)).replace("topic.prefix=shop", f"topic.prefix={name}")
        (folder / f"{name}.properties").write_text(text)
        ids = [TableId("public", f"table_{number:03}") for number in range(count)]
        catalogue.write(tmp_path / name / "state", [table(one) for one in ids])
    read, typed = [], []
    monkeypatch.setattr(catalogue, "read", lambda path, before=catalogue.read: read.append(path) or before(path))
    monkeypatch.setenv("WAL2LAKE_CONNECTORS", str(folder))
    sites, broken = load_sites(connector_files())
    assert not broken
    counted = [
        replace(site, lake_fields=lambda schema, before=site.lake_fields: typed.append(schema.id) or before(schema))
        for site in sites
    ]
    keys = definitions_of(counted).resolve_asset_graph().get_all_asset_keys()
    assert len(keys) == 500 * 3 + 3 * 4
    assert len(typed) == 500
    assert len(read) == 3


def test_a_misspelt_file_is_shown_as_broken_and_the_other_one_loads(folder):
    (folder / "bad.properties").write_text("topic.prefix=bad\nslot.nme=x\n")
    assets = load(folder)["assets"]
    assert "bad/cannot_be_read" in assets
    assert "shop/changes" in assets


def test_an_empty_folder_gives_empty_definitions(tmp_path):
    assert load(tmp_path)["assets"] == []

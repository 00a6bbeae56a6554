"""Dagster, PostgreSQL, Spark and Delta together: discovery, a backfill, the sensor, the stream, the checks."""

import threading
import time
from pathlib import Path

import dagster as dg
import pytest

from cdc_core.lake.stores.stream_table import StreamTable
from cdc_core.schema.table import TableId
from tests.support.lake import difference, doubled_events, lake_settings, rows, write_properties
from tests.support.spark import SETTINGS
from tests.support.waits import patient
from wal2lake.pipelines.connector import catalogue
from wal2lake.pipelines.connector.files import load_sites
from wal2lake.pipelines.connector.keys import changes_key, incremental_key, lake_key, own_key, snapshot_key
from wal2lake.pipelines.connector.partitions import partitions_name, ranges_name
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.sensors.connector import discovery_sensor, slot_sensor

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ORDERS, PEOPLE, LOG = TableId("public", "orders"), TableId("public", "people"), TableId("public", "log")
TABLES = [ORDERS, PEOPLE, LOG]
SOURCE = """
create table orders (id int primary key, total numeric(12,2) not null, note text);
create table people (id int primary key, name varchar(20) not null, mood text);
create table log (line text);
insert into orders select n, n * 1.5, 'order ' || n from generate_series(1, 50) n;
insert into people select n, 'p' || n, 'fine' from generate_series(1, 20) n;
insert into log select 'line ' || n from generate_series(1, 5) n;
"""
CHANGES = """
update orders set total = total + 1 where id <= 10;
delete from orders where id > 45;
insert into people values (100, 'ann', 'fine'), (101, 'zoe', 'grim');
insert into log values ('more');
select pg_logical_emit_message(true, 'shop', 'a message');
"""


@pytest.fixture
def connector(pg, tmp_path):
    database = pg.database("dagster")
    pg.execute(database, SOURCE)
    properties = pg.properties(
        database,
        **{
            "topic.prefix": "shop",
            "publication.autocreate.mode": "filtered",
            "skipped.operations": "none",
            "schema.include.list": "public",
            **lake_settings(tmp_path),
            "wal2lake.quality.rule.no_grim": "public.people: after.mood <> 'grim'",
            **{f"wal2lake.spark.{name}": value for name, value in SETTINGS.items()},
        },
    )
    file = write_properties(tmp_path / "shop.properties", properties)
    yield pg, database, file
    drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s"
    pg.execute(database, drop, [database])


def run(site, job, instance, **more):
    definition = definitions_of([site]).resolve_job_def(job)
    return definition.execute_in_process(instance=instance, raise_on_error=False, **more)


def numbers(instance, key):
    event = instance.get_latest_materialization_event(key)
    metadata = event.dagster_event.event_specific_data.materialization.metadata
    return {name: value.value for name, value in metadata.items() if isinstance(value.value, (int, float, str))}


def summed(instance, key, run_id):
    """The latest report's numbers, with the events of all reports of the run."""
    made = [record for record in instance.fetch_materializations(key, limit=100).records if record.run_id == run_id]
    seen = [record for record in instance.fetch_observations(key, limit=100).records if record.run_id == run_id]
    found = [one.asset_materialization.metadata for one in made] + [one.asset_observation.metadata for one in seen]
    sums = {name: sum(one[name].value for one in found if name in one) for name in ("events", "deleted", "quarantined")}
    return numbers(instance, key) | sums


def change_and_watch(connector, site, instance, seen):
    """While a run goes on: change the source, and wait until Dagster shows each change's table.

    Another table changes all the while: the run, which ends when it is idle, may have ended before Dagster shows it.
    """
    pg, database, _ = connector
    for number in range(3):
        pg.execute(database, f"insert into orders values ({1000 + number}, 1, 'while it runs')")
        deadline = time.monotonic() + patient(60)
        while time.monotonic() < deadline:
            pg.execute(database, "insert into log values ('the run is not idle')")
            shown = numbers(instance, lake_key(site, ORDERS))
            if shown["dagster/row_count"] == 46 + number:
                statuses = [run.status.value for run in instance.get_runs(limit=1)]
                seen.append((*statuses, shown["lag_seconds"]))
                break
            time.sleep(0.5)


def load(file):
    (site,), broken = load_sites([file])
    assert not broken
    return site


def test_from_an_empty_lake_to_checked_tables(connector):
    pg, database, file = connector
    with dg.DagsterInstance.local_temp() as instance:
        site = load(file)
        result = discovery_sensor(site)(dg.build_sensor_context(instance=instance))
        (request,) = result.dynamic_partitions_requests
        assert request.partition_keys == sorted(str(table) for table in TABLES)
        instance.add_dynamic_partitions(partitions_name(site), request.partition_keys)
        assert {table.id for table in catalogue.read(site.state_path)} == set(TABLES)
        skipped = slot_sensor(site)(dg.build_sensor_context(instance=instance))
        assert "take a snapshot first" in skipped.skip_message

        site = load(file)  # as after a reload: the tables come from the catalogue now
        keys = request.partition_keys
        tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        assert run(site, "shop_snapshot_job", instance, tags=tags).success
        assert instance.get_materialized_partitions(snapshot_key(site)) == set(keys)
        assert difference(file, TABLES) == []

        pg.execute(database, CHANGES)
        started = slot_sensor(site)(dg.build_sensor_context(instance=instance))
        assert len(started.run_requests) == 1
        bounds = {"ops": {"shop_stream": {"config": {"idle_seconds": 2.0, "max_seconds": patient(200)}}}}
        streamed = run(site, "shop_stream_job", instance, run_config=bounds)
        assert_streamed(streamed, site, instance, file)

        # Nothing is left: the refused row is not tried again, and the source goes on.
        pg.execute(database, "delete from people where id = 101")
        assert run(site, "shop_stream_job", instance, run_config=bounds).success
        assert difference(file, TABLES) == []
        assert doubled_events(file, PEOPLE) == 0

        # A snapshot that a signal asks for is taken by the next run of the stream, which tells of it.
        wanted = {"type": "execute-snapshot", "data_collections": [str(ORDERS)]}
        asked = {"ops": {"shop_signal": {"config": wanted}}}
        assert run(site, "shop_signal_job", instance, run_config=asked).success
        assert site.open().pending().has_signals
        assert run(site, "shop_stream_job", instance, run_config=bounds).success
        assert_snapshot_told(site, instance)
        assert difference(file, TABLES) == []

        assert_range_is_read(pg, database, site, instance)
        assert difference(file, TABLES) == []

        # A run that goes on shows each change while it does.
        seen = []
        bounds["ops"]["shop_stream"]["config"] |= {"idle_seconds": patient(5.0), "report_seconds": 1.0}
        watcher = threading.Thread(target=change_and_watch, args=(connector, site, instance, seen))
        watcher.start()
        assert run(site, "shop_stream_job", instance, run_config=bounds).success
        watcher.join(patient(200))
        assert [status for status, _ in seen] == ["STARTED"] * 3
        assert difference(file, TABLES) == []


def assert_range_is_read(pg, database, site, instance):
    """The sensor makes partitions of ranges; a run that reads one streams to its own end where no other run does."""
    result = discovery_sensor(site)(dg.build_sensor_context(instance=instance))
    (request,) = result.dynamic_partitions_requests
    ranges = [f"{ORDERS}|0001", f"{PEOPLE}|0001"]
    assert (request.partitions_def_name, request.partition_keys) == (ranges_name(site), ranges), "LOG has no key"
    instance.add_dynamic_partitions(ranges_name(site), ranges)
    pg.execute(database, "update orders set total = total + 1")
    assert run(site, "shop_incremental_snapshot_job", instance, partition_key=ranges[0]).success
    assert instance.get_materialized_partitions(incremental_key(site)) == {ranges[0]}
    made = instance.get_latest_materialization_event(incremental_key(site)).asset_materialization
    assert made.metadata["rows"].value == 45


def assert_snapshot_told(site, instance):
    """The signal and what became of it are observed, and the signal is not obeyed again."""
    assert not site.open().pending().has_signals
    seen = instance.fetch_observations(snapshot_key(site), limit=100, ascending=True).records
    told = [record.asset_observation.description for record in seen if record.asset_observation.description]
    since = told.index("Signal execute-snapshot sent through channel in-process")
    assert told[since + 1] == "Incremental snapshot of public.orders: started"
    assert told[-2:] == [
        "Incremental snapshot of public.orders: table scan completed (SUCCEEDED)",
        "Incremental snapshot: completed",
    ]
    (scanned,) = [one for one in seen if one.asset_observation.description == told[-2]]
    assert scanned.asset_observation.partition == str(ORDERS)
    assert scanned.asset_observation.metadata["total_rows_scanned"].value == 45


def assert_streamed(streamed, site, instance, file):
    assert streamed.success, "it did its work: what the refused row fails are its table's checks"
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    told = [
        record.event_log_entry.dagster_event.event_specific_data
        for record in instance.get_records_for_run(streamed.run_id, of_type=kind).records
    ]
    checks = {(check.asset_key, check.check_name): check for check in told}
    failed = {(key.path[-1], name) for (key, name), check in checks.items() if not check.passed}
    assert failed == {("changes", "expectations"), ("people", "great_expectations")}
    assert difference(file, [ORDERS, LOG]) == []
    (behind,) = difference(file, [PEOPLE])
    assert (behind.missing, behind.extra) == (1, 0)
    (refused,) = rows(site.state_path.parent / "lake" / "shop" / "__quarantine" / "public" / "people")
    assert list(refused["reasons"]) == ["user:no_grim"]

    (held,) = instance.get_runs(limit=1)
    orders = summed(instance, lake_key(site, ORDERS), held.run_id)
    assert (orders["events"], orders["deleted"], orders["dagster/row_count"]) == (15, 5, 45)
    assert summed(instance, lake_key(site, PEOPLE), held.run_id)["quarantined"] == 1
    changes = summed(instance, changes_key(site), held.run_id)
    assert (changes["events"], changes["stopped_by"]) == (18, "idle")
    assert numbers(instance, own_key(site, StreamTable.MESSAGES))["rows"] == 1
    assert "public.people" in Path(changes["data_docs"]).read_text()

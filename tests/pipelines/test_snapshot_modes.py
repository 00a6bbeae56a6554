"""What each snapshot mode reads: by ``wal2lake snapshot``, Dagster's partitions, its sensor's start, the component."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from cdc_core.assemble import Connector
from cdc_core.errors import CdcError
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, lake_settings, rows, write_properties
from tests.support.spark import SETTINGS, test_session
from tests.support.waits import patient
from wal2lake.pipelines.assets.snapshots import READ_AGAIN_TAG
from wal2lake.pipelines.component import ConnectorComponent
from wal2lake.pipelines.connector.files import load_sites
from wal2lake.pipelines.connector.keys import lake_key, snapshot_key
from wal2lake.pipelines.connector.partitions import partitions_name, ranges_name, table_of
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.jobs.schedules import schedule_name
from wal2lake.pipelines.sensors.connector import slot_sensor

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

# Both lead to the same site, so each mode is tried by one of them.
BY = {
    "initial, some": "component",
    "initial_only": "folder",
    "always": "component",
    "no_data": "component",
    "never": "folder",
    "when_needed": "component",
    "configuration_based": "folder",
    "configuration_based, no data": "component",
    "custom": "folder",
    "custom, some": "component",
}
ENDS = ("start", "end")
A, B = (TableId("public", name) for name in ("a", "b"))
SOURCE = (
    "create table a (id int primary key); create table b (id int primary key);"
    "insert into a values (1); insert into b values (1)"
)
# The settings, and the tables whose rows are read at the first start and at a second one.
MODES = {
    "initial, some": ({"snapshot.include.collection.list": "public.a"}, {A}, set()),
    "initial_only": ({"snapshot.mode": "initial_only"}, {A, B}, set()),
    "always": ({"snapshot.mode": "always", "snapshot.include.collection.list": "public.a"}, {A}, {A}),
    "no_data": ({"snapshot.mode": "no_data", "snapshot.include.collection.list": "public.a"}, set(), set()),
    "never": ({"snapshot.mode": "never"}, set(), set()),
    "when_needed": ({"snapshot.mode": "when_needed"}, {A, B}, set()),
    "configuration_based": (
        {
            "snapshot.mode": "configuration_based",
            "snapshot.mode.configuration.based.snapshot.data": "true",
            "snapshot.mode.configuration.based.start.stream": "true",
        },
        {A, B},
        {A, B},
    ),
    "configuration_based, no data": ({"snapshot.mode": "configuration_based"}, set(), set()),
    "custom, some": (
        {"snapshot.mode": "custom", "snapshot.mode.custom.name": "tests.pipelines.test_snapshot_modes.OnceA"},
        {A},
        set(),
    ),
    "custom": (
        {"snapshot.mode": "custom", "snapshot.mode.custom.name": "tests.pipelines.test_snapshot_modes.Never"},
        set(),
        set(),
    ),
}


class Never:
    """A snapshotter that reads no rows, and streams nothing."""

    def should_snapshot_data(self, offset_exists, snapshot_in_progress):
        return False

    def should_snapshot_on_data_error(self):
        return False

    def should_stream(self):
        return False


class OnceA:
    """A snapshotter that reads one table at the first start, and streams both."""

    def should_snapshot_data(self, offset_exists, snapshot_in_progress):
        return not offset_exists

    def should_snapshot_on_data_error(self):
        return False

    def should_stream(self):
        return True

    def build_snapshot_query(self, table):
        return "select * from a" if table == str(A) else None


# Those of which a snapshot that names no tables reads one only, as far as the mode reads any.
OF_A = ("initial, some", "always", "no_data", "custom, some")
# Those that stream nothing.
UNSTREAMED = ("initial_only", "custom", "configuration_based, no data")


@pytest.fixture
def connector(pg, tmp_path):
    """A function that writes the connector file of a mode, for a database of its own."""
    made = []

    def of(settings):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        database = pg.database("modes")
        made.append(database)
        pg.execute(database, SOURCE)
        spark = {f"wal2lake.spark.{name}": value for name, value in SETTINGS.items()}
        properties = pg.properties(database, **{**lake_settings(folder), "topic.prefix": "shop", **settings, **spark})
        return database, write_properties(folder / "shop.properties", properties)

    yield of
    for database in made:
        drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s"
        pg.execute(database, drop, [database])
        pg.drop_database(database)


def in_lake(file):
    """The ids of each table's rows in the lake."""
    config = Connector.from_file(file).config
    places = {table: lake_path(config, table) for table in (A, B)}
    return {table: sorted(row["id"] for row in rows(place)) for table, place in places.items() if place.exists()}


def site_of(file, by):
    """The site of a connector file of the folder, or of the component ``ConnectorComponent`` that names it."""
    if by == "component":
        return ConnectorComponent(file=str(file)).site(None)
    (site,), broken = load_sites([file])
    assert not broken
    return site


def materialized(file, instance, by, job="shop_snapshot_job", tags=(), config=None):
    """Run a job for all tables; the site and the materialized partitions."""
    site = site_of(file, by)
    keys = [str(A), str(B)]
    instance.add_dynamic_partitions(partitions_name(site), keys)
    both = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
    definition = definitions_of([site]).resolve_job_def(job)
    tags = {**(both if "snapshot" in job else {}), **dict(tags)}
    done = definition.execute_in_process(instance=instance, tags=tags, run_config=config, raise_on_error=False)
    assert done.success
    return site, instance.get_materialized_partitions(snapshot_key(site))


def tables_of_tick(site, instance):
    """The tables whose ranges a tick of the schedule reads."""
    instance.add_dynamic_partitions(ranges_name(site), [f"{table}|0001" for table in (A, B)])
    schedule = definitions_of([site]).get_repository_def().get_schedule_def(schedule_name(site))
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=datetime(2026, 1, 1, 4, tzinfo=UTC))
    order = instance.get_dynamic_partitions(ranges_name(site))
    requests = schedule.evaluate_tick(context).run_requests
    ends = [[order.index(request.tags[f"dagster/asset_partition_range_{end}"]) for end in ENDS] for request in requests]
    return {table_of(key) for first, last in ends for key in order[first : last + 1]}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_reads_the_same_by_the_command_and_in_dagster(connector, pg, mode, caplog):
    settings, first, again = MODES[mode]
    _, file = connector(settings)
    session = test_session()
    Connector.from_file(file).snapshot(spark=session)
    assert set(in_lake(file)) == first
    assert Connector.from_file(file).pending().slot_exists
    # A table that is named is read in any mode.
    Connector.from_file(file).snapshot([B], spark=session)
    assert set(in_lake(file)) == first | {B}
    # An incremental snapshot is asked for, so it reads in any mode; without names, the tables of the list.
    listed = {A} if mode in OF_A else {A, B}
    reports = Connector.from_file(file).incremental_snapshot(spark=session)
    assert {report.range.table for report in reports if report.is_applied} == listed
    assert in_lake(file) == {table: [1] for table in first | listed | {B}}

    by = BY[mode]
    database, file = connector(settings)
    with dg.DagsterInstance.local_temp() as instance:
        # In no mode does the sensor's first start read or stream anything: the slot is made by the first snapshot.
        first_start = slot_sensor(site_of(file, by))(dg.build_sensor_context(instance=instance))
        assert isinstance(first_start, dg.SkipReason)
        assert in_lake(file) == {}
        site, found = materialized(file, instance, by)
        assert found == {str(table) for table in first}
        assert set(in_lake(file)) == first
        assert Connector.from_file(file).pending().slot_exists
        unread = {A, B} - first
        assert all(f"{table} is not read: snapshot." in caplog.text for table in unread)
        # What is in the lake is not read again, unless the mode says so, or the tag.
        pg.execute(database, "insert into a values (2); insert into b values (2)")
        materialized(file, instance, by)
        assert in_lake(file) == {table: [1, 2] if table in again else [1] for table in first}
        skipped = slot_sensor(site)(dg.build_sensor_context(instance=instance))
        streams = mode not in UNSTREAMED
        assert isinstance(skipped, dg.SensorResult) == streams
        assert tables_of_tick(site, instance) == listed
        assert materialized(file, instance, by, tags={READ_AGAIN_TAG: "true"})[1] == {str(A), str(B)}
        assert in_lake(file) == {A: [1, 2], B: [1, 2]}
        pg.execute(database, "insert into a values (3)")
        bounds = {"ops": {"shop_stream": {"config": {"idle_seconds": 1.0, "max_seconds": patient(200)}}}}
        materialized(file, instance, by, job="shop_stream_job", config=bounds)
        assert in_lake(file) == {A: [1, 2, 3] if streams else [1, 2], B: [1, 2]}


def test_tables_that_the_command_line_has_read_are_reported_as_they_are(connector):
    _, file = connector({})
    Connector.from_file(file).snapshot(spark=test_session())
    with dg.DagsterInstance.local_temp() as instance:
        site, found = materialized(file, instance, "folder")
        assert found == {str(A), str(B)}
        event = instance.get_latest_materialization_event(lake_key(site, A)).asset_materialization
        assert event.metadata["dagster/row_count"].value == 1
        assert "not read again" in event.metadata["source"].value


@pytest.mark.parametrize("by", ["command", "folder", "component"])
@pytest.mark.parametrize("mode", ["when_needed", "initial"])
def test_a_lost_slot_is_made_again_with_all_rows_only_where_the_mode_says_so(connector, pg, mode, by):
    database, file = connector({"snapshot.mode": mode})
    Connector.from_file(file).snapshot(spark=test_session())
    pg.execute(
        database, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", [database]
    )
    pg.execute(database, "insert into a values (2); insert into b values (2)")
    with dg.DagsterInstance.local_temp() as instance:
        try:
            if by == "command":
                Connector.from_file(file).initial_snapshot(spark=test_session())
            else:
                materialized(file, instance, by)
        except (CdcError, AssertionError):
            assert mode == "initial"
        expected = [1, 2] if mode == "when_needed" else [1]
        assert in_lake(file) == {A: expected, B: expected}
        assert Connector.from_file(file).pending().slot_exists == (mode == "when_needed")

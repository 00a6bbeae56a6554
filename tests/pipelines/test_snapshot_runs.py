"""Runs that take snapshots, in process: what Dagster is told while they go on, and what is read again."""

import time

import dagster as dg
import pytest

from cdc_core.errors import SourceError, TableError, TransientError
from cdc_core.snapshot.notifications import BLOCKING, INCREMENTAL, INITIAL, Notification, SnapshotStatus
from cdc_core.snapshot.reports import SnapshotProgress
from tests.pipelines.fake import ORDERS, PEOPLE, FakeEngine, site
from tests.support.waits import patient
from wal2lake.pipelines.assets import snapshot_events
from wal2lake.pipelines.assets.notification_events import PER_MINUTE, NotificationEvents
from wal2lake.pipelines.connector.keys import snapshot_key
from wal2lake.pipelines.connector.partitions import partitions_name
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.step import failure

pytestmark = pytest.mark.usefixtures("no_spark")

KEYS = [str(ORDERS), str(PEOPLE)]
RANGE = {"dagster/asset_partition_range_start": KEYS[0], "dagster/asset_partition_range_end": KEYS[1]}


def run(here, instance, job="shop_snapshot_job", **more):
    definition = definitions_of([here]).resolve_job_def(job)
    return definition.execute_in_process(instance=instance, raise_on_error=False, **more)


def observed(instance, here):
    found = instance.fetch_observations(snapshot_key(here), limit=1000, ascending=True).records
    return [record.asset_observation for record in found]


def wait(is_met):
    deadline = time.monotonic() + patient(30)
    while not is_met():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_table_is_materialised_while_the_others_are_read(instance):
    seen = []

    def still_at_work(tables, on_progress, on_notification):
        key = snapshot_key(here)
        wait(lambda: instance.get_materialized_partitions(key))
        seen.extend(instance.get_materialized_partitions(key))

    here = site(FakeEngine(snapshots=still_at_work))
    instance.add_dynamic_partitions(partitions_name(here), KEYS)
    assert run(here, instance, tags=RANGE).success
    assert seen == [str(ORDERS)]
    assert instance.get_materialized_partitions(snapshot_key(here)) == set(KEYS)


def test_progress_is_observed_with_rows_ranges_and_rate_within_bounds(instance, monkeypatch):
    monkeypatch.setattr(snapshot_events, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(snapshot_events, "PROGRESS_PER_MINUTE", 2)

    def at_work(tables, on_progress, on_notification):
        on_progress(SnapshotProgress(PEOPLE, 400, 1000, False, 2, 5))
        wait(lambda: len(observed(instance, here)) >= 2)
        time.sleep(0.5)  # for a third one, which would be too many

    here = site(FakeEngine(snapshots=at_work))
    instance.add_dynamic_partitions(partitions_name(here), KEYS)
    assert run(here, instance, tags=RANGE).success
    found = observed(instance, here)
    assert [one.partition for one in found] == [str(PEOPLE)] * 2
    numbers = {name: value.value for name, value in found[0].metadata.items()}
    assert (numbers["rows"], numbers["percent"], numbers["ranges_done"], numbers["ranges_total"]) == (400, 40, 2, 5)
    assert found[0].description.startswith("400 of about 1,000 rows, 2 of 5 ranges, ")


def test_a_database_that_is_away_for_a_moment_does_not_end_a_snapshot(instance, monkeypatch):
    failures = []
    log_event = dg.OpExecutionContext.log_event

    def fails_once(context, event):
        if not failures:
            failures.append(event)
            raise OSError("database is locked")
        log_event(context, event)

    def at_work(tables, on_progress, on_notification):
        wait(lambda: failures)

    monkeypatch.setattr(dg.OpExecutionContext, "log_event", fails_once)
    here = site(FakeEngine(snapshots=at_work))
    instance.add_dynamic_partitions(partitions_name(here), KEYS)
    assert run(here, instance, tags=RANGE).success
    assert instance.get_materialized_partitions(snapshot_key(here)) == set(KEYS)


def test_words_and_percent_of_progress():
    assert metadata.progress_text(SnapshotProgress(ORDERS, 0, None, False), 1.0) == "0 rows"
    found = metadata.snapshot_progress(SnapshotProgress(ORDERS, 50, 20, False), 10.0)
    assert (found["percent"], found["rows_per_second"]) == (99, 5)
    assert "percent" not in metadata.snapshot_progress(SnapshotProgress(ORDERS, 50, None, False), 10.0)


def test_the_snapshots_start_and_end_are_observed_and_its_tables_are_not_reported_twice(instance):
    def tells(tables, on_progress, on_notification):
        on_notification(Notification(INITIAL, SnapshotStatus.STARTED, {"data_collections": "public.orders"}))
        on_notification(
            Notification(INITIAL, SnapshotStatus.TABLE_SCAN_COMPLETED, {"scanned_collection": "public.orders"})
        )
        on_notification(Notification(INITIAL, SnapshotStatus.COMPLETED, {"data_collections": "public.orders"}))

    here = site(FakeEngine(snapshots=tells))
    instance.add_dynamic_partitions(partitions_name(here), KEYS)
    assert run(here, instance, partition_key=KEYS[0]).success
    assert [one.description for one in observed(instance, here)] == [
        "Initial snapshot of public.orders: started",
        "Initial snapshot of public.orders: completed",
    ]


def test_a_snapshot_that_is_tried_again_reads_only_what_it_had_not_finished(instance, monkeypatch):
    monkeypatch.setattr(failure, "RETRIES", dg.RetryPolicy(max_retries=2, delay=0))
    engine = FakeEngine(error=TransientError("The connection was cut."))

    def heals(tables, on_progress, on_notification):
        if len(engine.calls) == 2:
            engine.error = None

    engine.snapshots = heals
    here = site(engine)
    instance.add_dynamic_partitions(partitions_name(here), KEYS)
    assert run(here, instance, tags=RANGE).success
    assert engine.calls == [("snapshot", (ORDERS, PEOPLE)), ("snapshot", (PEOPLE,))]
    assert instance.get_materialized_partitions(snapshot_key(here)) == set(KEYS)


def test_a_failed_partition_alone_is_run_again(instance):
    engine = FakeEngine(error=SourceError("Table people is locked.", "Wait."))
    here = site(engine)
    instance.add_dynamic_partitions(partitions_name(here), KEYS)
    assert not run(here, instance, tags=RANGE).success
    assert instance.get_materialized_partitions(snapshot_key(here)) == {KEYS[0]}
    engine.error = None
    assert run(here, instance, partition_key=KEYS[1]).success
    assert engine.calls[1:] == [("snapshot", (PEOPLE,))]
    assert instance.get_materialized_partitions(snapshot_key(here)) == set(KEYS)


def test_a_table_that_is_no_longer_captured_is_skipped_and_the_others_are_read(instance):
    engine = FakeEngine(captured=(PEOPLE,))
    here = site(engine)
    instance.add_dynamic_partitions(partitions_name(here), KEYS)
    done = run(here, instance, tags=RANGE)
    assert done.success
    assert engine.calls == [("snapshot", (PEOPLE,))]
    assert instance.get_materialized_partitions(snapshot_key(here)) == {str(PEOPLE)}
    said = [entry.user_message for entry in instance.all_logs(done.run_id)]
    assert any("no longer captured" in text and str(ORDERS) in text for text in said)
    # Asked for alone, it fails with the engine's reason; created again, it is read again.
    engine.calls.clear()
    engine.error = TableError(f"Not a captured table: {ORDERS}.", "Check the name.")
    assert not run(here, instance, partition_key=KEYS[0]).success
    engine.error, engine.captured = None, (ORDERS, PEOPLE)
    assert run(here, instance, tags=RANGE).success
    assert engine.calls[-1] == ("snapshot", (ORDERS, PEOPLE))


def test_snapshots_that_the_stream_takes_are_observed_in_its_run(instance):
    told = (
        Notification(
            INCREMENTAL, SnapshotStatus.STARTED, {"connector_name": "shop", "data_collections": "public.orders"}
        ),
        *[
            Notification(INCREMENTAL, SnapshotStatus.IN_PROGRESS, {"current_collection_in_progress": "public.orders"})
            for _ in range(500)
        ],
        Notification(
            INCREMENTAL,
            SnapshotStatus.TABLE_SCAN_COMPLETED,
            {"scanned_collection": "public.orders", "total_rows_scanned": "12", "status": "SUCCEEDED"},
        ),
        Notification(BLOCKING, SnapshotStatus.COMPLETED, {"data_collections": "public.orders"}),
    )
    here = site(FakeEngine(notifications=told))
    assert run(here, instance, "shop_stream_job").success
    found = observed(instance, here)
    assert [one.description for one in found] == [
        "Incremental snapshot of public.orders: started",
        "Incremental snapshot of public.orders: in progress",
        "Incremental snapshot of public.orders: table scan completed (SUCCEEDED)",
        "Blocking snapshot of public.orders: completed",
    ]
    assert [one.partition for one in found] == [None, "public.orders", "public.orders", None]
    assert found[2].metadata["total_rows_scanned"].value == 12


def test_a_minute_brings_so_many_notifications_at_most_and_none_is_lost():
    now = [0.0]
    events = NotificationEvents(site(FakeEngine()), lambda: now[0])
    for number in range(100):
        events.listen(Notification(INCREMENTAL, SnapshotStatus.PAUSED, {"data_collections": f"public.t{number}"}))
    assert len(events.due()) == PER_MINUTE
    now[0] = 59.0
    assert events.due() == []
    now[0] = 61.0
    assert len(events.due()) == PER_MINUTE
    assert len(events.due(is_last=True)) == 100 - 2 * PER_MINUTE

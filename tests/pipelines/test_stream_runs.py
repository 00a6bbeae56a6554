"""A run of the stream that lasts: what Dagster is told while it runs, and how it ends."""

import gc
import os
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from cdc_core.engine.reports import BatchReport
from cdc_core.errors import SourceError, TransientError
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.schema.lake_schema import ensure_table
from cdc_core.lake.stores.changelog import append_changes
from cdc_core.lake.stores.schema_log import SchemaLog
from cdc_core.lsn import Lsn
from cdc_core.observe.options import CheckLevel
from cdc_core.schema.changes import PauseCause
from tests.pipelines.fake import ORDERS, PEOPLE, FakeEngine, merge, round_of, site, table_status
from tests.support.spark import change, change_schema, row_type
from tests.support.waits import patient
from wal2lake.pipelines.assets import stream
from wal2lake.pipelines.assets.stream_events import StreamEvents
from wal2lake.pipelines.connector.keys import changes_key, lake_key
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.jobs.slot_runs import YieldPolicy, consumes_slot
from wal2lake.pipelines.reports.provenance import lake_tags
from wal2lake.pipelines.step import background
from wal2lake.pipelines.step.background import BackgroundWork
from wal2lake.pipelines.step.interrupts import held

WAIT_SECONDS = patient(30)
ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("somewhere"), "definitions"), "any")
QUEUED = {"status": dg.DagsterRunStatus.QUEUED, "remote_job_origin": ORIGIN}


@pytest.fixture(autouse=True)
def quick(no_spark, monkeypatch):
    monkeypatch.setattr(stream, "FIRST_REPORT_SECONDS", 0.2)
    monkeypatch.setattr(background, "_TICK_SECONDS", 0.02)
    monkeypatch.setattr("wal2lake.pipelines.jobs.slot_runs.POLL_SECONDS", 0.1)


def run(here, instance, report_seconds=60.0, **more):
    config = {"ops": {"shop_stream": {"config": {"report_seconds": report_seconds}}}}
    definition = definitions_of([here]).resolve_job_def("shop_stream_job")
    return definition.execute_in_process(instance=instance, raise_on_error=False, run_config=config, **more)


def reports(instance, table, here):
    """Numbers of every materialisation, oldest first."""
    found = instance.fetch_materializations(lake_key(here, table), limit=1000).records
    metadata = [record.asset_materialization.metadata for record in reversed(found)]
    return [{name: value.value for name, value in one.items()} for one in metadata]


def check_of(instance, here, table, name):
    key = dg.AssetCheckKey(lake_key(here, table), name)
    (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    return record.event.dagster_event.event_specific_data


def wait_for(is_met):
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_met():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_a_paused_table_shows_since_when_what_waits_and_what_to_do(instance, tmp_path):
    paths = LakePaths(str(tmp_path), "shop")
    paused = SchemaLog(paths.schema_versions, {}).pause(
        PEOPLE, PauseCause.UNLOGGED, "It is UNLOGGED.", "Make it LOGGED.", 4_000
    )
    changelog = ensure_table(paths.changelog(PEOPLE), change_schema(row_type(id=pa.int64())), PEOPLE, {})
    waiting = [change("c", 5_000, number, None, {"id": number}) for number in range(3)]
    append_changes(changelog, pa.Table.from_pylist(waiting, changelog.schema), "slot_a", PEOPLE, Reached(5_000, None))
    here = replace(site(FakeEngine(rounds=(round_of(failed={PEOPLE: "It is UNLOGGED."}),))), lake_path=str(tmp_path))
    assert run(here, instance).success  # it did its work: what failed is a check
    found = check_of(instance, here, PEOPLE, "merged")
    assert (found.passed, found.description) == (False, "It is UNLOGGED.")
    told = {name: value.value for name, value in found.metadata.items()}
    assert told["paused_since"] == pytest.approx(paused.since.timestamp(), abs=60)
    assert (told["waiting_changes"], told["remedy"]) == (
        3,
        "Make it LOGGED. Then: wal2lake replay CONFIG public.people, or the job shop_replay_job",
    )


def test_tables_and_checks_appear_while_the_run_continues(instance):
    seen = {}

    def script(on_batch, on_round, should_stop):
        on_round(round_of(merge(ORDERS, failed=1), failed={PEOPLE: "Column x became text."}))
        wait_for(lambda: check_of_running("merged", PEOPLE) and reports(instance, ORDERS, here))
        (seen["run"],) = instance.get_runs()
        seen["first"] = reports(instance, ORDERS, here)
        wait_for(lambda: check_of_running("great_expectations", ORDERS))
        seen["slot"] = instance.event_log_storage.get_asset_check_execution_history(slot_health, limit=1)[0].status
        on_round(round_of(merge(ORDERS, lsn=6000), merge(PEOPLE)))
        wait_for(lambda: len(reports(instance, ORDERS, here)) > 1)

    def check_of_running(name, table):
        try:
            found = check_of(instance, here, table, name)
        except ValueError:
            return None
        return found if isinstance(found, dg.AssetCheckEvaluation) and not found.passed else None

    here = site(FakeEngine(script=script))
    slot_health = dg.AssetCheckKey(changes_key(here), "slot_health")
    result = run(here, instance, report_seconds=0.5)
    assert seen["slot"].value == "SUCCEEDED"
    assert seen["run"].status is dg.DagsterRunStatus.STARTED
    assert seen["first"][0]["events"] == 5
    assert result.success  # it did its work: what the quarantined row failed is a check
    assert check_of(instance, here, PEOPLE, "merged").passed
    assert not check_of(instance, here, ORDERS, "great_expectations").passed
    assert sum(one.get("events", 0) for one in reports(instance, ORDERS, here)) == 10
    latest = instance.get_latest_data_version_record(lake_key(here, ORDERS))
    assert latest.asset_materialization.tags["dagster/data_version"] == str(Lsn(6000))


def test_what_the_stream_finds_is_shown_again_after_a_check_was_executed(instance):
    """Dagster keeps one evaluation of a check and run, in the order of the runs' first ones."""
    seen = {}
    names = ("merged", "great_expectations")

    def latest(name):
        return instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(lake_key(here, ORDERS), name), limit=1
        )[0]

    def script(on_batch, on_round, should_stop):
        on_round(round_of(merge(ORDERS)))
        wait_for(lambda: len(instance.get_runs()) == 1 and reports(instance, ORDERS, here))
        wait_for(lambda: all(is_there(name) for name in names))
        seen["before"] = {latest(name).run_id for name in names}
        keys = [dg.AssetCheckKey(lake_key(here, ORDERS), name) for name in names]
        job = dg.define_asset_job("executed", dg.AssetSelection.checks(*keys))
        made = dg.Definitions.merge(definitions_of([here]), dg.Definitions(jobs=[job]))
        assert made.resolve_job_def("executed").execute_in_process(instance=instance).success
        seen["executed"] = {latest(name).run_id for name in names}
        on_round(round_of(merge(ORDERS, lsn=6000, failed=1)))
        wait_for(lambda: all(latest(name).run_id == "" for name in names))

    def is_there(name):
        key = dg.AssetCheckKey(lake_key(here, ORDERS), name)
        return bool(instance.event_log_storage.get_asset_check_execution_history(key, limit=1))

    here = site(FakeEngine(script=script, statuses=(table_status(ORDERS),)))
    result = run(here, instance, report_seconds=0.5)
    assert result.success and seen["before"] == {result.run_id}
    assert seen["executed"].isdisjoint({result.run_id, ""})
    assert check_of(instance, here, ORDERS, "merged").passed
    assert not check_of(instance, here, ORDERS, "great_expectations").passed


def test_a_table_is_reported_at_most_once_in_its_time_however_many_rounds_there_are(instance):
    def script(on_batch, on_round, should_stop):
        started = time.monotonic()
        while len(reports(instance, ORDERS, here)) < 3:
            assert time.monotonic() - started < WAIT_SECONDS
            for number in range(50):
                on_batch(BatchReport(number, {ORDERS: 5}, Lsn(5000), 77, 0.01))
                on_round(round_of(merge(ORDERS), merge(PEOPLE)))
            rounds.append(50)
            time.sleep(0.2)
        rounds_took.append(time.monotonic() - started)

    rounds, rounds_took = [], []
    here = site(FakeEngine(script=script))
    assert run(here, instance, report_seconds=1.0).success
    most = int(rounds_took[0]) + 2  # the first, one a second, the last
    (events,) = [instance.all_logs(held.run_id) for held in instance.get_runs()]
    kinds = [event.dagster_event.event_type_value for event in events if event.dagster_event]
    assert sum(one.get("rounds", 0) for one in reports(instance, ORDERS, here)) == sum(rounds)
    assert 3 <= len(reports(instance, ORDERS, here)) <= most
    assert kinds.count("ASSET_MATERIALIZATION") <= 2 * most + 2
    assert kinds.count("ASSET_OBSERVATION") <= most
    # Nothing new failed: two checks of both tables, and four of the slot and of the changes, once while it ran and
    # once at its end. What is judged is logged with each report.
    judged = kinds.count("ASSET_MATERIALIZATION") + most
    assert kinds.count("ASSET_CHECK_EVALUATION") <= 2 * (2 * 2 + 4) + judged


def test_tables_stay_in_sync_with_the_drain_whether_they_have_changes_or_not(instance):
    def stale():
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        found = {table: resolver.get_stale_causes(lake_key(here, table)) for table in (ORDERS, PEOPLE)}
        return {str(table): [cause.reason for cause in causes] for table, causes in found.items() if causes}

    def script(on_batch, on_round, should_stop):
        on_round(round_of(merge(ORDERS, lsn=7000)))
        wait_for(lambda: len(reports(instance, ORDERS, here)) > 1)
        on_batch(BatchReport(2, {ORDERS: 5}, Lsn(8000), 77, 0.25))
        wait_for(lambda: instance.fetch_observations(changes_key(here), limit=9).records)
        seen.append(stale())

    seen = []
    here = site(FakeEngine(rounds=(round_of(merge(ORDERS), merge(PEOPLE)),)))
    graph = definitions_of([here]).resolve_asset_graph()
    assert run(here, instance).success
    assert stale() == {}
    here = site(FakeEngine(script=script))
    assert run(here, instance, report_seconds=0.5).success
    assert seen == [{}]
    assert stale() == {}
    # A table that was last told of while a run went on (it was cancelled then) stays in sync with later runs, too.
    instance.report_runless_asset_event(
        dg.AssetMaterialization(lake_key(here, PEOPLE), tags=lake_tags(here, PEOPLE, str(Lsn(8000))))
    )
    here = site(FakeEngine(rounds=(round_of(merge(ORDERS, lsn=9000)),)))
    assert run(here, instance).success
    assert stale() == {}


def test_dependents_of_a_lake_table_are_requested_while_streaming_unless_a_blocking_check_fails(instance):
    eager = dg.AutomationCondition.eager()
    conditions = {"eager": eager, "checked": eager & dg.AutomationCondition.all_deps_blocking_checks_passed()}
    levels = {"great_expectations": CheckLevel.BLOCK}
    asked, cursors = {}, {}

    def look(name):
        @dg.asset(deps=[lake_key(here, ORDERS)], automation_condition=conditions[name])
        def report(): ...

        defs = dg.Definitions.merge(definitions_of([here]), dg.Definitions(assets=[report]))
        found = dg.evaluate_automation_conditions(defs, instance, cursor=cursors.get(name))
        cursors[name] = found.cursor
        return found.total_requested

    def script(on_batch, on_round, should_stop):
        for name in conditions:
            assert look(name) == 0
        on_round(round_of(merge(ORDERS, failed=1)))
        wait_for(lambda: reports(instance, ORDERS, here) and failed())
        asked.update({name: look(name) for name in conditions})

    def failed():
        key = dg.AssetCheckKey(lake_key(here, ORDERS), "great_expectations")
        return bool(instance.event_log_storage.get_asset_check_execution_history(key, limit=1))

    here = site(FakeEngine(script=script), check_levels=levels)
    for key in (lake_key(here, ORDERS), dg.AssetKey("report")):
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
    assert run(here, instance).success
    assert asked == {"eager": 1, "checked": 0}


def test_what_was_merged_since_the_last_report_is_reported_when_the_run_fails(instance):
    def script(on_batch, on_round, should_stop):
        on_round(round_of(merge(ORDERS)))
        wait_for(lambda: reports(instance, ORDERS, here))
        on_round(round_of(merge(ORDERS, 7, failed=1, lsn=6000), merge(PEOPLE)))

    here = site(FakeEngine(script=script, error=SourceError("The slot is gone.", "Make it.")))
    result = run(here, instance)
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert failure.event_specific_data.user_failure_data.description == "The slot is gone. Make it."
    assert [one["events"] for one in reports(instance, ORDERS, here)] == [5, 7]
    assert [one["events"] for one in reports(instance, PEOPLE, here)] == [5]
    assert not check_of(instance, here, ORDERS, "great_expectations").passed
    assert check_of(instance, here, PEOPLE, "great_expectations").passed


def test_a_cancelled_run_ends_the_stream_between_batches_and_reports_all_of_it(instance):
    ended = threading.Event()

    def script(on_batch, on_round, should_stop):
        on_round(round_of(merge(ORDERS)))
        wait_for(lambda: reports(instance, ORDERS, here))
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for(should_stop)
        on_round(round_of(merge(ORDERS, 7, lsn=6000), merge(PEOPLE)))  # the round that was at hand
        ended.set()

    here = site(FakeEngine(script=script))
    result = run(here, instance)
    assert ended.is_set()
    kinds = {event.event_type_value for event in result.all_events}
    assert "STEP_FAILURE" in kinds
    assert not kinds & {"STEP_UP_FOR_RETRY", "STEP_RESTARTED", "STEP_SUCCESS"}
    assert [one["events"] for one in reports(instance, ORDERS, here)] == [5, 7]
    assert [one["events"] for one in reports(instance, PEOPLE, here)] == [5]
    assert check_of(instance, here, PEOPLE, "merged").passed
    (first,) = instance.fetch_materializations(changes_key(here), limit=9).records
    (rest,) = instance.fetch_observations(changes_key(here), limit=9).records
    assert first.asset_materialization.metadata["rounds"].value == rest.asset_observation.metadata["rounds"].value == 1


def test_a_report_that_dagster_refuses_is_retried_and_the_stream_continues(instance, monkeypatch):
    log, refused = StreamEvents._log, []

    def locked(self, event):
        if len(refused) < 2:
            refused.append(event)
            raise OSError("database is locked")
        log(self, event)

    def script(on_batch, on_round, should_stop):
        on_round(round_of(merge(ORDERS)))
        wait_for(lambda: reports(instance, ORDERS, here))

    monkeypatch.setattr(StreamEvents, "_log", locked)
    here = site(FakeEngine(script=script))
    assert run(here, instance).success
    assert len(refused) == 2
    assert sum(one.get("events", 0) for one in reports(instance, ORDERS, here)) == 5


def test_a_snapshot_that_waits_gets_its_turn_and_another_connectors_does_not_matter(instance):
    seen = []

    def script(on_batch, on_round, should_stop):
        queue("other")
        time.sleep(0.5)
        seen.append(should_stop())
        queue("shop")
        wait_for(should_stop)

    def queue(name):
        job = definitions_of([other if name == "other" else here]).resolve_job_def(f"{name}_snapshot_job")
        instance.create_run_for_job(job, **QUEUED, tags={"wal2lake/slot": f"slot_{name}"})

    other, here = site(FakeEngine(), name="other", slot="slot_b"), site(FakeEngine(script=script))
    assert run(here, instance).success
    assert seen == [False]


def started(instance, here, job="shop_snapshot_job", **more):
    definition = definitions_of([here]).resolve_job_def(job)
    return instance.create_run_for_job(definition, status=dg.DagsterRunStatus.STARTED, **more)


def reason(instance, run_id, here):
    now = [time.time()]
    policy = YieldPolicy(instance, run_id, here, lambda: now[0])
    now[0] += 10
    return policy.reason()


def test_a_run_whose_process_was_removed_does_not_end_those_after_it(instance):
    here = site(FakeEngine())
    started(instance, here)
    mine = started(instance, here, "shop_stream_job")
    assert reason(instance, mine.run_id, here) is None
    newer = started(instance, here)
    assert newer.run_id in reason(instance, mine.run_id, here)


def test_a_backfill_from_the_asset_page_is_known_by_its_assets_and_a_whole_job_by_its_pool(instance):
    here = site(FakeEngine())
    mine = started(instance, here, "shop_stream_job")
    everything = definitions_of([here]).resolve_implicit_global_asset_job_def()
    foreign = SimpleNamespace(job_name="any", tags={}, asset_selection={dg.AssetKey(["shop", "reports", "daily"])})
    assert not consumes_slot(foreign, here)
    snapshot = frozenset([dg.AssetKey(["shop", "snapshot"])])
    backfill = instance.create_run_for_job(everything, asset_selection=snapshot, **QUEUED)
    assert backfill.run_id in reason(instance, mine.run_id, here)
    instance.delete_run(backfill.run_id)
    whole = instance.create_run_for_job(everything, **QUEUED)
    assert whole.run_id in reason(instance, mine.run_id, here)


def test_with_every_place_taken_the_stream_that_ran_longest_makes_room(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    shipped = (Path(__file__).parents[2] / "dagster.yaml").read_text()
    (tmp_path / "dagster.yaml").write_text(re.sub(r"(max_concurrent_runs:) \d+", r"\1 2", shipped))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        sites = [site(FakeEngine(), name=f"s{number}", slot=f"slot_{number}") for number in range(3)]
        tagged = {"tags": {"wal2lake/slot": "its own"}}
        runs = [started(instance, one, f"{one.name}_stream_job", **tagged) for one in sites[:2]]

        def room_for(number, seconds):
            """What the run of that number is told when it has run for so long."""
            clock = iter([time.time(), *[time.time() + seconds] * 100])
            policy = YieldPolicy(instance, runs[number].run_id, sites[number], lambda: next(clock))
            return policy.reason()

        assert room_for(0, 600) is None
        last = definitions_of([sites[-1]]).resolve_job_def(f"{sites[-1].name}_stream_job")
        queued = instance.create_run_for_job(last, **QUEUED, **tagged)
        assert queued.run_id in room_for(0, 600)
        assert room_for(1, 600) is None
        assert room_for(0, 30) is None
        instance.delete_run(runs[1].run_id)
        assert room_for(0, 600) is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_has_its_effect_after_what_is_done_whole(number):
    done = []

    def interrupt(number, frame):
        raise InterruptedError(number)

    before = signal.signal(number, interrupt)
    gc.disable()  # what a handler raises while a callback of the garbage collector runs is lost
    try:
        with pytest.raises(InterruptedError), held():
            signal.raise_signal(number)
            signal.raise_signal(number)
            done.append(True)
        assert done
        assert signal.getsignal(number) is interrupt
        with held():
            pass
    finally:
        gc.enable()
        signal.signal(number, before)


def test_an_error_of_the_work_is_raised_where_it_was_asked_for():
    def work(should_stop):
        raise TransientError("The connection was cut.")

    with pytest.raises(TransientError, match="was cut"):
        BackgroundWork(work, "test").run(lambda: None, None)


def test_work_that_does_not_end_when_asked_keeps_nobody_waiting():
    class Log:
        def warning(self, text):
            said.append(text)

    def tick():
        raise KeyboardInterrupt

    gone, said = threading.Event(), []
    with pytest.raises(KeyboardInterrupt):
        BackgroundWork(lambda should_stop: gone.wait(WAIT_SECONDS), "test").run(tick, Log(), stop_seconds=0.1)
    gone.set()
    assert "did not stop" in said[0]

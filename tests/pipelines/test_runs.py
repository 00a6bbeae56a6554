"""Materialisation in process with an engine that only plays back: what Dagster is told, and when a run fails."""

from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg
import pytest

from cdc_core.engine.reports import LakeJudgement, Paused
from cdc_core.errors import ConfigError, SourceError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.observe.options import CheckLevel
from cdc_core.quality.check_report import CheckReport, RuleResult
from tests.pipelines.fake import (
    ORDERS,
    PEOPLE,
    WAL_END,
    WEIRD,
    Backlog,
    FakeEngine,
    merge,
    round_of,
    site,
    table_status,
)
from wal2lake.pipelines.assets.stream import StreamConfig
from wal2lake.pipelines.checks.changes import expectations_key
from wal2lake.pipelines.checks.slot import judge
from wal2lake.pipelines.connector.keys import changes_key, lake_key, snapshot_key
from wal2lake.pipelines.connector.partitions import partitions_name
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.jobs.slot_runs import consumes_slot

pytestmark = pytest.mark.usefixtures("no_spark")


def run(job, here, instance, **more):
    definition = definitions_of([here]).resolve_job_def(job)
    return definition.execute_in_process(instance=instance, raise_on_error=False, **more)


def numbers(event):
    return {name: value.value for name, value in event.metadata.items() if isinstance(value.value, (int, float, str))}


def materialised(instance, here):
    found = instance.fetch_materializations(snapshot_key(here), limit=100).records
    return [record.asset_materialization for record in found]


def observed(instance, here):
    found = instance.fetch_observations(snapshot_key(here), limit=1000, ascending=True).records
    return [record.asset_observation for record in found]


def made_by(result, instance):
    """The last materialization of each asset that a run logged."""
    found = instance.get_records_for_run(result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records
    made = [record.event_log_entry.dagster_event.event_specific_data.materialization for record in found]
    return {one.asset_key: one for one in made}


def checks(result, instance):
    """The last evaluation of each check that a run logged."""
    found = instance.get_records_for_run(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
    told = [record.event_log_entry.dagster_event.event_specific_data for record in found]
    return {(check.asset_key, check.check_name): check for check in told}


def test_a_backfill_is_one_call_and_one_materialisation_a_table(instance):
    engine = FakeEngine()
    here = site(engine)
    keys = ["my schema.täb-le.x", "public.orders"]
    instance.add_dynamic_partitions(partitions_name(here), keys)
    tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
    result = run("shop_snapshot_job", here, instance, tags=tags)
    assert result.success
    assert engine.calls == [("snapshot", (WEIRD, ORDERS))]
    events = materialised(instance, here)
    rows = {event.partition: numbers(event)["dagster/row_count"] for event in events}
    assert rows == {keys[0]: 10, keys[1]: 11}
    assert len(events) == 2
    assert numbers(events[0])["lsn"] == "0/1000"
    # Their lake tables are materialized with them.
    (lake,) = instance.fetch_materializations(lake_key(here, WEIRD), limit=9).records
    assert lake.asset_materialization.tags["dagster/data_version"] == "0/1000"


def test_a_snapshot_that_cannot_be_taken_fails_with_the_engines_sentence_and_is_not_tried_again(instance):
    engine = FakeEngine(error=SourceError("wal_level is replica.", "Set it to logical."))
    here = site(engine)
    instance.add_dynamic_partitions(partitions_name(here), ["public.orders"])
    result = run("shop_snapshot_job", here, instance, partition_key="public.orders")
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert failure.event_specific_data.user_failure_data.description == "wal_level is replica. Set it to logical."
    assert len(engine.calls) == 1


def test_tables_that_were_whole_before_a_snapshot_failed_need_not_be_read_again(instance):
    here = site(FakeEngine(error=SourceError("Table people is gone.", "Remove it.")))
    keys = ["public.orders", "public.people"]
    instance.add_dynamic_partitions(partitions_name(here), keys)
    tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
    assert not run("shop_snapshot_job", here, instance, tags=tags).success
    assert instance.get_materialized_partitions(snapshot_key(here)) == {"public.orders"}


def test_a_transient_error_is_left_to_the_retry_policy(instance):
    from wal2lake.pipelines.step.failure import reported

    with pytest.raises(dg.Failure) as caught, reported():
        raise TransientError("The connection was cut.")
    assert caught.value.allow_retries


def test_a_stream_materialises_what_had_changes_and_sums_its_rounds(instance):
    engine = FakeEngine(rounds=(round_of(merge(ORDERS)), round_of(merge(ORDERS, 7, lsn=6000), merge(WEIRD))))
    here = site(engine)
    result = run("shop_stream_job", here, instance)
    assert result.success
    made = made_by(result, instance)
    assert set(made) == {changes_key(here), lake_key(here, ORDERS), lake_key(here, WEIRD)}
    orders = numbers(made[lake_key(here, ORDERS)])
    assert (orders["events"], orders["inserted"], orders["lsn"], orders["rounds"]) == (12, 6, "0/1770", 2)
    assert made[lake_key(here, ORDERS)].tags["dagster/data_version"] == "0/1770"
    assert numbers(made[changes_key(here)])["stopped_by"] == "idle"
    changes = numbers(made[changes_key(here)])
    assert (changes["events"], changes["batches"], changes["rounds"]) == (5, 1, 2)
    assert not [event for event in result.all_events if event.event_type_value == "ASSET_OBSERVATION"]
    assert all(check.passed for check in checks(result, instance).values())
    assert {key for key, _ in checks(result, instance)} >= {lake_key(here, ORDERS), lake_key(here, WEIRD)}


def test_a_quarantined_row_fails_the_tables_checks_but_neither_the_run_nor_other_tables(instance):
    engine = FakeEngine(rounds=(round_of(merge(ORDERS, failed=2), merge(PEOPLE)),))
    here = site(engine)
    result = run("shop_stream_job", here, instance)
    assert result.success
    found = {(key.path[-1], name): check.passed for (key, name), check in checks(result, instance).items()}
    assert found["orders", "merged"]
    assert not found["orders", "great_expectations"]
    assert all(passed for (table, _), passed in found.items() if table == "people")
    made = set(made_by(result, instance))
    assert made == {changes_key(here), lake_key(here, ORDERS), lake_key(here, PEOPLE)}
    assert len(engine.calls) == 1


def test_results_of_expectations_are_reported_with_the_changes_before_the_tables(instance):
    """A slice that was kept out fails the blocking check of the changes; refused rows are a warning there."""
    mean = RuleResult(
        "user:mean", "", "error", 5, 0, "mean", success=False, observed="2.5", expected="min_value 9", over_slice=True
    )
    kept = replace(
        round_of(merge(PEOPLE), failed={ORDERS: "Changes fail."}), refused=(CheckReport(ORDERS, 5, 0, False, (mean,)),)
    )
    here = site(FakeEngine(rounds=(kept,)))
    result = run("shop_stream_job", here, instance)
    assert result.success
    found = checks(result, instance)
    told = found[changes_key(here), "expectations"]
    assert (told.passed, told.severity, told.blocking) == (False, dg.AssetCheckSeverity.ERROR, True)
    assert told.description == "public.orders: mean, observed 2.5, expected min_value 9"
    assert (told.metadata["batches"].value, told.metadata["failed_batches"].value) == (2, 1)
    suite = found[lake_key(here, ORDERS), "great_expectations"]
    assert (suite.passed, suite.metadata["failed_batches"].value) == (False, 1)
    assert "observed 2.5" in suite.description
    records = instance.get_records_for_run(result.run_id).records
    kinds = [record.event_log_entry.dagster_event_type for record in records]
    evaluated, made = dg.DagsterEventType.ASSET_CHECK_EVALUATION, dg.DagsterEventType.ASSET_MATERIALIZATION
    assert kinds.index(evaluated) < kinds.index(made)

    warned = run("shop_stream_job", site(FakeEngine(rounds=(round_of(merge(ORDERS, failed=2)),))), instance)
    told = checks(warned, instance)[changes_key(here), "expectations"]
    assert (told.passed, told.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_the_check_of_changes_says_which_tables_wait(instance):
    paused = Paused("Changes of public.orders fail.", "Correct them.", datetime.now(UTC), 3, by_rules=True)
    for status, passed, severity in (
        (table_status(ORDERS, paused=paused), False, dg.AssetCheckSeverity.ERROR),
        (table_status(ORDERS, quarantined=2), False, dg.AssetCheckSeverity.WARN),
        (table_status(ORDERS, paused=replace(paused, by_rules=False)), True, dg.AssetCheckSeverity.WARN),
    ):
        here = site(FakeEngine(statuses=(status,)))
        (told,) = press(here, instance, [], [expectations_key(here)]).get_asset_check_evaluations()
        assert (told.passed, told.severity) == (passed, severity)


def test_a_paused_table_fails_its_own_check_and_is_not_materialised(instance):
    engine = FakeEngine(rounds=(round_of(merge(PEOPLE), failed={ORDERS: "Column x became text."}),))
    here = site(engine)
    result = run("shop_stream_job", here, instance)
    assert result.success
    check = checks(result, instance)[lake_key(here, ORDERS), "merged"]
    assert (check.passed, check.description) == (False, "Column x became text.")
    made = set(made_by(result, instance))
    assert made == {changes_key(here), lake_key(here, PEOPLE)}


def test_what_reached_the_lake_before_an_error_is_recorded(instance):
    engine = FakeEngine(rounds=(round_of(merge(PEOPLE)),), error=SourceError("The slot is gone.", "Make it."))
    here = site(engine)
    result = run("shop_stream_job", here, instance)
    assert not result.success
    event = instance.get_latest_materialization_event(lake_key(here, PEOPLE))
    assert numbers(event.dagster_event.event_specific_data.materialization)["events"] == 5


def test_a_table_that_the_definitions_do_not_know_yet_is_recorded_too(instance):
    here = site(FakeEngine(rounds=(round_of(merge(PEOPLE), merge(ORDERS)),)), known=(ORDERS,))
    result = run("shop_stream_job", here, instance)
    assert result.success
    assert lake_key(here, PEOPLE) in made_by(result, instance)


def press(here, instance, keys, only_checks=()):
    """A run as the asset pages launch it: of assets with their checks, or of checks alone."""
    job = definitions_of([here]).resolve_implicit_global_asset_job_def()
    nodes = definitions_of([here]).resolve_asset_graph()
    mine = {key for key in nodes.asset_check_keys if key.asset_key in keys}
    chosen = job.get_subset(asset_selection=set(keys), asset_check_selection=set(only_checks) or mine)
    return chosen.execute_in_process(instance=instance, raise_on_error=False)


def test_a_check_is_executed_from_what_is_in_the_lake_and_leaves_the_stream_alone(instance):
    refused = (table_status(ORDERS, quarantined=2, reasons={"user:shape": 2, "waits_for_earlier_change": 1}),)
    engine = FakeEngine(statuses=refused)
    here = site(engine)
    wanted = dg.AssetCheckKey(lake_key(here, ORDERS), "great_expectations")

    def found(check=wanted):
        (told,) = checks(press(here, instance, [], [check]), instance).values()
        return told

    waiting = found()
    assert (waiting.passed, waiting.severity.value, waiting.metadata["waiting"].value) == (False, "WARN", 2)
    assert engine.calls == [("quality_test", (ORDERS,))]
    (held,) = instance.get_runs()
    assert not consumes_slot(held, here)
    shape = RuleResult("user:shape", "", "error", 9, 2, "it has a shape", success=False)
    engine.judgements = {ORDERS: LakeJudgement(ORDERS, 7, CheckReport(ORDERS, 9, 0, False, (shape,)), seconds=1.5)}
    failed = found()
    assert (failed.passed, failed.severity.value) == (False, "ERROR")
    assert failed.description.startswith("shape: 2 of 9 rows are unexpected, expected it has a shape; 2 changes are")
    assert {name: failed.metadata[name].value for name in ("rows", "delta_version", "seconds")} == {
        "rows": 9,
        "delta_version": 7,
        "seconds": 1.5,
    }
    engine.statuses, engine.judgements = (table_status(ORDERS), table_status(PEOPLE, lsn=None)), {}
    assert found().passed
    engine.judgements = ConfigError("A rule is wrong.", "Correct it.")
    assert (found().passed, found().description) == (False, "Not judged: A rule is wrong. Correct it.")
    engine.calls.clear()
    assert found(dg.AssetCheckKey(lake_key(here, PEOPLE), wanted.name)).passed  # there is nothing to be judged
    missing = found(dg.AssetCheckKey(lake_key(here, PEOPLE), "merged"))
    assert (missing.passed, "take a snapshot" in missing.description) == (False, True)
    assert engine.calls == []


def test_a_check_that_is_set_to_block_fails_its_own_run(instance):
    here = site(
        FakeEngine(statuses=(table_status(ORDERS, quarantined=1),)),
        check_levels={"great_expectations": CheckLevel.BLOCK},
    )
    assert not press(here, instance, [], [dg.AssetCheckKey(lake_key(here, ORDERS), "great_expectations")]).success


def test_assets_materialised_by_hand_are_brought_up_to_date_and_all_are_materialised(instance):
    """Also those without changes, and the run ends where the server's WAL ended when it began."""
    statuses = (table_status(ORDERS), table_status(PEOPLE, lsn=4000), table_status(WEIRD, lsn=None))
    engine = FakeEngine(rounds=(round_of(merge(ORDERS)),), statuses=statuses)
    here = site(engine)
    keys = [changes_key(here), *(lake_key(here, table) for table in (ORDERS, PEOPLE, WEIRD))]
    result = press(here, instance, keys)
    assert result.success
    (_, until), *_ = engine.calls
    assert (until.lsn, until.idle_seconds, until.max_seconds) == (WAL_END, 10.0, 3600.0)
    made = {event.asset_key: event.materialization for event in result.all_events if event.is_step_materialization}
    assert set(made) == set(keys[:3])
    assert made[lake_key(here, PEOPLE)].tags["dagster/data_version"] == str(Lsn(4000))
    texts = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert not [text for text in texts if "did not yield" in text]


def test_the_changelog_alone_has_nothing_to_do_before_the_first_snapshot(instance):
    """A backfill of all assets launches it beside the snapshot. With a lake table it is the engine that says so."""
    engine = FakeEngine(backlog=Backlog(slot_exists=False))
    here = site(engine)
    result = press(here, instance, [changes_key(here)])
    assert result.success and engine.calls == []
    (made,) = (event.materialization for event in result.all_events if event.is_step_materialization)
    assert made.asset_key == changes_key(here) and numbers(made) == {"events": 0}
    assert press(here, instance, [changes_key(here), lake_key(here, ORDERS)]).success
    assert [kind for kind, _ in engine.calls] == ["stream"]


def test_a_run_of_the_stream_shows_no_table_as_being_materialized_before_it_has_changes(instance):
    """Dagster shows what a run plans as *Materializing* until the run reports it."""
    here = site(FakeEngine(rounds=(round_of(merge(ORDERS)),)))
    result = run("shop_stream_job", here, instance)
    planned = instance.get_records_for_run(
        result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
    ).records
    assert {one.event_log_entry.dagster_event.asset_key for one in planned} == {changes_key(here)}


def test_one_chosen_table_drains_the_slot_and_reports_itself(instance):
    engine = FakeEngine(rounds=(round_of(merge(ORDERS), merge(PEOPLE)),))
    here = site(engine)
    result = press(here, instance, [lake_key(here, ORDERS)])
    assert result.success
    assert [kind for kind, _ in engine.calls] == ["stream"]
    made = [event.asset_key for event in result.all_events if event.is_step_materialization]
    assert lake_key(here, ORDERS) in made


def test_the_bounds_of_a_run_reach_the_engine(instance):
    engine = FakeEngine()
    config = {"ops": {"shop_stream": {"config": {"max_seconds": 7.5, "idle_seconds": 0, "until_lsn": "0/10"}}}}
    assert run("shop_stream_job", site(engine), instance, run_config=config).success
    ((_, until),) = engine.calls
    assert (until.max_seconds, until.idle_seconds, until.lsn, until.max_rows) == (7.5, None, Lsn(16), None)
    assert (StreamConfig().until().idle_seconds, StreamConfig().until().max_seconds) == (300.0, 3600.0)


def test_the_health_of_the_slot_is_judged(instance):
    result = run("shop_slot_health_job", site(FakeEngine()), instance)
    assert result.success
    found = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert found == {"slot_health": True, "slot_lag": True, "slot_active": True}

    here = site(FakeEngine())
    assert not judge(here, Backlog(slot_exists=False)).passed
    assert not judge(here, Backlog(wal_status="lost")).passed
    lagging = judge(here, Backlog(lag_bytes=2 * 1024**3))
    assert (lagging.passed, lagging.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_a_server_that_is_down_fails_the_health_check_with_its_sentence(instance):
    result = run("shop_slot_health_job", site(FakeEngine(error=SourceError("No server.", "Start it."))), instance)
    checks = result.get_asset_check_evaluations()
    assert len(checks) == 3
    assert {(check.passed, check.description) for check in checks} == {(False, "No server. Start it.")}

"""The job that replays changes in quarantine and lets paused tables go on."""

from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg
import pytest

from cdc_core.engine.reports import Paused
from cdc_core.errors import TableError
from cdc_core.schema.table import TableId
from tests.pipelines.fake import ORDERS, PEOPLE, WEIRD, FakeEngine, site, table_status
from tests.support.lake import difference, lake_settings, rows, write_properties
from tests.support.spark import SETTINGS
from tests.support.waits import patient
from wal2lake.pipelines.connector.files import load_sites
from wal2lake.pipelines.connector.keys import lake_key
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.jobs.slot_runs import consumes_slot

PAUSED = Paused("a reason", "a remedy", datetime.now(UTC), 3)
WAITING = (table_status(ORDERS, quarantined=2), table_status(PEOPLE), table_status(WEIRD, paused=PAUSED))


def press(here, instance, config=None):
    """Run the job with that configuration, or as it is."""
    run_config = {"ops": {"shop_replay": {"config": config}}} if config is not None else None
    job = definitions_of([here]).resolve_job_def("shop_replay_job")
    return job.execute_in_process(run_config=run_config, instance=instance, raise_on_error=False)


def failure_of(result):
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    return failed.event_specific_data.user_failure_data.description


def test_as_it_is_the_job_takes_the_tables_that_need_it(instance, no_spark):
    engine = FakeEngine(statuses=WAITING)
    assert press(site(engine), instance).success
    assert engine.calls == [("replay", table, (), False, False) for table in (ORDERS, WEIRD)]
    engine = FakeEngine(statuses=WAITING)
    assert press(site(engine), instance, {"drop": True}).success, "a table that a type paused has nothing to be dropped"
    assert engine.calls == [("replay", ORDERS, (), False, True)]
    engine = FakeEngine(statuses=(table_status(PEOPLE, paused=replace(PAUSED, by_rules=True)),))
    assert press(site(engine), instance, {"drop": True}).success
    assert engine.calls == [("replay", PEOPLE, (), False, True)]
    engine = FakeEngine(statuses=(table_status(ORDERS),))
    assert press(site(engine), instance).success
    assert engine.calls == []


def test_tables_are_chosen_by_pattern_and_judged_as_the_configuration_says(instance, no_spark):
    engine = FakeEngine(statuses=WAITING)
    assert press(site(engine), instance, {"tables": [r"public\..*"], "accept": ["user:positive"]}).success
    assert engine.calls == [("replay", table, ("user:positive",), False, False) for table in (ORDERS, PEOPLE)]
    engine = FakeEngine(statuses=WAITING)
    assert press(site(engine), instance, {"tables": ["public.people"], "drop": True}).success
    assert engine.calls == [("replay", PEOPLE, (), False, True)]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"drop": True, "accept": ["positive"]}, "drop cannot be combined with accept or accept_all."),
        ({"tables": ["public.ordres"]}, "Did you mean public.orders?"),
        ({"tables": ["public.(ord"]}, "is not a regular expression"),
    ],
)
def test_what_cannot_be_obeyed_fails_the_run_and_replays_nothing(instance, no_spark, config, sentence):
    engine = FakeEngine(statuses=WAITING)
    assert sentence in failure_of(press(site(engine), instance, config))
    assert engine.calls == []


def test_a_table_that_cannot_continue_does_not_delay_others(instance, no_spark):
    refusal = TableError("Its key is gone.", "Give it one.", str(ORDERS))
    engine = FakeEngine(statuses=(WAITING[0], table_status(PEOPLE, quarantined=1)), refusals={ORDERS: refusal})
    result = press(site(engine), instance)
    assert "1 of 2 tables could not be resumed: public.orders: Its key is gone." in failure_of(result)
    assert [call[1] for call in engine.calls] == [ORDERS, PEOPLE]
    keys = [lake_key(site(engine), table) for table in (ORDERS, PEOPLE)]
    assert [instance.get_latest_materialization_event(key) is not None for key in keys] == [False, True]


def test_the_job_takes_the_place_of_the_slot(instance, no_spark):
    here = site(FakeEngine())
    assert press(here, instance).success
    (run,) = instance.get_runs()
    assert consumes_slot(run, here)
    (node,) = definitions_of([here]).resolve_job_def("shop_replay_job").nodes
    assert node.definition.pool == here.pool


ITEMS = TableId("public", "items")
WAITS = {"merged": True, "great_expectations": False}
RULES = "limits: {{rows: {rows}}}\nrules:\n  - name: positive\n    condition: n {condition}\n"


@pytest.fixture
def line(pg, tmp_path):
    """A real connector whose rule file refuses negative numbers."""
    database = pg.database("replays")
    pg.execute(database, "create table items (id int primary key, n int); insert into items values (1, 1)")
    (tmp_path / "rules").mkdir()
    settings = {
        "topic.prefix": "shop",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.items",
        **lake_settings(tmp_path),
        "wal2lake.quality.rules.path": str(tmp_path / "rules"),
        **{f"wal2lake.spark.{name}": value for name, value in SETTINGS.items()},
    }
    file = write_properties(tmp_path / "shop.properties", pg.properties(database, **settings))
    yield lambda *sql: [pg.execute(database, one) for one in sql], file, tmp_path
    drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s"
    pg.execute(database, drop, [database])


def rule(folder, condition=">= 0", most=0):
    (folder / "rules" / "public.items.yaml").write_text(RULES.format(rows=most, condition=condition))


def stream(file, instance):
    """A run of the stream as the sensor starts it, with the definitions of now."""
    (here,), _ = load_sites([file])
    job = definitions_of([here]).resolve_job_def("shop_stream_job")
    bounds = {
        "ops": {"shop_stream": {"config": {"idle_seconds": 2.0, "max_seconds": patient(200), "data_docs": False}}}
    }
    return here, job.execute_in_process(run_config=bounds, instance=instance, raise_on_error=False)


def checks(instance, result):
    """What the run told of checks, by their names."""
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    records = instance.get_records_for_run(result.run_id, of_type=kind).records
    told = [record.event_log_entry.dagster_event.event_specific_data for record in records]
    return {one.check_name: one.passed for one in told}


def statuses(folder):
    return sorted(row["status"] for row in rows(folder / "lake" / "shop" / "__quarantine" / "public" / "items"))


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
def test_refused_changes_are_replayed_and_a_paused_table_continues(line, instance):
    execute, file, folder = line
    rule(folder)
    (here,), _ = load_sites([file])
    here.open().snapshot()
    execute("insert into items values (2, -2), (3, 3)")
    here, result = stream(file, instance)
    assert result.success, "it did its work: what failed are checks"
    assert checks(instance, result).items() >= WAITS.items()
    assert statuses(folder) == ["waiting"]

    # By the same rules the change waits on, and the check says so.
    result = press(here, instance)
    assert result.success
    assert (checks(instance, result), statuses(folder)) == (WAITS, ["waiting"])
    result = press(here, instance, {"accept": ["user:positive"]})
    assert result.success
    assert (checks(instance, result), statuses(folder)) == (dict.fromkeys(WAITS, True), ["replayed"])
    assert difference(file, [ITEMS]) == []
    metadata = instance.get_latest_materialization_event(lake_key(here, ITEMS)).asset_materialization.metadata
    assert (metadata["dagster/row_count"].value, metadata["waiting"].value) == (3, 0)

    # What is dropped stays away.
    execute("insert into items values (4, -4)")
    stream(file, instance)
    assert press(here, instance, {"drop": True}).success
    assert statuses(folder) == ["dropped", "replayed"]
    (behind,) = difference(file, [ITEMS])
    assert (behind.missing, behind.extra) == (1, 0)

    # Past its limit the table pauses, and goes on when the cause is mended.
    rule(folder, most=1)
    execute("insert into items values (5, -5), (6, -6), (7, 7)")
    stream(file, instance)
    assert here.open().status().tables[0].paused is not None
    assert not press(here, instance).success, "its cause is not mended"
    rule(folder, condition=">= -9")
    result = press(here, instance)
    assert result.success
    assert checks(instance, result)["merged"]
    assert here.open().status().tables[0].paused is None
    (behind,) = difference(file, [ITEMS])
    assert (behind.missing, behind.extra) == (1, 0)

"""The upkeep of lake tables in Dagster: an asset a table, one job, one schedule."""

from dataclasses import dataclass, field, replace

import dagster as dg
import pytest

from cdc_core.errors import TransientError
from cdc_core.lake.write.maintain import MaintenanceResult
from tests.pipelines.fake import ORDERS, PEOPLE, FakeEngine, site
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.jobs.maintenance import maintenance_key


@dataclass
class Report:
    table: object
    kind: str
    done: MaintenanceResult


def upkept(path, before, after):
    return MaintenanceResult(path, 7, before, after, 1000 * before, 900 * after, before - after, 5, 0.25)


@dataclass
class KeepingEngine(FakeEngine):
    asked: list = field(default_factory=list)

    def maintain(self, tables=None, spark=None, on_table=None):
        self.asked.append(tables)
        if self.error:
            raise self.error
        reports = [Report(ORDERS, "lake", upkept("o", 9, 2)), Report(ORDERS, "changelog", upkept("c", 20, 1))]
        reports.append(Report(None, "rounds", upkept("r", 3, 1)))
        for report in reports:
            on_table(report)
        return reports


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr("wal2lake.pipelines.factory.spark_resource", lambda site: object())


def run(engine, selection=None):
    with dg.DagsterInstance.local_temp() as instance:
        job = definitions_of([site(engine)]).resolve_job_def("shop_maintenance_job")
        return job.execute_in_process(instance=instance, raise_on_error=False, asset_selection=selection)


def test_every_table_is_looked_after_and_counts_are_metadata():
    engine = KeepingEngine()
    result = run(engine)
    assert result.success and engine.asked == [None]
    (event,) = result.asset_materializations_for_node("shop_maintenance")
    assert event.asset_key == maintenance_key(site(engine), ORDERS)
    told = {name: value.value for name, value in event.metadata.items()}
    assert told["lake_files_before"] == 9 and told["lake_files_after"] == 2
    assert told["changelog_files_before"] == 20 and told["changelog_bytes_after"] == 900
    assert told["lake_files_rewritten"] == 7 and told["lake_files_removed"] == 5
    assert told["seconds"] == 0.5


def test_chosen_tables_alone():
    engine = KeepingEngine()
    assert run(engine, [maintenance_key(site(engine), ORDERS)]).success
    assert engine.asked == [[ORDERS]]
    engine = KeepingEngine()
    result = run(engine, [maintenance_key(site(engine), PEOPLE)])
    assert result.success and not result.asset_materializations_for_node("shop_maintenance")


def test_a_conflict_is_tried_again(monkeypatch):
    monkeypatch.setattr("wal2lake.pipelines.step.failure.RETRIES", dg.RetryPolicy(max_retries=1, delay=0))
    result = run(KeepingEngine(error=TransientError("Another writer was faster.", "Run again.")))
    assert not result.success
    assert any(event.event_type_value == "STEP_UP_FOR_RETRY" for event in result.all_events)


def test_the_schedule_runs_where_the_file_says_so():
    plain = definitions_of([site(FakeEngine())])
    (found,) = [one for one in plain.schedules if one.name == "shop_maintenance_schedule"]
    assert (found.cron_schedule, found.default_status) == ("17 2 * * *", dg.DefaultScheduleStatus.STOPPED)
    with_time = definitions_of([replace(site(FakeEngine()), maintenance_cron="0 4 * * *")])
    (found,) = [one for one in with_time.schedules if one.name == "shop_maintenance_schedule"]
    assert (found.cron_schedule, found.default_status) == ("0 4 * * *", dg.DefaultScheduleStatus.RUNNING)


def test_without_known_tables_there_is_nothing_to_look_after():
    empty = definitions_of([site(FakeEngine(), known=())])
    assert "shop_maintenance_job" not in {job.name for job in empty.jobs}

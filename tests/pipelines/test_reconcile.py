"""Comparing with the source in Dagster: a check a table, a job and a schedule, and a job that repairs if told to."""

from dataclasses import dataclass, field, replace

import dagster as dg
import pytest

from cdc_core.lake.compare.differences import Differences, KeyList, State
from cdc_core.lsn import Lsn
from cdc_core.reconcile.reports import ReconcileReport, TableResult, Unrepaired
from tests.pipelines.fake import ORDERS, PEOPLE, FakeEngine, site
from wal2lake.pipelines.checks.source import EQUAL
from wal2lake.pipelines.connector.keys import lake_key
from wal2lake.pipelines.factory import definitions_of

WRONG = TableResult(
    ORDERS, State.DIFFERENT, 10, found=Differences(KeyList(2, (("1",), ("2",))), changed=KeyList(1, (("3",),)))
)
LEFT_OUT = TableResult(PEOPLE, State.LEFT_OUT, reason="it has been paused")


@dataclass
class ComparingEngine(FakeEngine):
    results: tuple = (WRONG, LEFT_OUT)
    repaired: tuple = ()
    asked: list = field(default_factory=list)

    def reconcile(self, tables=None, limit=1000, repair=False):
        self.asked.append((tables, repair))
        if self.error:
            raise self.error
        found = self.repaired if repair else self.results
        return ReconcileReport(Lsn(4096), tuple(each for each in found if tables is None or each.table in tables))


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr("wal2lake.pipelines.factory.spark_resource", lambda site: object())


def run(engine, job="shop_reconcile_job", **more):
    with dg.DagsterInstance.local_temp() as instance:
        found = definitions_of([site(engine)]).resolve_job_def(job)
        return found.execute_in_process(instance=instance, raise_on_error=False, **more)


def evaluations(result):
    found = result.get_asset_check_evaluations()
    return {each.asset_key: each for each in found if each.check_name == EQUAL}


def test_each_table_has_a_check_with_counts_and_where_the_keys_are():
    engine = ComparingEngine()
    found = evaluations(run(engine))
    wrong, left = found[lake_key(site(engine), ORDERS)], found[lake_key(site(engine), PEOPLE)]
    assert not wrong.passed and wrong.severity is dg.AssetCheckSeverity.ERROR
    told = {name: value.value for name, value in wrong.metadata.items()}
    assert (told["missing"], told["extra"], told["changed"], told["rows"]) == (2, 0, 1, 10)
    assert told["keys_listed_in"].endswith("__reconciliations") and told["lsn"] == "0/1000"
    assert left.passed and "paused" in left.description


def test_a_table_that_could_not_be_read_is_a_warning():
    engine = ComparingEngine(results=(replace(LEFT_OUT, is_error=True), replace(WRONG, state=State.EQUAL)))
    found = evaluations(run(engine))[lake_key(site(engine), PEOPLE)]
    assert not found.passed and found.severity is dg.AssetCheckSeverity.WARN


def test_the_schedule_runs_if_it_is_set():
    (found,) = [one for one in definitions_of([site(FakeEngine())]).schedules if one.name == "shop_reconcile_schedule"]
    assert found.default_status is dg.DefaultScheduleStatus.STOPPED
    with_time = definitions_of([replace(site(FakeEngine()), reconcile_cron="0 4 * * *")])
    (found,) = [one for one in with_time.schedules if one.name == "shop_reconcile_schedule"]
    assert found.default_status is dg.DefaultScheduleStatus.RUNNING and found.cron_schedule == "0 4 * * *"


def test_a_repair_writes_only_if_configured():
    engine = ComparingEngine(repaired=(replace(WRONG, state=State.EQUAL, found=Differences(), repaired=3),))
    assert run(engine, "shop_repair_job").success
    assert engine.asked == [(None, False)]
    config = {"ops": {"shop_repair": {"config": {"tables": ["public.orders"], "write": True}}}}
    done = run(engine, "shop_repair_job", run_config=config)
    assert done.success and engine.asked[-1] == ([ORDERS], True)
    assert evaluations(done)[lake_key(site(engine), ORDERS)].passed


def test_a_repair_that_leaves_rows_fails():
    left = replace(WRONG, unrepaired=(Unrepaired(("1",), "its key is masked"),))
    engine = ComparingEngine(repaired=(left,))
    assert not run(engine, "shop_repair_job", run_config={"ops": {"shop_repair": {"config": {"write": True}}}}).success

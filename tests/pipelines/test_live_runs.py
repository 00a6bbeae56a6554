"""Dagster's own daemon, queue and run workers: who gets the slot when, and what is left of a run that is ended."""

import json
import os
import signal
import time
from pathlib import Path

import dagster as dg
import pytest

from cdc_core.demo.processes import DagsterProcesses
from pipelines.keys import lake_key
from tests.pipelines.fake import ORDERS, PEOPLE, FakeEngine, site

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEP_SECONDS = 120
# Some seconds on a quiet machine: a look each three seconds, then a round.
END_SECONDS = 30
BACKFILL = (
    "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename"
    " ... on LaunchBackfillSuccess { backfillId } } }"
)
TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"


class Live:
    """The running processes, what their engine wrote down, and what Dagster's database says."""

    def __init__(self, folder, dagster, instance):
        self.folder, self.dagster, self.instance = folder, dagster, instance

    def journal(self, kind=None, work=None):
        file = self.folder / "journal"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [one for one in lines if kind in (None, one["kind"]) and work in (None, one["work"])]

    def wait(self, what, is_met):
        deadline = time.monotonic() + STEP_SECONDS
        while not (found := is_met()):
            assert time.monotonic() < deadline, f"{what}: {self.journal()} {self.statuses()}"
            time.sleep(0.2)
        return found

    def statuses(self):
        return [(run.job_name, run.status.value) for run in self.instance.get_runs()]

    def running(self):
        """The run of the stream that is at work and has reported a table."""
        for run in self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
            if self.events_of(run):
                return run
        return None

    def unfinished(self):
        return [run for run in self.instance.get_runs() if not run.is_finished]

    def events_of(self, run):
        found = self.instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        made = [record.event_log_entry.dagster_event.event_specific_data.materialization for record in found.records]
        key = lake_key(site(FakeEngine()), ORDERS)
        return [one.metadata["events"].value for one in made if one.asset_key == key and "events" in one.metadata]


@pytest.fixture
def live(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {"WAL2LAKE_TEST_FOLDER": str(tmp_path), "PYTHONPATH": path}
    module = "tests.pipelines.live_site"
    with (
        DagsterProcesses(home, tmp_path, tmp_path / "logs", module, environment) as dagster,
        dg.DagsterInstance.from_config(str(home)) as instance,
    ):
        yield Live(tmp_path, dagster, instance)


@pytest.mark.timeout(500)
def test_one_consumer_at_a_time_whatever_happens_to_its_runs(live):
    live.wait("partitions", lambda: live.instance.get_dynamic_partitions("shop_tables"))
    (live.folder / "news").touch()
    first = live.wait("a run of the stream that reports", live.running)

    # A snapshot gets its turn, and the stream comes back after it.
    params = {"assetSelection": [{"path": ["shop", "snapshot"]}], "partitionNames": [str(ORDERS), str(PEOPLE)]}
    assert "Success" in live.dagster.query(BACKFILL, {"p": params})["launchPartitionBackfill"]["__typename"]
    live.wait("the snapshot", lambda: live.journal("start", "snapshot"))
    (backfill,) = live.instance.get_run_records(dg.RunsFilter(job_name="__ASSET_JOB"))
    ended = live.journal("end", "stream")[0]
    assert ended["at"] - backfill.create_timestamp.timestamp() < END_SECONDS
    assert live.instance.get_run_by_id(first.run_id).status is dg.DagsterRunStatus.SUCCESS
    assert sum(live.events_of(first)) == ended["events"]
    second = live.wait("the stream again", live.running)

    # A run that is cancelled ends within a round, and all it did is reported.
    asked = time.time()
    live.dagster.query(TERMINATE, {"id": second.run_id})
    live.wait("the end", lambda: live.instance.get_run_by_id(second.run_id).is_finished)
    assert live.instance.get_run_by_id(second.run_id).status is dg.DagsterRunStatus.CANCELED
    _, ended = live.journal("end", "stream")
    assert ended["at"] - asked < END_SECONDS
    assert len(live.events_of(second)) == 2
    assert sum(live.events_of(second)) == ended["events"]

    # A run whose process is killed is found out, and another takes over.
    third = live.wait("the stream again", live.running)
    os.kill(live.journal("start", "stream")[-1]["pid"], signal.SIGKILL)
    live.wait("the crash to be seen", lambda: live.instance.get_run_by_id(third.run_id).is_finished)
    assert live.instance.get_run_by_id(third.run_id).status is dg.DagsterRunStatus.FAILURE
    fourth = live.wait("the stream again", live.running)
    assert fourth.parent_run_id == third.run_id
    assert [run.run_id for run in live.unfinished()] == [fourth.run_id]

    (live.folder / "news").unlink()
    assert live.dagster.end_runs()
    assert_never_two(live.journal())


def assert_never_two(journal):
    """Each piece of work began after the one before it had ended, or its process was gone."""
    assert len([one for one in journal if one["kind"] == "start"]) >= 5
    at_work = None
    for line in journal:
        if line["kind"] == "start":
            assert at_work is None or not is_alive(at_work), journal
            at_work = line["pid"]
        else:
            assert line["pid"] == at_work, journal
            at_work = None


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

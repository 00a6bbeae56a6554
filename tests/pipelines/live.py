"""Dagster's own daemon, queue and run workers on ``live_site``, as the tests of them use it."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from cdc_core.demo.processes import DagsterProcesses
from cdc_core.errors import TransientError
from tests.pipelines.fake import ORDERS, FakeEngine, site
from tests.support.waits import PATIENCE, patient, unmet_by, wait_until
from wal2lake.pipelines.connector.keys import lake_key

ROOT = Path(__file__).parents[2]
STEP_SECONDS = patient(100)
BACKFILL = (
    "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename"
    " ... on LaunchBackfillSuccess { backfillId } } }"
)


class Live:
    """The running processes, what their engine wrote down, and what Dagster's database says."""

    def __init__(self, folder, dagster, instance, environment):
        self.folder, self.dagster, self.instance, self.environment = folder, dagster, instance, environment

    def journal(self, kind=None, work=None):
        file = self.folder / "journal"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [one for one in lines if kind in (None, one["kind"]) and work in (None, one.get("work"))]

    def wait(self, what, is_met):
        # Each look may be a query that the web server answers, for tens of milliseconds of computing.
        try:
            return wait_until(unmet_by(TransientError, is_met), STEP_SECONDS / PATIENCE, what, pause=1)
        except AssertionError:
            print(self.journal(), self.statuses())
            raise

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

    def kill_daemon(self):
        """Kill the daemon alone; runs are in processes of their own."""
        daemon = self.dagster.processes[-1]
        daemon.kill()
        daemon.wait(patient(20))

    def events_of(self, run):
        found = self.instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        made = [record.event_log_entry.dagster_event.event_specific_data.materialization for record in found.records]
        key = lake_key(site(FakeEngine()), ORDERS)
        return [one.metadata["events"].value for one in made if one.asset_key == key and "events" in one.metadata]


@contextmanager
def live_dagster(folder, monkeypatch, **environment):
    """Web server and daemon in ``folder``; ``environment`` is what ``live_site`` reads beside the folder."""
    home = folder / "home"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment |= {"WAL2LAKE_TEST_FOLDER": str(folder), "PYTHONPATH": path}
    with (
        DagsterProcesses(home, folder, folder / "logs", "tests.pipelines.live_site", environment) as dagster,
        dg.DagsterInstance.from_config(str(home)) as instance,
    ):
        yield Live(folder, dagster, instance, environment)

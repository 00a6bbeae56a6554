"""Dagster's own daemon, queue and run workers: who gets the slot when, and what is left of a run that is ended."""

import os
import signal
import time

import dagster as dg
import pytest

from tests.pipelines.fake import ORDERS, PEOPLE
from tests.pipelines.live import BACKFILL, live_dagster
from tests.support.waits import patient

pytestmark = pytest.mark.slow

# Some seconds on a quiet machine: a look each three seconds, then a round. By itself it would work for 20 minutes.
END_SECONDS = patient(40)
FRESHNESS = (
    "query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {"
    " freshnessStatusInfo { freshnessStatus } } } }"
)
TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"


@pytest.fixture
def live(tmp_path, monkeypatch):
    # Dagster looks at freshness twice a minute else.
    with live_dagster(tmp_path, monkeypatch, FRESHNESS_DAEMON_INTERVAL_SECONDS="2") as found:
        yield found


def is_fresh(live, table):
    key = {"path": ["shop", "lake", table.schema, table.table]}
    info = live.dagster.query(FRESHNESS, {"key": key})["assetNodeOrError"]["freshnessStatusInfo"]
    return info is not None and info["freshnessStatus"] == "HEALTHY"


def test_one_consumer_at_a_time_whatever_happens_to_its_runs(live):
    live.wait("partitions", lambda: live.instance.get_dynamic_partitions("shop_tables"))
    # A table without a change is fresh while nothing waits: a sensor says so, and Dagster's daemon judges by it.
    live.wait("a fresh table", lambda: is_fresh(live, PEOPLE))
    (live.folder / "backlog").touch()
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
    assert len(live.events_of(second)) >= 2
    assert sum(live.events_of(second)) == ended["events"]

    # A run whose process is killed is found out, and another takes over.
    third = live.wait("the stream again", live.running)
    os.kill(live.journal("start", "stream")[-1]["pid"], signal.SIGKILL)
    live.wait("the crash to be seen", lambda: live.instance.get_run_by_id(third.run_id).is_finished)
    assert live.instance.get_run_by_id(third.run_id).status is dg.DagsterRunStatus.FAILURE
    fourth = live.wait("the stream again", live.running)
    assert fourth.parent_run_id == third.run_id
    assert [run.run_id for run in live.unfinished()] == [fourth.run_id]

    # The daemon is killed: the run goes on without it, and so does the next daemon, which starts the run after it.
    live.kill_daemon()
    reported = len(live.events_of(fourth))
    live.wait("a report without a daemon", lambda: len(live.events_of(fourth)) > reported)
    live.dagster.start_daemon()
    live.dagster.query(TERMINATE, {"id": fourth.run_id})
    live.wait("the end", lambda: live.instance.get_run_by_id(fourth.run_id).is_finished)
    fifth = live.wait("the stream again", live.running)
    assert [run.run_id for run in live.unfinished()] == [fifth.run_id]

    (live.folder / "backlog").unlink()
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

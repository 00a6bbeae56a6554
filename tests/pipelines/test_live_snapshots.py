"""Snapshots on Dagster's own processes: backfills by GraphQL and the command line, signals, a schedule."""

import json
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._cli import cli

from tests.pipelines.fake import ORDERS, PEOPLE, FakeEngine, site
from tests.pipelines.live import BACKFILL, live_dagster
from tests.support.webhook import webhook
from wal2lake.pipelines.connector.keys import changes_key, incremental_key, snapshot_key

pytestmark = pytest.mark.slow

KEY = snapshot_key(site(FakeEngine()))
LOCATION = "tests.pipelines.live_site"
REPOSITORY = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__"}
STATUSES = (
    '{ assetNodeOrError(assetKey: {path: ["shop", "snapshot"]}) { ... on AssetNode { assetPartitionStatuses {'
    " ... on DefaultPartitionStatuses { materializedPartitions failedPartitions materializingPartitions } } } } }"
)
LAUNCH = (
    "mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename ... on LaunchRunSuccess"
    " { run { runId } } ... on RunConfigValidationInvalid { errors { message } } } }"
)
SCHEDULE = (
    "query($s: ScheduleSelector!) { scheduleOrError(scheduleSelector: $s) { ... on Schedule {"
    " scheduleState { id } } } }"
)
STOP = (
    "mutation($id: String!) { stopRunningSchedule(id: $id) { ... on ScheduleStateResult {"
    " scheduleState { status } } } }"
)


@pytest.fixture
def hook():
    with webhook() as held:
        yield held


@pytest.fixture
def live(tmp_path, monkeypatch, hook):
    environment = {"WAL2LAKE_TEST_CRON": "* * * * *", "WAL2LAKE_ALERT_WEBHOOK": hook.url}
    with live_dagster(tmp_path, monkeypatch, **environment) as found:
        yield found


def partitions(live):
    found = live.dagster.query(STATUSES)["assetNodeOrError"]["assetPartitionStatuses"]
    return tuple(sorted(found[name]) for name in ("materializedPartitions", "failedPartitions"))


def progress(live):
    """What the observations of unfinished tables say: (partition, rows, ranges done)."""
    found = live.instance.fetch_observations(KEY, limit=100).records
    return [
        (one.partition, one.metadata["rows"].value, one.metadata["ranges_done"].value)
        for record in found
        if "ranges_done" in (one := record.asset_observation).metadata
    ]


def command(live, *arguments):
    """The command ``dagster`` beside the running processes, over the web server's code server.

    One of its own, and a process of the command, would take six CPU seconds to import what these have imported.
    """
    workspace = live.folder / "workspace.yaml"
    server = {"host": "localhost", "socket": socket_of(live.dagster.processes[0]), "location_name": LOCATION}
    workspace.write_text(json.dumps({"load_from": [{"grpc_server": server}]}))
    done = CliRunner().invoke(cli, [*arguments, "-w", str(workspace)])
    assert done.exit_code == 0, (done.output, done.exception)


def socket_of(process):
    """Where the code server of a process of Dagster listens."""
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            line = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if "--socket" in line:
                return line[line.index("--socket") + 1]
    raise AssertionError("there is no code server")


def test_backfills_with_a_failed_partition_signals_and_the_schedule(live, hook):
    live.wait("partitions", lambda: len(live.instance.get_dynamic_partitions("shop_tables")) == 2)
    refused = live.folder / f"refuse_{PEOPLE}"
    held, held_too = (live.folder / f"hold_{table}" for table in (ORDERS, PEOPLE))
    for file in (refused, held, held_too):
        file.touch()

    # A backfill of all tables: progress is seen meanwhile, the good one is there at once, the refused one fails.
    params = {"assetSelection": [{"path": list(KEY.path)}], "partitionNames": [str(ORDERS), str(PEOPLE)]}
    assert "Success" in live.dagster.query(BACKFILL, {"p": params})["launchPartitionBackfill"]["__typename"]
    assert live.wait("progress of the first table", lambda: progress(live))[0] == (str(ORDERS), 500, 5)
    held.unlink()
    live.wait("the first table", lambda: partitions(live)[0] == [str(ORDERS)])
    assert not live.journal("end", "snapshot")
    held_too.unlink()
    live.wait("the refused table", lambda: partitions(live) == ([str(ORDERS)], [str(PEOPLE)]))
    assert_schedule_reads_its_table(live)

    # The failed partition alone, by the command line; the schedule's runs do not wait for the slot.
    refused.unlink()
    command(live, "job", "backfill", "-j", "shop_snapshot_job", "--partitions", str(PEOPLE), "--noprompt")
    live.wait("both tables", lambda: partitions(live) == ([str(ORDERS), str(PEOPLE)], []))
    assert [one["tables"] for one in live.journal("start", "snapshot")] == [[str(ORDERS), str(PEOPLE)], [str(PEOPLE)]]

    # The failed run was told to the web address, and the slot is checked without a run.
    (alert,) = live.wait("the alert", lambda: hook.alerts)
    assert (alert["event"], alert["message"]) == ("run_failure", f"Table {PEOPLE} is locked. Try again later.")
    history = live.instance.event_log_storage.get_asset_check_execution_history
    lag = dg.AssetCheckKey(changes_key(site(FakeEngine())), "slot_lag")
    (checked,) = live.wait("the slot's checks", lambda: history(lag, limit=1))
    assert checked.status.value == "SUCCEEDED"

    assert_signal_is_sent(live)

    # All tables by the command line: a backfill is a run a table, a launched range one run.
    tags = {"dagster/asset_partition_range_start": str(ORDERS), "dagster/asset_partition_range_end": str(PEOPLE)}
    command(live, "job", "launch", "-j", "shop_snapshot_job", "--tags", json.dumps(tags))
    live.wait("a third snapshot", lambda: len(live.journal("start", "snapshot")) == 3)
    command(live, "job", "backfill", "-j", "shop_snapshot_job", "--all", "all", "--noprompt")
    live.wait("both of them", lambda: len(live.journal("start", "snapshot")) == 5)
    third, *others = [one["tables"] for one in live.journal("start", "snapshot")[2:]]
    assert third == [str(ORDERS), str(PEOPLE)]
    assert sorted(others) == [[str(ORDERS)], [str(PEOPLE)]]


def assert_signal_is_sent(live):
    selector = {**REPOSITORY, "jobName": "shop_signal_job"}
    wanted = {"type": "stop-snapshot", "data_collections": [str(PEOPLE)]}
    config = {"ops": {"shop_signal": {"config": wanted}}}
    launched = live.dagster.query(LAUNCH, {"p": {"selector": selector, "runConfigData": config}})["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    run_id = launched["run"]["runId"]
    live.wait("the signal's run", lambda: live.instance.get_run_by_id(run_id).is_finished)
    assert live.instance.get_run_by_id(run_id).status is dg.DagsterRunStatus.SUCCESS
    sent = [one["data"] for one in live.journal("signal") if one["signal"] == "stop-snapshot"]
    assert sent == [{"type": "incremental", "data-collections": [str(PEOPLE)]}]

    # A misspelt type is refused before a run starts.
    config["ops"]["shop_signal"]["config"] = {"type": "stop-snapshots"}
    refused = live.dagster.query(LAUNCH, {"p": {"selector": selector, "runConfigData": config}})["launchRun"]
    assert refused["__typename"] == "RunConfigValidationInvalid"


def assert_schedule_reads_its_table(live):
    """The schedule ticks each minute and is on from the start, for its time is configured. It is off after this."""
    wanted = dg.RunsFilter(job_name="shop_incremental_snapshot_job", statuses=[dg.DagsterRunStatus.SUCCESS])
    (run, *_) = live.wait("a tick", lambda: live.instance.get_runs(wanted))
    selector = {**REPOSITORY, "scheduleName": "shop_incremental_snapshot_schedule"}
    assert run.tags["dagster/schedule_name"] == selector["scheduleName"]
    assert live.journal("start", "incremental")[0]["ranges"] == [f"{ORDERS}|0001", f"{ORDERS}|0002"]
    key = incremental_key(site(FakeEngine()))
    assert live.instance.get_materialized_partitions(key) == {f"{ORDERS}|0001", f"{ORDERS}|0002"}
    # Each tick is a run, of three CPU seconds.
    state = live.dagster.query(SCHEDULE, {"s": selector})["scheduleOrError"]["scheduleState"]
    stopped = live.dagster.query(STOP, {"id": state["id"]})["stopRunningSchedule"]
    assert stopped["scheduleState"]["status"] == "STOPPED"

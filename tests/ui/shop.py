"""One shop for all tests of the UI: a PostgreSQL, one connector with a rule file, Dagster's web server and daemon.

Page views are many, so that their snapshot lasts long enough to be watched.
"""

import os
import re
import signal
from contextlib import contextmanager

import pytest

from cdc_core.assemble import Connector
from cdc_core.demo import workload
from cdc_core.demo.connector import connector_text
from cdc_core.demo.processes import DagsterProcesses, free_port
from cdc_core.demo.server import DemoServer
from cdc_core.errors import TransientError
from cdc_core.lake.compare.differences import State
from cdc_core.observe.static_pages import data_docs_url
from cdc_core.postgres.connection import connect
from cdc_core.schema.table import TableId
from tests.support.waits import patient, unmet_by, wait_until

LOCATION = "wal2lake.pipelines.definitions"
TABLES = tuple(TableId("shop", name) for name in ("customers", "orders", "page_views", "products"))
VIEWS = 2_000_000
REFUSED = 3
# In one transaction each six seconds: each is a round of the stream, which merges every table.
CHANGES_A_SECOND, TRANSACTION_SECONDS = 5, 6.0
_SOURCE = f"""
alter table shop.page_views add column id bigint generated always as identity primary key;
insert into shop.page_views (path, visitor, seconds)
select '/product/' || n % 500, decode(md5(n::text), 'hex'), n / 3.0 from generate_series(1, {VIEWS}) n;
analyze shop.page_views;
"""
_BAD_ROWS = """
insert into shop.customers (name, email) select 'Guest ' || n, 'no address' from generate_series(1, {}) n
"""
_MORE = """\
wal2lake.quality.rules.path={folder}/rules
wal2lake.snapshot.rows.per.partition=100000
snapshot.tables.order.by.row.count=ascending
wal2lake.snapshot.schedule=0 3 * * 0
wal2lake.snapshot.schedule.tables=shop.customers,shop.products
wal2lake.dagster.owners=team:sales
wal2lake.dagster.tags=domain=sales
wal2lake.dagster.freshness=shop\\\\..*=6h:1d
wal2lake.metrics.port={metrics_port}
"""
_RULES = """\
rules:
  - name: email_shape
    condition: {}
    description: an e-mail address has an @
"""
WRONG_RULE, MENDED_RULE = "email like '%@%'", "email like '%@%' or name like 'Guest %'"
_STATUSES = (
    "query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionKeys"
    " assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions materializingPartitions"
    " failedPartitions } } } } }"
)
_MESSAGES = (
    "query($id: ID!) { runOrError(runId: $id) { ... on Run { eventConnection(limit: 1000) { events {"
    " ... on MessageEvent { message } } } } } }"
)
_RELOAD = "mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) { __typename } }"
_SCHEDULE = (
    "query($s: ScheduleSelector!) { scheduleOrError(scheduleSelector: $s) { ... on Schedule {"
    " scheduleState { status } } } }"
)
_REPORTS = (
    "query($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset { assetMaterializations(limit: 50) {"
    " runOrError { ... on Run { id status } } metadataEntries { label ... on FloatMetadataEntry { floatValue }"
    " ... on IntMetadataEntry { intValue } } } } } }"
)
_CHECK = (
    "query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { assetChecksOrError {"
    " ... on AssetChecks { checks { name executionForLatestMaterialization { status evaluation { success } }"
    " } } } } } }"
)
_EXECUTIONS = (
    "query($key: AssetKeyInput!, $name: String!) { assetCheckExecutions(assetKey: $key, checkName: $name, limit: 50) {"
    " runId evaluation { success description metadataEntries { label } } } }"
)
_FRESHNESS = (
    "query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {"
    " freshnessStatusInfo { freshnessStatus } } } }"
)
_RUNS = "{ runsOrError(limit: 50) { ... on Runs { results { id jobName status tags { key value } } } } }"
_BACKFILLS = "{ partitionBackfillsOrError(limit: 10) { ... on PartitionBackfills { results { id } } } }"
_DAEMON = "query($type: String!) { instance { daemonHealth { daemonStatus(daemonType: $type) { healthy } } } }"


class Shop:
    """The running processes, and what Dagster's web server says of them."""

    def __init__(self, dagster: DagsterProcesses, options, folder, data_docs: str) -> None:
        self.dagster, self.options, self.folder, self.data_docs = dagster, options, folder, data_docs
        self._has_bad_rows = False

    def execute(self, sql: str) -> None:
        """Change the source."""
        with connect(self.options) as connection:
            connection.execute(sql.encode())

    def rule(self, condition: str) -> None:
        """Write the rule file of the customers."""
        (self.folder / "rules" / "shop.customers.yaml").write_text(_RULES.format(condition))

    def wait(self, what: str, is_met, seconds: float = 180.0):
        """Wait until ``is_met`` gives something; that."""
        try:
            return wait_until(unmet_by(TransientError, is_met), seconds, what, pause=1)
        except AssertionError:
            print(self.runs())
            raise

    def partitions(self, kind: str = "", asset: str = "snapshot") -> list[str]:
        """The partitions of snapshots: all, or those that are ``materialized``, ``materializing`` or ``failed`` now."""
        node = self.dagster.query(_STATUSES, {"key": {"path": ["shop", asset]}})["assetNodeOrError"]
        return node["assetPartitionStatuses"][f"{kind}Partitions"] if kind else node["partitionKeys"]

    def backfills(self) -> list[dict]:
        """The backfills that were launched."""
        return self.dagster.query(_BACKFILLS)["partitionBackfillsOrError"]["results"]

    def runs(self, job: str = "") -> list[dict]:
        """The latest runs, newest first."""
        found = self.dagster.query(_RUNS)["runsOrError"]["results"]
        runs = [{**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in found]
        return [run for run in runs if job in ("", run["jobName"])]

    def messages(self, run: str) -> list[str]:
        """What a run has logged."""
        events = self.dagster.query(_MESSAGES, {"id": run})["runOrError"]["eventConnection"]["events"]
        return [event.get("message", "") for event in events]

    def kill(self, run: str) -> None:
        """Kill the process of a run, as a machine's end would."""
        (pid,) = re.findall(r"Started process for run \(pid: (\d+)\)", "\n".join(self.messages(run)))
        os.kill(int(pid), signal.SIGKILL)

    def configure(self, line: str, by: str) -> None:
        """Replace a line of the connector file, and have the definitions loaded again.

        The daemon has a code server of its own, which it starts anew each minute: it is started again at once.
        """
        file = self.folder / "connectors" / "shop.properties"
        before = file.read_text()
        assert line in before
        file.write_text(before.replace(line, by))
        self.dagster.query(_RELOAD, {"name": LOCATION})
        *_, daemon = self.dagster.processes
        daemon.terminate()
        daemon.wait(patient(60))
        self.dagster.start_daemon()

    def schedule_status(self, name: str) -> str:
        """Whether a schedule is RUNNING or STOPPED."""
        selector = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__", "scheduleName": name}
        return self.dagster.query(_SCHEDULE, {"s": selector})["scheduleOrError"]["scheduleState"]["status"]

    def unequal(self) -> list[str]:
        """The tables that do not equal their source, by wal2lake's own comparison."""
        report = Connector.from_file(self.folder / "connectors" / "shop.properties").reconcile()
        return [str(one.table) for one in report.tables if one.state is not State.EQUAL]

    def reports(self, table: str) -> list[dict]:
        """The numbers of each materialisation of a lake table by a run at work now, newest first."""
        asset = self.dagster.query(_REPORTS, {"key": lake_asset(table)})["assetOrError"]
        return [
            {entry["label"]: entry.get("floatValue", entry.get("intValue")) for entry in one["metadataEntries"]}
            for one in asset.get("assetMaterializations", [])
            if one["runOrError"].get("status") == "STARTED"
        ]

    def check(self, table: str, name: str) -> dict | None:
        """The latest evaluation of a lake table's check; None where it has none."""
        return self._execution(table, name).get("evaluation")

    def check_status(self, table: str, name: str) -> str | None:
        """What the pages say of a lake table's check: IN_PROGRESS while a run that is to report it has not."""
        return self._execution(table, name).get("status")

    def evaluation_of(self, run: str, table: str, name: str) -> dict:
        """What a run found by a lake table's check, also where a later materialization hides it on the check's page."""
        (found,) = [one["evaluation"] for one in self._executions(table, name) if one["runId"] == run]
        return found

    def evaluations(self, table: str, name: str) -> list[dict]:
        """The latest evaluation of a lake table's check by each run that has one."""
        return [one["evaluation"] for one in self._executions(table, name) if one["evaluation"] is not None]

    def _executions(self, table: str, name: str) -> list[dict]:
        found = self.dagster.query(_EXECUTIONS, {"key": lake_asset(table), "name": name})["assetCheckExecutions"]
        return list(found)

    def _execution(self, table: str, name: str) -> dict:
        node = self.dagster.query(_CHECK, {"key": lake_asset(table)})["assetNodeOrError"]
        (found,) = [one for one in node["assetChecksOrError"]["checks"] if one["name"] == name]
        return found["executionForLatestMaterialization"] or {}

    def is_fresh(self, table: str) -> bool:
        """Whether Dagster's daemon found that a lake table meets its freshness policy."""
        info = self.dagster.query(_FRESHNESS, {"key": lake_asset(table)})["assetNodeOrError"]["freshnessStatusInfo"]
        return info is not None and info["freshnessStatus"] == "HEALTHY"

    def is_healthy(self, daemon: str) -> bool:
        """Whether a daemon is at work."""
        return self.dagster.query(_DAEMON, {"type": daemon})["instance"]["daemonHealth"]["daemonStatus"]["healthy"]

    def snapshot_ended(self) -> bool:
        """Whether every table's snapshot is in the lake."""
        return len(self.partitions("materialized")) == len(TABLES)

    def streaming(self) -> dict:
        """Wait until the sensor's run of the stream has reported a table; that run."""
        if not self._has_bad_rows:
            self.execute(_BAD_ROWS.format(REFUSED))
            self._has_bad_rows = True

        def reporting() -> list[dict]:
            # A run lasts two minutes: that of the report may end before it is looked up.
            return [run for run in self.runs("shop_stream_job") if run["status"] == "STARTED"]

        return self.wait("the stream's first report", lambda: self.reports("shop.orders") and reporting())[0]


def lake_asset(table: str) -> dict:
    """The key of a lake table's asset, as GraphQL takes it."""
    return {"path": ["shop", "lake", *table.split(".")]}


def changes(options, patched: pytest.MonkeyPatch) -> workload.Workload:
    """The demo's workload, with fewer and larger transactions."""
    patched.setattr(workload, "_TICK_SECONDS", TRANSACTION_SECONDS)
    return workload.Workload(options, CHANGES_A_SECOND)


@contextmanager
def opened_shop(folder):
    """Everything in ``folder``, started; ended when the context is left."""
    with DemoServer(folder / "postgres") as server:
        options = server.options()
        with connect(options) as connection:
            connection.execute(_SOURCE.encode())
        for name in ("connectors", "rules"):
            (folder / name).mkdir()
        metrics_port = free_port()
        text = connector_text(options, folder, TABLES) + _MORE.format(folder=folder, metrics_port=metrics_port)
        (folder / "connectors" / "shop.properties").write_text(text)
        with (
            pytest.MonkeyPatch.context() as patched,
            changes(options, patched),
            DagsterProcesses(folder / "dagster", folder / "connectors", folder / "logs") as dagster,
        ):
            shop = Shop(dagster, options, folder, data_docs_url("127.0.0.1", metrics_port))
            shop.rule(WRONG_RULE)
            yield shop

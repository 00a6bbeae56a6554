"""The demo from start to comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_core.assemble import Connector
from cdc_core.demo.broker import Broker
from cdc_core.demo.connector import connector_text
from cdc_core.demo.processes import DagsterProcesses
from cdc_core.demo.server import DATABASE, DemoServer, psql
from cdc_core.demo.verify import Comparison, LakeState, compare, count_source, lake_state
from cdc_core.demo.workload import Workload
from cdc_core.errors import CdcError, TransientError
from cdc_core.extras import require
from cdc_core.postgres import PostgresOptions
from cdc_core.schema import TableId

TABLES = tuple(
    TableId("shop", name)
    for name in ("customers", "products", "orders", "order_items", "coupons", "page_views", "stock")
)
_LOCATIONS = "{ repositoriesOrError { __typename ... on RepositoryConnection { nodes { name location { name } } } } }"
_PARTITION = (
    "mutation($r: RepositorySelector!, $set: String!, $key: String!) { addDynamicPartition(repositorySelector: $r,"
    " partitionsDefName: $set, partitionKey: $key) { __typename } }"
)
_BACKFILL = (
    "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename"
    " ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"
)
_BACKFILL_STATE = (
    "query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"
)
_SCHEDULE = """
wal2lake.snapshot.schedule={}
wal2lake.snapshot.schedule.tables=shop\\\\.(customers|products)
"""
_SCHEDULE_PAGE = "locations/wal2lake.pipelines.definitions/schedules/shop_incremental_snapshot_schedule"
_LOADED_SECONDS = 600.0
_SNAPSHOT_SECONDS = 600.0
_CATCH_UP_SECONDS = 1200.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DemoState:
    """State of source and lake. ``lag_bytes`` is None while the slot does not exist.

    ``lag_seconds`` is the time since the newest change in the lake was committed in the source, None if there is none.
    As the workload never pauses, this is the lag of the lake.
    """

    seconds: float
    changes: int
    lag_bytes: int | None
    lag_seconds: float | None
    source_rows: dict[TableId, int]
    lake_rows: dict[TableId, int | None]


@dataclass(slots=True)
class DemoHooks:
    """The caller's output functions, and its request to end the demo."""

    say: Callable[[str], None]
    show: Callable[[DemoState], None]
    should_stop: Callable[[], bool]
    report_every_seconds: float = 5.0


@dataclass(slots=True)
class Demo:
    """A demo in ``folder``: continues an earlier one there.

    ``others`` make what else changes are written to beside the lake, each in a folder of its own.
    """

    folder: Path
    hooks: DemoHooks
    rate: int = 200
    others: Sequence[Callable[[Path], Broker]] = ()
    _options: PostgresOptions = field(default_factory=PostgresOptions)
    _backfill: str = ""

    def run(self, seconds: float | None) -> list[Comparison]:
        """Run for ``seconds`` (None: until stopped) after the snapshot; then catch up and compare every table.

        Returns no comparison if it was stopped by request. Raises CdcError if a part of it fails.
        """
        require("demo", "The demo")
        self.folder = self.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        hooks = self.hooks
        hooks.say("starting an embedded PostgreSQL with a sample shop database")
        brokers = [made(self.folder / "kafka") for made in self.others]
        with DemoServer(self.folder / "postgres") as server, ExitStack() as closing:
            for broker in brokers:
                closing.enter_context(broker)
            self._options = server.options()
            connector_file = self._write_connector(brokers)
            with Workload(self._options, self.rate) as workload:
                hooks.say(f"the workload makes {self.rate} changes a second; starting Dagster")
                with DagsterProcesses(
                    self.folder / "dagster",
                    connector_file.parent,
                    self.folder / "logs",
                    before_daemon=self._launch_backfill,
                ) as dagster:
                    self._wait_for_snapshot(dagster)
                    self._invite(dagster)
                    self._watch(workload, connector_file, seconds)
                    if hooks.should_stop() or seconds is None:
                        return []
                    workload.stop()
                    hooks.say("workload stopped; waiting for the lake to catch up")
                    return self._catch_up(connector_file)

    def _write_connector(self, brokers: Sequence[Broker]) -> Path:
        path = self.folder / "connectors" / "shop.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = connector_text(self._options, self.folder, TABLES)
        for broker in brokers:
            self.hooks.say(f"Kafka: {broker.servers}; the events of a table are in topic shop.<schema>.<table>")
            text += f"\nwal2lake.sinks=lake,kafka\nbootstrap.servers={broker.servers}\n"
        path.write_text(text + _SCHEDULE.format("*/5 * * * *"), encoding="utf-8")
        return path

    def _launch_backfill(self, dagster: DagsterProcesses) -> None:
        """Launch one backfill of every table's snapshot partition, unless the lake has all.

        The sensor adds the partitions, too, and the backfill could be launched at any time; but the daemon, which is
        started after this, would start it half a minute later.
        """
        self.hooks.say(f"Dagster's UI: {dagster.url}")
        if all(self._lake_state(table) is not None for table in TABLES):
            self.hooks.say("the lake already has every table; streaming resumes")
            return
        nodes: list[dict[str, Any]] = []

        def loaded() -> bool:
            nodes[:] = dagster.query(_LOCATIONS)["repositoriesOrError"].get("nodes", [])
            return bool(nodes)

        self._wait(loaded, _LOADED_SECONDS, "Dagster had not loaded the definitions")
        if self.hooks.should_stop():
            return
        repository = {"repositoryName": nodes[0]["name"], "repositoryLocationName": nodes[0]["location"]["name"]}
        for table in TABLES:
            dagster.query(_PARTITION, {"r": repository, "set": "shop_tables", "key": str(table)})
        self.hooks.say("launching a backfill of the snapshots of all tables")
        params = {"assetSelection": [{"path": ["shop", "snapshot"]}], "partitionNames": sorted(map(str, TABLES))}
        launched = dagster.query(_BACKFILL, {"p": params})["launchPartitionBackfill"]
        if "backfillId" not in launched:
            raise TransientError(f"The backfill was refused: {launched}.")
        self._backfill = str(launched["backfillId"])

    def _wait_for_snapshot(self, dagster: DagsterProcesses) -> None:
        """Wait for the backfill, if one was launched, and print which tables are in the lake."""
        if not self._backfill:
            return
        shown: set[TableId] = set()

        def finished() -> bool:
            shown.update(self._show_new_tables(shown))
            answer = dagster.query(_BACKFILL_STATE, {"id": self._backfill})["partitionBackfillOrError"]
            status = answer.get("status", "")
            if status in ("FAILED", "COMPLETED_FAILED", "CANCELED"):
                raise TransientError(f"The backfill ended as {status}; see {dagster.url}/overview/backfills.")
            # Dagster's daemon detects the end of a backfill's run some seconds after the last table is in the lake.
            return len(shown) == len(TABLES) or str(status) in ("COMPLETED", "COMPLETED_SUCCESS")

        self._wait(finished, _SNAPSHOT_SECONDS, "the snapshot did not finish")

    def _show_new_tables(self, known: set[TableId]) -> list[TableId]:
        """Print the tables whose snapshots are in the lake since the last call; every table of the shop has rows."""
        looks = {table: self._lake_state(table) for table in TABLES if table not in known}
        found = {table: state.rows for table, state in looks.items() if state is not None and state.rows}
        if found:
            counts = ", ".join(f"{table.table} {rows:,}" for table, rows in found.items())
            self.hooks.say(f"snapshot: rows in the lake: {counts}")
        return list(found)

    def _invite(self, dagster: DagsterProcesses) -> None:
        """Print the pages of the UI, and commands to try."""
        options, url = self._options, dagster.url
        insert = (
            "insert into shop.customers (name, email) values ('Ada', 'ada@example.org');"
            " update shop.products set price = 1 where id = 1"
        )
        self.hooks.say(f"asset graph:                         {url}/asset-groups")
        self.hooks.say(f"a lake table and its plots:          {url}/assets/shop/lake/shop/orders?view=plots")
        self.hooks.say(f"streaming runs:                      {url}/runs")
        self.hooks.say(f"a schedule that re-reads two tables: {url}/{_SCHEDULE_PAGE}")
        self.hooks.say("insert a row yourself; it appears in the lake table shop.customers a few seconds later:")
        self.hooks.say(
            f'  {psql()} -h {options.database_hostname} -p {options.database_port} -U postgres {DATABASE} -c "{insert}"'
        )

    def _watch(self, workload: Workload, connector_file: Path, seconds: float | None) -> None:
        started = time.monotonic()
        self.hooks.say("streaming: the sensor starts a run whenever the slot has changes")
        while not self.hooks.should_stop() and (seconds is None or time.monotonic() - started < seconds):
            if workload.error is not None:
                raise TransientError(f"The workload ended: {type(workload.error).__name__}.")
            self._state(connector_file, time.monotonic() - started, workload.changes)
            pause_until = time.monotonic() + self.hooks.report_every_seconds
            while time.monotonic() < pause_until and not self.hooks.should_stop():
                time.sleep(_PAUSE_SECONDS)

    def _state(self, connector_file: Path, elapsed: float, changes: int) -> None:
        pending = Connector.from_file(connector_file).pending()
        source_rows = count_source(self._options, TABLES)
        lake = {table: self._lake_state(table) for table in TABLES}
        ages = [state.age_seconds for state in lake.values() if state is not None and state.age_seconds is not None]
        rows = {table: None if state is None else state.rows for table, state in lake.items()}
        self.hooks.show(DemoState(elapsed, changes, pending.lag_bytes, min(ages, default=None), source_rows, rows))

    def _catch_up(self, connector_file: Path) -> list[Comparison]:
        """Compare repeatedly until all tables are equal or the time limit is reached; returns the last comparisons."""
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while True:
            found = compare(self._options, {table: self._lake_path(table) for table in TABLES})
            if all(one.is_equal for one in found) or time.monotonic() > deadline or self.hooks.should_stop():
                return found
            time.sleep(2.0)

    def _wait(self, is_met: Callable[[], Any], seconds: float, otherwise: str) -> None:
        deadline = time.monotonic() + seconds
        while not is_met():
            if self.hooks.should_stop():
                return
            if time.monotonic() > deadline:
                raise TransientError(f"After {seconds:.0f} s {otherwise}; see {self.folder / 'logs'}.")
            time.sleep(_PAUSE_SECONDS)

    def _lake_path(self, table: TableId) -> Path:
        return self.folder / "lake" / "shop" / table.schema / table.table

    def _lake_state(self, table: TableId) -> LakeState | None:
        try:
            return lake_state(self._lake_path(table))
        except OSError as error:  # a commit replaced the file while it was read
            raise CdcError(f"The lake table {table} could not be read: {type(error).__name__}.") from None

"""Dagster's UI as a person uses it: a headless Chromium presses and looks, and takes the pictures of docs/images.

A server, an engine and a lake as they are. The tests are written in the order of a first hour with wal2lake.
"""

import pytest

from tests.ui.pages import Pages
from tests.ui.shop import LOCATION, MENDED_RULE, REFUSED, TABLES, VIEWS

pytestmark = [pytest.mark.ui, pytest.mark.slow]

# A first report comes seconds after a table's first merge, then one a minute.
POINTS = 2
# A run of the stream lasts two minutes; it reports every check at its end at the latest.
RUN_SECONDS = 300


@pytest.fixture
def pages(browser, shop, images):
    pages = Pages(browser, shop.dagster.url, images)
    yield pages
    pages.leave()


@pytest.fixture(scope="session")
def backfill(browser, shop, images):
    """A backfill of every partition of the snapshots, launched by pressing its buttons."""
    pages = Pages(browser, shop.dagster.url, images)
    shop.wait("the partitions", lambda: len(shop.partitions()) == len(TABLES))
    pages.open("assets/shop/snapshot?view=partitions", *map(str, TABLES))
    assert "Materialized (0)" in pages.wait_for("Missing (4)")
    pages.click("Materialize…")
    pages.click("All")
    pages.wait_for("4 partitions", "Backfills all partitions in a single run")
    pages.click("Launch backfill")
    shop.wait("the backfill", shop.backfills)
    pages.leave()


@pytest.fixture(scope="session")
def streaming(shop, backfill):
    """The sensor's run of the stream, which has reported its tables."""
    shop.wait("the snapshots", shop.snapshot_ended, 300)
    return shop.streaming()


def test_a_backfill_is_pressed_and_its_partitions_turn_green(pages, shop, backfill):
    shop.wait("a first table", lambda: shop.partitions("materialized"), 300)
    pages.browser.set_window_size(1600, 900)
    # On a slow machine all may be there before the page is.
    some = (r"Materialized \([1-4]\)", r"Materializing \([0-3]\)", "rows_per_second")
    pages.reload_until("assets/shop/snapshot?view=partitions&partition=shop.customers", some, 240)
    pages.picture("backfill")
    pages.leave()
    shop.wait("the snapshots", shop.snapshot_ended, 300)
    pages.open("assets/shop/snapshot?view=partitions&partition=shop.page_views", "Materialized (4)")
    # The workload adds some while the rows are read.
    assert all(rows >= VIEWS for rows in pages.numbers("dagster/row_count"))


def test_the_sensors_run_is_at_work(pages, streaming):
    assert streaming["tags"]["dagster/sensor_name"] == "shop_slot"
    pages.open("runs", "shop_stream_job", "shop_slot", "Started", size=(1600, 600))
    pages.picture("runs")


def test_a_failing_check_shows_the_rule_how_many_rows_and_where_they_are(pages, shop, streaming):
    shop.wait(
        "the rows that were refused",
        lambda: not (shop.check("shop.customers", "great_expectations") or {"success": True})["success"],
    )
    path = "assets/shop/lake/shop/customers?view=checks&checkDetail=great_expectations"
    # Another run that is to report the check shows it as in progress until then.
    shop.wait("the check", lambda: shop.check_status("shop.customers", "great_expectations") == "FAILED", RUN_SECONDS)
    pages.open(path, "great_expectations", size=(1600, 1050))
    pages.reload_until(path, ["Failed"], RUN_SECONDS)
    place = shop.folder / "lake" / "shop" / "__quarantine" / "shop" / "customers"
    pages.wait_for(f"email_shape: {REFUSED} of", str(place))
    pages.picture("failing_check")
    # Executed by itself it is evaluated from the lake, and the stream goes on.
    known = {run["id"] for run in shop.runs()}
    pages.click("Execute")
    (made,) = shop.wait(
        "the check's own run", lambda: [run for run in shop.runs("__ASSET_JOB") if run["id"] not in known]
    )
    shop.wait("its end", lambda: [run for run in shop.runs() if run["id"] == made["id"] and run["status"] == "SUCCESS"])
    # Not what the page says of the latest one: the stream reports the table again now and then, and Dagster then calls
    # what another run found before that not evaluated.
    found = shop.evaluation_of(made["id"], "shop.customers", "great_expectations")
    assert not found["success"]
    # The rows that it refused are not in the lake, whose rows all pass.
    assert found["description"].startswith(f"{REFUSED} changes are waiting in the quarantine table")
    assert {"waiting", "rows", "judged_by"} <= {entry["label"] for entry in found["metadataEntries"]}
    (stream,) = [run for run in shop.runs("shop_stream_job") if run["id"] == streaming["id"]]
    assert stream["status"] == "STARTED"


def test_the_asset_graph_shows_source_snapshot_changes_and_lake(pages, streaming):
    pages.open("asset-groups", "shop_source", "shop_lake", "shop_maintenance", size=(1900, 1100))
    pages.picture("assets")
    pages.open(f"locations/{LOCATION}/asset-groups/shop_lake/lineage", "orders", "Passed", size=(1900, 1100))


def test_the_schedule_shows_its_times_and_tables(pages, shop):
    shop.wait("the scheduler", lambda: shop.is_healthy("SCHEDULER"))
    path = f"locations/{LOCATION}/schedules/shop_incremental_snapshot_schedule"
    words = ("shop.customers, shop.products", "only on Sunday", "shop_incremental_snapshot_job", "Running")
    pages.open(path, *words)


def test_the_launchpad_of_the_signal_job_holds_every_field(pages, shop):
    path = f"locations/{LOCATION}/jobs/shop_signal_job/playground"
    pages.open(path, "data_collections", "additional_conditions", "surrogate_key", "type: log", "No errors")
    pages.picture("signal")


def test_a_tables_page_shows_what_was_merged_and_its_plots_while_the_run_continues(pages, shop, streaming):
    shop.wait("points of a plot", lambda: len(shop.reports("shop.orders")) >= POINTS)
    shop.wait("a freshness policy that is met", lambda: shop.is_fresh("shop.orders"))
    # The columns' descriptions are drawn after the rest of the page.
    words = ("lag_bytes", "shop.orders", "Freshness", "bigint", "int8 in PostgreSQL", "__commit_lsn")
    text = pages.open("assets/shop/lake/shop/orders", *words, size=(1600, 1500))
    assert "Unsynced" not in text
    pages.picture("table")
    pages.click("Plots")
    pages.wait_for("lag_seconds")
    pages.bring_to_top("Plots")
    pages.picture("plots")
    reports = shop.reports("shop.orders")
    assert len(reports) >= POINTS, "the run whose plots these are has ended"
    assert all(one["lag_seconds"] is not None and one["dagster/row_count"] for one in reports)


def test_refused_rows_are_replayed_by_a_press_once_the_rule_is_mended(pages, shop, streaming):
    # Not the latest evaluation: Dagster keeps one of each run, so the stream's own, which is renewed with every
    # materialization, is hidden behind that of a later run, which does not judge the latest materialization.
    shop.wait(
        "the rows that were refused",
        lambda: any(not one["success"] for one in shop.evaluations("shop.customers", "great_expectations")),
    )
    shop.rule(MENDED_RULE)
    path = f"locations/{LOCATION}/jobs/shop_replay_job/playground"
    pages.open(path, "accept_all: false", "drop: false", "tables: []", "No errors")
    pages.picture("replay")
    pages.click("Launch Run")
    shop.wait("its run", lambda: shop.runs("shop_replay_job"))
    pages.leave()
    ended = shop.wait("the replay", lambda: [run for run in shop.runs("shop_replay_job") if run["status"] == "SUCCESS"])
    # Its log is drawn line by line as it is scrolled, so what it says is looked for in the check.
    pages.open(f"runs/{ended[0]['id']}", "shop_replay_job", "Success")
    pages.leave()
    shop.wait("the check", lambda: (shop.check("shop.customers", "great_expectations") or {}).get("success"))
    # In progress until the stream's next run reports it, too.
    shop.wait("the run", lambda: shop.check_status("shop.customers", "great_expectations") == "SUCCEEDED", RUN_SECONDS)
    path = "assets/shop/lake/shop/customers?view=checks&checkDetail=great_expectations"
    pages.reload_until(path, ["Passed"], RUN_SECONDS)
    # The run that it made give way has built the data docs, and the next one serves them.
    pages.open("assets/shop/changes", shop.data_docs)
    pages.leave()
    shop.wait("the stream again", lambda: shop.reports("shop.orders"))
    pages.browser.get(shop.data_docs)
    pages.click("shop.customers")
    pages.wait_for("email_shape", "Unsuccessful Expectations")


SCHEDULE, FIRST_TICK = "shop_incremental_snapshot_schedule", 300
THREE = [f"shop.page_views|000{number}" for number in (1, 2, 3)]


def test_a_range_whose_run_is_killed_is_read_again_alone_beside_the_stream(pages, shop, streaming):
    """A backfill of three ranges is pressed while the stream goes on; the lake equals the source at the end."""

    def green():
        return set(shop.partitions("materialized", "incremental_snapshot")) & set(THREE)

    shop.wait("the ranges", lambda: set(THREE) <= set(shop.partitions(asset="incremental_snapshot")))
    path = "assets/shop/incremental_snapshot?view=partitions"
    pages.open(path, *THREE)
    pages.click("Materialize…")
    pages.choose("Select a partition or create one", THREE, "Launch runs to materialize")
    pages.wait_for("3 partitions", "Backfills all partitions in a single run")
    known = {run["id"] for run in shop.runs()}
    pages.click("Launch backfill")
    pages.leave()
    # As soon as it is at work: its Spark takes longer to start than a look, and then all ranges take a few seconds.
    (killed,) = shop.wait(
        "the run",
        lambda: [run for run in shop.runs("__ASSET_JOB") if run["id"] not in known and run["status"] == "STARTED"],
        300,
    )
    shop.kill(killed["id"])
    done = green()
    # Dagster retries a run whose process is gone: with the ranges that it had not reported.
    retries = lambda: [run for run in shop.runs() if run["tags"].get("dagster/parent_run_id") == killed["id"]]  # noqa: E731
    (again,) = shop.wait("the retry", retries, 300)
    shop.wait("all ranges", lambda: retries()[0]["status"] == "SUCCESS" and green() == set(THREE), 400)
    told = shop.messages(again["id"])
    assert [message for message in told if message.endswith(f"rows of {3 - len(done)} ranges are in the lake.")], told
    pages.reload_until(f"{path}&partition={THREE[0]}", [r"Materialized \(3\)", "rows_per_second"], 240)
    pages.picture("ranges")
    pages.leave()
    assert any(run["id"] == streaming["id"] for run in shop.runs("shop_stream_job"))
    shop.wait("the lake", lambda: shop.unequal() == [])


def test_a_tick_of_the_schedule_materializes_ranges_and_the_schedule_is_turned_off(pages, shop, streaming):
    shop.configure("wal2lake.snapshot.schedule=0 3 * * 0", "wal2lake.snapshot.schedule=* * * * *")
    by_tick = lambda: [  # noqa: E731
        run
        for run in shop.runs("shop_incremental_snapshot_job")
        if run["tags"].get("dagster/schedule_name") == SCHEDULE
    ]
    shop.wait("a tick", by_tick, FIRST_TICK)
    path = f"locations/{LOCATION}/schedules/{SCHEDULE}"
    pages.open(path, "Every minute", "requested", size=(1600, 900))
    pages.picture("ticks")
    pages.turn_off()
    shop.wait("that it is off", lambda: shop.schedule_status(SCHEDULE) == "STOPPED")
    pages.leave()
    wanted = {"shop.customers|0001", "shop.products|0001"}
    shop.wait("its ranges", lambda: wanted <= set(shop.partitions("materialized", "incremental_snapshot")), 300)
    path = "assets/shop/incremental_snapshot?view=partitions&partition=shop.customers|0001"
    pages.open(path, "rows_per_second", "shop_incremental_snapshot_job")

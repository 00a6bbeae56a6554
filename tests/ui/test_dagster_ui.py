"""Dagster's UI as a person sees it: the demo runs, a headless Chromium looks, the pictures go to docs/images."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ui, pytest.mark.slow, pytest.mark.timeout(1500)]

IMAGES = Path(__file__).parents[2] / "docs" / "images"
CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
READY_SECONDS = 900
# A first report comes seconds after a table's first merge, then one a minute: three points make a plot.
POINTS = 3
REPORTS = (
    '{ assetOrError(assetKey: {path: ["shop", "lake", "shop", "orders"]}) { ... on Asset {'
    " assetMaterializations(limit: 50) { runId runOrError { ... on Run { status } }"
    " metadataEntries { label ... on FloatMetadataEntry { floatValue } ... on IntMetadataEntry { intValue } } } } } }"
)


@pytest.fixture(scope="module")
def url():
    """The address of a demo with a run of the stream that goes on and has reported its tables some times."""
    # Not pytest's own folder: another session of it would close that to the demo's PostgreSQL, which is another user's.
    with tempfile.TemporaryDirectory(prefix="wal2lake-ui-", ignore_cleanup_errors=True) as folder:
        yield from _demo(Path(folder))


def _demo(folder: Path):
    log = folder / "demo.log"
    with log.open("wb") as output:
        demo = subprocess.Popen(
            [str(Path(sys.executable).parent / "wal2lake"), "demo", "--folder", str(folder / "demo")],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield _address(log, demo)
    finally:
        demo.send_signal(signal.SIGINT)
        try:
            demo.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(demo.pid, signal.SIGKILL)


def _address(log: Path, demo: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + READY_SECONDS
    address = ""
    while time.monotonic() < deadline:
        assert demo.poll() is None, log.read_text()[-3000:]
        text = log.read_text()
        if not address and "Dagster's UI: " in text:
            address = text.split("Dagster's UI: ")[1].split()[0]
        if address and "streaming" in text and len(running_reports(address)) >= POINTS:
            return address
        time.sleep(2)
    raise AssertionError(f"the demo was not ready in {READY_SECONDS} s:\n{log.read_text()[-3000:]}")


def running_reports(address: str) -> list[dict[str, float]]:
    """The numbers of each report of the table orders, newest first, by a run that is at work now."""
    body = json.dumps({"query": REPORTS}).encode()
    request = urllib.request.Request(f"{address}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        asset = json.load(response)["data"]["assetOrError"]
    found = [one for one in asset.get("assetMaterializations", []) if one["runOrError"].get("status") == "STARTED"]
    return [
        {entry["label"]: entry.get("floatValue", entry.get("intValue")) for entry in one["metadataEntries"]}
        for one in found
    ]


@pytest.fixture(scope="module")
def browser():
    selenium = pytest.importorskip("selenium.webdriver", reason="make setup installs selenium")
    if not Path(CHROMIUM).exists() or not Path(DRIVER).exists():
        pytest.skip("no Chromium here; make servers installs it where it may (Debian: apt install chromium-driver)")
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1600,1100"),
    ):
        options.add_argument(flag)
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def look(browser, url: str, name: str, *words: str, seconds: float = 60) -> str:
    """Open a page, wait until it shows ``words``, take its picture; the page's text."""
    browser.get(url)
    deadline = time.monotonic() + seconds
    text = ""
    while time.monotonic() < deadline:
        text = browser.find_element("tag name", "body").text
        if all(word in text for word in words):
            break
        time.sleep(1)
    time.sleep(3)  # plots and graphs are drawn after their texts
    IMAGES.mkdir(exist_ok=True)
    browser.save_screenshot(str(IMAGES / f"{name}.png"))
    missing = [word for word in words if word not in text]
    assert not missing, f"{url} does not show {missing}:\n{text[:2000]}"
    return text


def press(browser, label: str, name: str, *words: str) -> None:
    """Press the button of that label, and take the picture of what it shows."""
    browser.find_element("xpath", f"//button[normalize-space()='{label}'] | //*[@role='radio'][.='{label}']").click()
    time.sleep(4)
    text = browser.find_element("tag name", "body").text
    browser.save_screenshot(str(IMAGES / f"{name}.png"))
    assert [word for word in words if word not in text] == []


def test_the_asset_graph_shows_source_snapshot_changes_and_lake(browser, url):
    browser.set_window_size(1900, 2300)
    look(browser, f"{url}/asset-groups", "assets", "snapshot", "changes", "customers", "Passed", seconds=90)


def test_a_tables_page_shows_what_was_merged_and_its_plots_while_the_run_goes_on(browser, url):
    browser.set_window_size(1600, 2300)
    text = look(browser, f"{url}/assets/shop/lake/shop/orders", "table", "orders", "lag_bytes")
    assert "Unsynced" not in text
    press(browser, "Plots", "plots", "lag_seconds")
    reports = running_reports(url)
    assert len(reports) >= POINTS, "the run whose plots these are has ended"
    assert all(one["lag_seconds"] is not None and one["dagster/row_count"] for one in reports)


def test_the_run_that_goes_on_is_shown_with_its_materialisations(browser, url):
    browser.set_window_size(1600, 1100)
    look(browser, f"{url}/runs", "runs", "shop_stream_job", "Started")


def test_a_tables_checks_are_listed(browser, url):
    browser.set_window_size(1600, 1100)
    look(browser, f"{url}/assets/shop/lake/shop/orders?view=checks", "checks", "rules", "quarantine")

"""A headless Chromium, where the machine has one, and the one shop that every test of the UI looks at."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.support.waits import patient
from tests.ui.shop import opened_shop

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
HOW = "make servers installs it where it may (Debian: apt install chromium chromium-driver); then: make test-ui"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1600,1100"),
    # Great Expectations' pages ask for style sheets of other sites; a test does without.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def pytest_collection_modifyitems(items):
    """In the order in which they are written: each brings the shop further than the one before it."""
    places = [place for place, item in enumerate(items) if item.get_closest_marker("ui")]
    ordered = sorted((items[place] for place in places), key=lambda item: (str(item.path), item.reportinfo()[1]))
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def browser():
    selenium = pytest.importorskip("selenium.webdriver", reason="make setup installs selenium")
    missing = [path for path in (CHROMIUM, DRIVER) if not Path(path).exists()]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found: {HOW}")
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    driver.set_page_load_timeout(patient(90))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def shop(browser):
    # Not pytest's own folder: another session of it would close that to PostgreSQL, which is another user's.
    with tempfile.TemporaryDirectory(prefix="wal2lake-ui-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o755)
        with opened_shop(folder) as found:
            yield found


@pytest.fixture(scope="session")
def images():
    """Where pictures go: ``WAL2LAKE_SCREENSHOTS``, which ``make test-ui`` sets to docs/images, else nowhere to stay."""
    given = os.environ.get("WAL2LAKE_SCREENSHOTS", "")
    if given:
        Path(given).mkdir(parents=True, exist_ok=True)
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="wal2lake-images-") as made:
        yield Path(made)

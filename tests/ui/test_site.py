"""The documentation's pages in a browser: names in one piece, no page that is wider than its window."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waits import patient

pytestmark = pytest.mark.ui

ROOT = Path(__file__).parents[2]
WIDTHS = (400, 1280)
TOO_WIDE = """
const room = document.documentElement.clientWidth;
const scrolled = [...document.querySelectorAll("article table")].filter(
  table => table.getBoundingClientRect().right > room && !table.closest(".md-typeset__scrollwrap"));
return document.documentElement.scrollWidth > room || scrolled.length > 0;
"""
BROKEN = """
return [...document.querySelectorAll("article td:first-child code")]
  .filter(name => name.getClientRects().length > 1).map(name => name.textContent);
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="make setup installs mkdocs-material")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=patient(300),
        check=True,
    )
    return folder


def test_tables_fit_the_window_and_break_no_name(browser, site):
    wrong = {}
    before = browser.get_window_size()
    try:
        for width in WIDTHS:
            browser.set_window_size(width, 1000)
            for page in sorted({*site.rglob("*.html")} - {*site.glob("decisions/*")}):
                browser.get(page.as_uri())
                problems = (browser.execute_script(TOO_WIDE), browser.execute_script(BROKEN))
                if problems != (False, []):
                    wrong[width, page.relative_to(site).as_posix()] = problems
    finally:
        browser.set_window_size(before["width"], before["height"])
    assert wrong == {}


def test_a_property_is_reached_by_its_name(browser, site):
    browser.get((site / "configuration.html").as_uri() + "#slot.name")
    row = browser.execute_script("return document.getElementById('slot.name').closest('tr').cells[0].innerText")
    assert row.strip() == "slot.name"

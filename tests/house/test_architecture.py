"""docs/architecture.md names files that exist, and objects that they have."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = (
    ROOT,
    ROOT / "cdc_core",
    *(ROOT / place for place in ("cdc_core/snapshot/incremental", "cdc_core/reconcile", "pipelines/assets")),
)


def test_each_file_exists():
    named = set(re.findall(r"`([a-z_/]+\.py)`", PAGE))
    assert len(named) > 20
    assert not [name for name in named if not any((folder / name).is_file() for folder in FOLDERS)]


def test_each_stop_is_a_file_with_an_object_that_exists():
    classes = {
        name
        for path in (ROOT / "cdc_core").glob("**/*.py")
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    stops = [row.split("|")[1:-1] for row in PAGE.splitlines() if re.match(r"\| \d+ \|", row)]
    assert 12 <= len(stops) <= 20
    carried = {name for row in stops for name in re.findall(r"`(\w+)`", row[3])}
    assert not carried - classes


def test_the_way_of_an_update_has_twelve_stops_at_most():
    part = PAGE.split("## One UPDATE")[1].split("\n## ")[0]
    assert len(re.findall(r"^\| \d+ \|", part, re.MULTILINE)) <= 12

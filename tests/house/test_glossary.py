"""The glossary names places that exist, defines no term twice, and is in order to be found."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"


def rows() -> list[list[str]]:
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] != "term"]


def exists(place: str) -> bool:
    path = ROOT / "cdc_core" / place
    return path.is_dir() or path.with_name(path.name + ".py").is_file()


def test_each_row_is_complete():
    assert len(rows()) > 50
    assert not [row for row in rows() if len(row) != 4 or not all(row)]


def test_each_place_exists():
    places = {row[0]: re.fullmatch(r"`([a-z_/]+)`", row[2]) for row in rows()}
    assert not [term for term, place in places.items() if place is None or not exists(place[1])]


def test_a_term_is_defined_once():
    assert not [term for term, n in Counter(row[0] for row in rows()).items() if n > 1]


def test_the_glossary_is_found_from_the_pages_that_are_read_first():
    assert "(docs/glossary.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(../docs/glossary.md)" in (ROOT / "cdc_core" / "README.md").read_text(encoding="utf-8")

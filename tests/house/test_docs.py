"""The pages of the documentation: links lead somewhere, the navigation has every page, generated pages are current."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_core.config.catalogue import TRANSLATED, declared_by_package
from cdc_core.version import __version__
from tests.support.waits import patient

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_HEADING = re.compile(r"^#+ +(.*?)(?: +\{#([\w-]+)\})?$", re.MULTILINE)


def plain(page: Path) -> str:
    """The page without blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def slug(heading: str) -> str:
    """The anchor of a heading, as mkdocs.yml has it made and as GitHub makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """Of headings that are alike the second has _1 at the end, in a site, and -1 on GitHub."""
    text = plain(page)
    return {given or slug(heading) for heading, given in _HEADING.findall(text)} | set(_ANCHOR.findall(text))


def test_every_property_has_an_anchor_of_its_own() -> None:
    names = [*(each.name for group in declared_by_package().values() for each in group), *TRANSLATED]
    linked = _ANCHOR.findall((DOCS / "configuration.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(name.replace("*", "any") for name in names)
    assert len(linked) == len(set(linked))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    wrong = []
    for target in _LINK.findall(plain(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            wrong.append(target)
        elif DOCS in page.parents and DOCS not in there.parents and "decisions" not in page.parts:
            wrong.append(f"{target} (outside of the site)")
    assert wrong == []


def test_the_navigation_has_every_page_once() -> None:
    listed = re.findall(
        r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    there = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if "decisions" not in page.parts]
    assert sorted(listed) == sorted(there), "mkdocs.yml has the navigation: add the page there"


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    tool = [sys.executable, "-m", "tools.gen_command_line_doc", "--check"]
    done = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_site_is_built_without_a_warning_and_can_be_searched(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="make setup installs mkdocs-material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "WAL2LAKE_REPOSITORY_URL": "https://git.example.org/wal2lake"},
        capture_output=True,
        text=True,
        timeout=patient(300),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    pages = {entry["location"].partition("#")[0] for entry in index["docs"]}
    found = {entry["location"].partition("#")[0] for entry in index["docs"] if "rescued" in entry["text"]}
    assert {"types.html", "limits.html"} <= found
    assert [page for page in pages if page.startswith("decisions/")] == [], "decisions are not for users"
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert f"wal2lake {__version__}" in page and 'href="https://git.example.org/wal2lake"' in page


def test_every_decision_is_in_the_index_with_its_status() -> None:
    folder = DOCS / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for record in sorted(folder.glob("0*.md")):
        title, _, status = record.read_text(encoding="utf-8").split("\n", 3)[:3]
        number, _, name = title.removeprefix("# ").partition(". ")
        assert f"| {number} | [{name}]({record.name}) |" in index, record.name
        assert status.startswith("*Status: "), record.name


def test_each_failure_elsewhere_has_a_test_that_exists() -> None:
    page = (DOCS / "elsewhere.md").read_text(encoding="utf-8")
    index = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (`.+`) \|$", index, re.MULTILINE))
    assert [title for title in re.findall(r"^## (.+)$", page, re.MULTILINE) if title not in rows] == []
    named = {name for cell in rows.values() for name in re.findall(r"`([\w/]+\.py)`", cell) if "/test_" in name}
    assert sorted(name for name in named if not (ROOT / "tests" / name).is_file()) == []


# Of the house's own dialect: each has a plain word (continues, is reported, automatically, while, only).
_DIALECT = re.compile(
    r"\b(goes on|go on|going on|is said|are said|is told|are told|by itself|by themselves|beside|see to that|theirs"
    r"|that you have|partition a table|commit a table|job a table|task a table|of patience|of one's own)\b",
    re.IGNORECASE,
)
_TEST_FILE = re.compile(r"\btest_\w+\.py\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_for_users_are_in_plain_words_and_name_no_test(page: Path) -> None:
    if "decisions" in page.parts or page.name in ("CONTRIBUTING.md", "RELEASING.md"):
        return
    # The page of commands is one block after the other: what the commands print as their help.
    whole = page.read_text(encoding="utf-8") if page.name == "command-line.md" else plain(page)
    text = _LINK.sub("]", whole)
    assert [match[0] for match in _DIALECT.finditer(text)] == []
    assert _TEST_FILE.findall(text) == []


def test_pages_for_contributors_are_in_plain_words_too() -> None:
    guides = [
        ROOT / "CONTRIBUTING.md",
        ROOT / "RELEASING.md",
        *ROOT.glob("[a-z]*/README.md"),
        *ROOT.glob("tests/*/README.md"),
    ]
    # A name of a module may be one of the words.
    texts = {page: re.sub(r"`[^`]*`", "", plain(page)) for page in guides}
    assert [(page.name, match[0]) for page, text in texts.items() for match in _DIALECT.finditer(text)] == []

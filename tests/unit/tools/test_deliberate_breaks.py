"""The tool that breaks the code on purpose, on a tree of two files."""

from dataclasses import replace
from pathlib import Path

import pytest

from tools.deliberate_breaks import ROOT, Break, copied, judged, run_tests

ONE = Break("sum", "why", "made.py", "a + b", "a - b", ("test_made.py",))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "made.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "test_made.py").write_text("from made import add\n\n\ndef test_add():\n    assert add(1, 1) == 2\n")
    return tmp_path


def passes(tests: tuple[str, ...]) -> bool:
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "caught"),
        ({"becomes": "b + a"}, "NOT CAUGHT"),
        ({"becomes": "a + ("}, "error: pytest ended with 2"),
        ({"text": "a * b"}, "error: the text occurs 0 times"),
        ({"text": "a"}, "error: the text occurs 3 times"),
    ],
)
def test_a_break_is_caught_where_its_test_fails_and_the_file_is_restored(tree: Path, change, expected):
    before = (tree / "made.py").read_text()
    assert judged(replace(ONE, **change), tree, passes) == expected
    assert (tree / "made.py").read_text() == before


def test_a_test_that_fails_anyway_proves_nothing(tree: Path):
    assert judged(ONE, tree, lambda tests: False) == "error: the test fails without the break"


def test_a_link_to_a_folder_leads_into_the_copy(tmp_path: Path):
    copied(ROOT, tmp_path)
    assert (tmp_path / "wal2lake" / "pipelines" / "__init__.py").resolve() == tmp_path / "pipelines" / "__init__.py"


@pytest.mark.parametrize(
    ("body", "bounds"), [("time.sleep(600)", {"wait_seconds": 3}), ("while True:\n        pass", {"cpu_seconds": 3})]
)
def test_a_test_that_does_not_end_is_stopped(tree: Path, body: str, bounds: dict[str, int]):
    (tree / "test_made.py").write_text(f"import time\n\n\ndef test_long():\n    {body}\n")
    assert run_tests(tree, ("test_made.py",), **bounds) is None


@pytest.mark.slow
def test_options_of_the_caller_are_not_those_of_the_tree(tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p a.plugin.that.the.tree.lacks")
    assert run_tests(tree, ("test_made.py",)) == 0

"""House rules that a machine can check."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 500
MAX_FUNCTION_LINES = 60
HOT_ROOMS = ("cdc_core/types/", "cdc_core/decode/", "cdc_core/envelope/", "cdc_core/selection/")
ROW_LOOPS = re.compile(r"\.(to_pylist|iterrows|itertuples|as_py)\(")
# One value of a whole column, however long, and the ends of one.
ONE_VALUE = re.compile(r"pc\.(any|all|sum|min|max|count|min_max)\(.*\.as_py\(|\[(0|-1)\]\.as_py\(|once a transaction")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).glob("**/*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sources("cdc_core", "pipelines", "tests", "tools", "benchmarks"), ids=name_of)
def test_a_file_is_one_room(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", sources("cdc_core", "pipelines"), ids=name_of)
def test_a_function_fits_a_screen(path):
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not long


@pytest.mark.parametrize("path", [p for p in sources("cdc_core") if name_of(p).startswith(HOT_ROOMS)], ids=name_of)
def test_hot_rooms_go_row_by_row_only_where_they_say_why(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    unexplained = [
        number
        for number, line in enumerate(lines, 1)
        if ROW_LOOPS.search(line)
        and not ONE_VALUE.search(line)
        and not any("row-wise:" in near for near in lines[max(0, number - 4) : number])
    ]
    assert not unexplained, f"lines {unexplained} touch values one by one without a '# row-wise: <reason>' above"


@pytest.mark.parametrize("path", sources("cdc_core", "pipelines"), ids=name_of)
def test_nothing_unfinished_is_left(path):
    assert not re.findall(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", path.read_text(encoding="utf-8"))


def test_no_test_stops_the_spark_session_that_its_process_shares():
    stops = [p for p in sources("tests") if re.search(r"\b(session|spark)\.stop\(", p.read_text(encoding="utf-8"))]
    assert [name_of(path) for path in stops] == ["tests/conftest.py"]

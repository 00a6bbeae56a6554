"""House rules that a machine can check."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_LINES = 500
MAX_FUNCTION_LINES = 60
# A link to pipelines/, so its files are not counted again.
LINKED = "wal2lake/pipelines/"
VAGUE = {"found", "one", "each", "held", "wanted", "given"}
HOT_ROOMS = ("cdc_core/types/", "cdc_core/decode/", "cdc_core/events/envelope/", "cdc_core/selection/")
ROW_LOOPS = re.compile(r"\.(to_pylist|iterrows|itertuples|as_py)\(")
# One value of a whole column, however long, and the ends of one.
ONE_VALUE = re.compile(r"pc\.(any|all|sum|min|max|count|min_max)\(.*\.as_py\(|\[(0|-1)\]\.as_py\(|once a transaction")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).glob("**/*.py"))


def broken(rule: Callable[[str], object], *folders: str) -> dict[str, object]:
    """What the text of each file does against a rule, by the file's name; those that obey it are left out."""
    found = ((name_of(path), rule(path.read_text(encoding="utf-8"))) for path in sources(*folders))
    return {name: wrong for name, wrong in found if wrong}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_a_file_is_one_room():
    def lines(text: str) -> int | None:
        count = len(text.splitlines())
        return count if count > MAX_LINES else None

    assert not broken(lines, "cdc_core", "pipelines", "tests", "tools", "benchmarks")


def test_a_class_name_is_unique():
    names = [
        name
        for path in sources("cdc_core", "pipelines", "wal2lake")
        if not name_of(path).startswith(LINKED)
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not sorted({name for name in names if names.count(name) > 1})


def test_a_local_name_says_what_it_is():
    """In functions of more than ten lines, whose last line is far from the one that binds the name."""

    def vague(text: str) -> list[str]:
        return [
            f"{function.name}: {name}"
            for function in ast.walk(ast.parse(text))
            if isinstance(function, ast.FunctionDef) and function.end_lineno - function.lineno + 1 > 10
            for name in sorted(bound(function) & VAGUE)
        ]

    vague_in = broken(vague, "cdc_core", "pipelines", "wal2lake")
    assert not {name: names for name, names in vague_in.items() if not name.startswith(LINKED)}


def bound(function: ast.FunctionDef) -> set[str]:
    """The parameters and local variables of a function, without those of functions inside of it."""
    names: set[str] = set()
    nodes: list[ast.AST] = [*ast.iter_child_nodes(function)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, ast.FunctionDef):
            nodes += ast.iter_child_nodes(node)
    return names


def test_a_function_fits_a_screen():
    def long(text: str) -> list[str]:
        return [
            f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
        ]

    assert not broken(long, "cdc_core", "pipelines")


def test_hot_rooms_go_row_by_row_only_where_they_say_why():
    """Lines that touch values one by one need a ``# row-wise: <reason>`` above."""

    def unexplained(text: str) -> list[int]:
        lines = text.splitlines()
        return [
            number
            for number, line in enumerate(lines, 1)
            if ROW_LOOPS.search(line)
            and not ONE_VALUE.search(line)
            and not any("row-wise:" in near for near in lines[max(0, number - 4) : number])
        ]

    assert not broken(unexplained, *HOT_ROOMS)


def test_nothing_unfinished_is_left():
    words = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert not broken(words.findall, "cdc_core", "pipelines")


def test_no_test_stops_the_spark_session_that_its_process_shares():
    stops = [p for p in sources("tests") if re.search(r"\b(session|spark)\.stop\(", p.read_text(encoding="utf-8"))]
    assert [name_of(path) for path in stops] == ["tests/conftest.py"]

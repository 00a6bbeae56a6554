"""The picture of the imports, of a small checkout with a circle and an upward import."""

import pytest

from tools.import_picture import main, picture, side_by_side

FILES = {
    "cdc_core/__init__.py": "",
    "cdc_core/lsn.py": "class Lsn(int):\n    pass\n",
    "cdc_core/lake/__init__.py": "",
    "cdc_core/lake/table.py": "from cdc_core import lsn\nfrom cdc_core.lake.log import read\n",
    "cdc_core/lake/log.py": "def read():\n    from cdc_core.lake.table import x\n    from cdc_core.engine import run\n",
    "cdc_core/engine/__init__.py": "",
    "cdc_core/engine/run.py": "import os\nfrom cdc_core.lsn import Lsn\nimport cdc_core.lake.table\n",
    "cdc_core/engine/stop.py": (
        "from cdc_core.lake import table, log\nclass Stop:\n    def __init__(self, a, b, c, d, e, f, g, *, h, i): ...\n"
    ),
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_arrows_count_the_modules_that_modules_name(checkout):
    arrows = picture(checkout).arrows
    assert arrows["cdc_core/engine", "cdc_core/lake"] == 3
    assert arrows["cdc_core/engine", "cdc_core"] == 1
    assert arrows["cdc_core/lake", "cdc_core/engine"] == 1


def test_the_fewer_of_two_directions_is_upward_but_not_between_a_folder_and_its_package(checkout):
    assert picture(checkout).upward == {("cdc_core/lake", "cdc_core/engine"): 1}


def test_circles_are_found_through_imports_in_functions_and_are_one_level(checkout):
    of = picture(checkout)
    assert of.circles == [["cdc_core.engine.run", "cdc_core.lake.log", "cdc_core.lake.table"]]
    assert of.levels["cdc_core.lsn"] == 1
    assert of.levels["cdc_core.engine.run"] == of.levels["cdc_core.lake.log"] == 2
    assert of.levels["cdc_core.engine.stop"] == 3


def test_a_class_with_many_arguments_is_large(checkout):
    assert [(c.name, c.arguments) for c in picture(checkout).classes if c.is_large] == [
        ("cdc_core.engine.stop.Stop", 9)
    ]


def test_two_checkouts_side_by_side(checkout, capsys):
    main(["--root", str(checkout), "--compare", str(checkout)])
    table = capsys.readouterr().out
    assert "| files | 8 | 8 |" in table
    assert table.splitlines() == "\n".join(side_by_side(picture(checkout), picture(checkout))).splitlines()


@pytest.mark.slow
def test_the_text_of_this_repository(capsys):
    main(["--arrows"])
    text = capsys.readouterr().out
    assert "cdc_core/lake/rows" in text
    assert "cdc_core/cli ─▶ cdc_core/assemble" in text

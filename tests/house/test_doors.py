"""A package is entered by its door only (``cdc_core/door.py``); ``python -m tools.doors --fix`` rewrites imports."""

import importlib
import subprocess
import sys

import pytest

from tools.doors import ROOT, Passing, doors, given_out, loaded, pages, passing

PACKAGES = {f"cdc_core.{path.parent.name}" for path in (ROOT / "cdc_core").glob("*/__init__.py")}
WITHOUT_DOOR = {"cdc_core.cli"}  # nothing but the program imports it
MOST_NAMES = {
    "cdc_core.decode": 25,
    "cdc_core.engine": 85,
    "cdc_core.events": 36,
    "cdc_core.lake": 91,
    "cdc_core.postgres": 69,
    "cdc_core.quality": 35,
    "cdc_core.schema": 47,
    "cdc_core.snapshot": 66,
    "cdc_core.spark": 24,
}
OTHERS = 21


def test_each_package_has_a_door():
    assert set(doors()) == PACKAGES - WITHOUT_DOOR


def test_a_package_is_entered_by_its_door_only():
    assert not passing()


def test_no_door_becomes_wider():
    assert not {name: len(names) for name, names in doors().items() if len(names) > MOST_NAMES.get(name, OTHERS)}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.parent.name)
def test_each_door_loads_what_it_says_to_type_checkers(page):
    assert loaded(page) == given_out(page), "run python -m tools.doors --fix"
    package = importlib.import_module(f"cdc_core.{page.parent.name}")
    assert all(getattr(package, name) is not None for name in given_out(page))
    # Python makes a module that was imported an attribute of its package, instead of a name that is equal.
    direct = {path.stem for path in page.parent.iterdir()}
    assert not {name for name, module in given_out(page).items() if name in direct and not module.endswith(f".{name}")}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.parent.name)
def test_a_door_is_a_page_that_names_what_it_gives_out(page):
    text = page.read_text(encoding="utf-8").split('"""')[1]
    assert len(text.splitlines()) <= 90
    assert not [name for name in given_out(page) if f"``{name}``" not in text]


def test_importing_doors_loads_no_library():
    packages = ", ".join(sorted(doors()))
    heavy = "{'pyarrow', 'numpy', 'deltalake', 'pyspark', 'dagster', 'duckdb', 'psycopg', 'great_expectations'}"
    code = f"import sys, {packages}; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).strip() == "set()"


def test_the_rule_notices_an_import_past_a_door(tmp_path):
    package = tmp_path / "cdc_core" / "inside"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""A door."""\n\nlazily(\n    __name__,\n    {},\n)\n')
    (package / "room.py").write_text("from cdc_core.inside.other import name\n")
    (tmp_path / "cdc_core" / "outside.py").write_text("from cdc_core.inside.room import name\n")
    found = [Passing("cdc_core/outside.py", "cdc_core.inside", "cdc_core.inside.room", "name")]
    assert passing(tmp_path) == found

"""Every property of the connector is declared, once, with a word about what becomes of it."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cdc_core.config import reach
from cdc_core.config.catalogue import PACKAGES, declared_by_package, find, is_declared
from cdc_core.config.reach import reaches
from cdc_core.option import PropertyStatus, properties_of
from tests.support.waits import patient

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "data" / "debezium_3_6_3_properties.txt"
NAMES = [line for line in LIST.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_the_list_is_whole():
    assert len(NAMES) > 180
    assert not [name for name, times in Counter(NAMES).items() if times > 1]


@pytest.mark.parametrize("name", NAMES)
def test_a_property_of_debezium_is_declared(name):
    assert is_declared(name)


def test_a_misspelt_name_is_not_declared():
    assert not is_declared("decimal.handling.mod")
    assert not is_declared("column.mask.with.ten.chars")


def test_each_name_is_declared_once():
    names = [declared.name for group in declared_by_package().values() for declared in group]
    aliases = [alias for group in declared_by_package().values() for declared in group for alias in declared.aliases]
    assert not [name for name, times in Counter(names + aliases).items() if times > 1]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_room_documents_what_it_declares(package):
    for field, declared in properties_of(PACKAGES[package][1]).items():
        assert declared.doc.endswith((".", "…")) or declared.doc, declared.name
        if not declared.pattern:
            snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in declared.name.removeprefix("wal2lake."))
            assert field == snake.replace(".", "_"), declared.name
            assert find(declared.name).field == field


def test_what_is_not_obeyed_says_why():
    for group in declared_by_package().values():
        for declared in group:
            assert declared.status is PropertyStatus.SUPPORTED or declared.reason, declared.name


def test_every_supported_property_says_what_it_has_an_effect_on():
    supported = [
        declared.name
        for _, options in PACKAGES.values()
        for declared in properties_of(options).values()
        if declared.status is PropertyStatus.SUPPORTED
    ]
    assert sorted(reaches()) == sorted(supported)
    listed = [name for table in (*reach._EVENTS.values(), reach._LAKE, reach._BOTH) for name in table.split()]
    assert not [name for name, times in Counter(listed).items() if times > 1]


def test_the_page_is_what_the_declarations_say():
    tool = ROOT / "tools" / "gen_configuration_doc.py"
    run = subprocess.run(
        [sys.executable, str(tool), "--check"], capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr

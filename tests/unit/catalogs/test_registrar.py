"""A catalog becomes equal to what is wanted, whenever it answers; nobody waits for it."""

import logging
import threading

import pytest

from cdc_core.catalogs import registrar as module
from cdc_core.catalogs.entry import EntryName, NamePatterns, TakenError
from cdc_core.catalogs.options import parse_catalogs, parse_name
from cdc_core.catalogs.registrar import Registrar
from cdc_core.outbox import DeliveryError
from cdc_core.schema.table import TableId
from tests.support.catalogs import changed, entry
from tests.support.waits import patient, wait_until


class Kept:
    """A catalog in memory: ``error`` is raised by every call while it is set."""

    place = "The catalog"

    def __init__(self):
        self.entries, self.calls, self.error = {}, [], None
        self.pass_on = threading.Event()
        self.pass_on.set()

    def _call(self, *call):
        self.pass_on.wait(patient(20))
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    def put(self, wanted):
        self._call("put", wanted.name)
        self.entries[wanted.name] = wanted

    def remove(self, name):
        self._call("remove", name)
        self.entries.pop(name, None)


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(module, "_MOST_SECONDS", 0.02)
    return Kept()


def test_what_is_wanted_is_done_before_the_end(kept):
    registrar = Registrar(kept)
    registrar.later(lambda catalog: registrar.put(entry("public_a")))
    registrar.put(entry("public_b"))
    registrar.put(entry("public_c"))
    registrar.remove(EntryName("shop", "public_c"))
    registrar.close(patient(10))
    assert sorted(name.table for name in kept.entries) == ["public_a", "public_b"]


def test_only_the_last_wish_counts(kept):
    kept.pass_on.clear()
    registrar = Registrar(kept)
    registrar.put(entry("public_a"))
    wait_until(lambda: registrar._wishes, 5, "the first wish")
    for _ in range(100):
        registrar.put(entry())
    registrar.put(changed(entry()))
    kept.pass_on.set()
    registrar.close(patient(10))
    assert len(kept.calls) == 2 and kept.entries[entry().name] == changed(entry())


def test_a_catalog_that_is_away_gets_it_later(kept, caplog):
    caplog.set_level(logging.INFO)
    kept.error = DeliveryError("it answered 503")
    registrar = Registrar(kept)
    registrar.put(entry())
    wait_until(lambda: len(kept.calls) >= 3, 10, "three attempts")
    kept.error = None
    wait_until(lambda: kept.entries, 10, "the entry")
    registrar.close(patient(10))
    assert [record.getMessage() for record in caplog.records] == [
        "The catalog: tables are not registered: it answered 503. The run continues.",
        "The catalog: tables are registered again.",
    ]


def test_the_end_does_not_wait_for_a_catalog_that_is_away(kept, caplog):
    kept.error = DeliveryError("it answered 503")
    registrar = Registrar(kept)
    registrar.put(entry())
    registrar.put(entry("public_b"))
    registrar.close(patient(10))
    assert not registrar._thread.is_alive()
    assert "The next run does." in caplog.text


def test_a_name_that_is_taken_is_reported_once_and_not_tried_again(kept, caplog):
    kept.error = TakenError("shop.public_orders is a table elsewhere.")
    registrar = Registrar(kept)
    registrar.put(entry())
    wait_until(lambda: not registrar._wishes, 5, "the answer")
    registrar.put(entry())
    registrar.close(patient(10))
    assert [record.getMessage() for record in caplog.records] == [
        "The catalog: shop.public_orders is a table elsewhere."
    ]


def test_a_defect_costs_one_entry(kept, caplog):
    kept.error = KeyError("a value")
    registrar = Registrar(kept)
    registrar.put(entry())
    wait_until(lambda: not registrar._wishes, 5, "the answer")
    kept.error = None
    registrar.put(entry("public_b"))
    registrar.close(patient(10))
    assert [name.table for name in kept.entries] == ["public_b"]
    assert "KeyError" in caplog.text and "a value" not in caplog.text


@pytest.mark.parametrize(
    ("database", "table", "name"),
    [
        ("{connector}", "{schema}_{table}", "my_shop.public_line_items"),
        ("lake_{schema}", "{table}", "lake_public.line_items"),
        ("raw", "{connector}_{schema}_{table}", "raw.my_shop_public_line_items"),
    ],
)
def test_names(database, table, name):
    patterns = NamePatterns(parse_name(database), parse_name(table), "My-Shop")
    assert str(patterns.of(TableId("public", "Line Items"))) == name


@pytest.mark.parametrize("text", ["", "{tables}", "a.b", "{", "a}"])
def test_patterns_that_are_refused(text):
    with pytest.raises(ValueError, match="without dots"):
        parse_name(text)


def test_catalogs_that_there_are():
    assert parse_catalogs("unity, glue,unity") == ("unity", "glue")
    with pytest.raises(ValueError, match="glue, unity"):
        parse_catalogs("hive")

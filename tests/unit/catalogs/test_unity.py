"""Unity Catalog, by a server that holds the contract of its API."""

import json

import pytest

from cdc_core.catalogs.unity import UnityCatalog, _type
from cdc_core.option import Secret
from cdc_core.outbox import DeliveryError
from tests.support.catalogs import LAKE, changed, entry, keeps_its_promises, leaves_others_alone
from tests.support.unity import unity_server


@pytest.fixture
def server():
    with unity_server() as running:
        yield running


def catalog_of(server, lake=LAKE, token="t0ken"):
    return UnityCatalog(f"{server.url}/", Secret(token), "unity", lake)


def test_entries_are_made_changed_and_removed(server):
    keeps_its_promises(catalog_of(server))


def test_those_of_others_stay(server):
    leaves_others_alone(catalog_of(server), catalog_of(server, "s3a://other/lake"))


def test_a_table_as_it_is_stored(server):
    catalog_of(server).put(entry())
    table = server.tables["unity.shop.public_orders"]
    assert table["storage_location"] == "s3://bucket/lake/shop/public_orders"
    assert (table["comment"], table["properties"]["owner"]) == ("Orders", "Data Team")
    kinds = {column["name"]: column["type_name"] for column in table["columns"]}
    assert kinds == {
        "id": "INT",
        "amount": "DECIMAL",
        "tags": "ARRAY",
        "address": "STRUCT",
        "at": "TIMESTAMP_NTZ",
        "__rescued": "MAP",
    }
    amount = table["columns"][1]
    assert (amount["type_precision"], amount["type_scale"], amount["comment"]) == (12, 2, "in euros")
    assert json.loads(amount["type_json"]) == {
        "name": "amount",
        "type": "decimal(12,2)",
        "nullable": True,
        "metadata": {"comment": "in euros"},
    }


def test_an_entry_that_is_equal_is_not_made_again(server):
    catalog = catalog_of(server)
    catalog.put(entry())
    server.asked.clear()
    catalog.put(entry())
    assert server.asked == ["GET /tables/unity.shop.public_orders"]
    catalog.put(changed(entry()))
    assert [column["name"] for column in server.tables["unity.shop.public_orders"]["columns"]][-1] == "extra"
    assert server.tables["unity.shop.public_orders"]["comment"] == "All orders"


def test_a_type_in_sparks_json():
    kind, plain = _type("struct<a:array<int>,b:map<string,struct<c:decimal(4,1),d:date>>>")
    assert kind == "STRUCT"
    assert [field["name"] for field in plain["fields"]] == ["a", "b"]
    inner = plain["fields"][1]["type"]["valueType"]
    assert [(field["name"], field["type"]) for field in inner["fields"]] == [("c", "decimal(4,1)"), ("d", "date")]


def test_errors_have_no_secret(server):
    with pytest.raises(DeliveryError, match="answered 401"):
        catalog_of(server, token="wr0ng").check()
    server.status = 503
    with pytest.raises(DeliveryError, match="answered 503") as away:
        catalog_of(server).put(entry())
    assert "t0ken" not in str(away.value)
    server.status = 0
    with pytest.raises(DeliveryError, match="has no catalog main"):
        UnityCatalog(server.url, Secret("t0ken"), "main", LAKE).check()


def test_a_file_is_the_same_with_one_slash_or_three(server):
    catalog = catalog_of(server, lake="/data/lake")
    catalog.put(entry(lake="/data/lake"))
    table = server.tables["unity.shop.public_orders"]
    assert table["storage_location"] == "file:///data/lake/public_orders"
    table["storage_location"] = "file:/data/lake/public_orders/"
    catalog.put(entry(lake="/data/lake"))

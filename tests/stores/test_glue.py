"""AWS Glue's catalog: a real server (moto's), which boto3 asks as it asks AWS."""

import pytest

from cdc_core.catalogs.glue import GlueCatalog
from cdc_core.outbox import DeliveryError
from tests.support.catalogs import LAKE, changed, entry, keeps_its_promises, leaves_others_alone

pytestmark = pytest.mark.stores


@pytest.fixture
def glue(server, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL_GLUE": server,
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    opened = GlueCatalog(LAKE)
    client = opened._client
    yield opened
    for database in client.get_databases()["DatabaseList"]:
        client.delete_database(Name=database["Name"])


def test_entries_are_made_changed_and_removed(glue):
    keeps_its_promises(glue)


def test_those_of_others_stay(glue):
    leaves_others_alone(glue, GlueCatalog("s3a://other/lake"))


def test_a_table_as_it_is_stored(glue):
    glue.put(entry())
    table = glue._client.get_table(DatabaseName="shop", Name="public_orders")["Table"]
    assert (table["Description"], table["Owner"], table["TableType"]) == ("Orders", "Data Team", "EXTERNAL_TABLE")
    assert table["Parameters"]["spark.sql.sources.provider"] == "delta"
    assert table["StorageDescriptor"]["Location"] == "s3://bucket/lake/shop/public_orders"
    columns = {column["Name"]: (column["Type"], column["Comment"]) for column in table["StorageDescriptor"]["Columns"]}
    assert columns["amount"] == ("decimal(12,2)", "in euros") and columns["at"] == ("timestamp", "")


def test_only_what_differs_is_written(glue):
    def versions():
        return len(glue._client.get_table_versions(DatabaseName="shop", TableName="public_orders")["TableVersions"])

    glue.put(entry())
    glue.put(entry())
    assert versions() == 1
    glue.put(changed(entry()))
    assert versions() == 2
    table = glue._client.get_table(DatabaseName="shop", Name="public_orders")["Table"]
    assert [column["Name"] for column in table["StorageDescriptor"]["Columns"]][-1] == "extra"


def test_a_catalog_that_is_away_is_named_without_its_credentials(glue, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:9")
    with pytest.raises(DeliveryError, match=r"Glue cannot be reached \(EndpointConnectionError\)"):
        GlueCatalog(LAKE).check()


def test_without_a_region_nothing_is_opened(glue, monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(DeliveryError, match="NoRegionError"):
        GlueCatalog(LAKE)

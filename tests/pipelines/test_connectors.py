import dagster as dg
import pytest

from cdc_core.schema.table import TableId
from tests.pipelines.fake import ORDERS, PEOPLE, WEIRD, table
from wal2lake.pipelines.connector import catalogue
from wal2lake.pipelines.connector.files import connector_files, load_sites
from wal2lake.pipelines.reports.lake_facts import LakeFacts


def test_folders_and_files_are_found_in_order(tmp_path, monkeypatch):
    folder = tmp_path / "many"
    folder.mkdir()
    for name in ("b.json", "a.properties", "notes.txt"):
        (folder / name).write_text("x")
    single = tmp_path / "one.properties"
    monkeypatch.setenv("WAL2LAKE_CONNECTORS", f"{folder},{single}")
    assert connector_files() == [folder / "a.properties", folder / "b.json", single]


def test_without_the_variable_the_folder_beside_dagster_yaml_is_read(tmp_path, monkeypatch):
    monkeypatch.delenv("WAL2LAKE_CONNECTORS", raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "shop.properties").write_text("x")
    assert connector_files() == [tmp_path / "connectors" / "shop.properties"]


def test_the_catalogue_is_read_back_and_says_whether_it_changed(tmp_path):
    state = tmp_path / "state"
    assert catalogue.read(state) == ()
    assert catalogue.write(state, [table(WEIRD), table(ORDERS)])
    assert not catalogue.write(state, [table(ORDERS), table(WEIRD)])
    assert [known.id for known in catalogue.read(state)] == [WEIRD, ORDERS]
    assert catalogue.read(state)[1].schema == table(ORDERS)
    assert catalogue.write(state, [table(PEOPLE)])


def test_a_damaged_catalogue_is_only_a_cache(tmp_path):
    (tmp_path / catalogue.FILE).write_text('{"tables": [{"id": 1}]}')
    assert catalogue.read(tmp_path) == ()


def test_plain_names_of_the_include_list_are_tables_and_patterns_are_not():
    known = catalogue.from_include_list(["public.orders", r"shop\.people", r"audit\..*", "public.(a|b)"])
    assert [entry.id for entry in known] == [TableId("public", "orders"), TableId("shop", "people")]


PLAIN = "topic.prefix=shop\nplugin.name=pgoutput\ndatabase.hostname=h\ndatabase.user=u\ndatabase.dbname=d\n"
PORT = "wal2lake.metrics.port=9404\n"
PAGES = "http://127.0.0.1:9404/data-docs/index.html"
ELSEWHERE = "https://docs.example.org/shop/"


@pytest.mark.parametrize(
    ("more", "link"),
    [("", None), (PORT, PAGES), (f"{PORT}wal2lake.quality.docs.url={ELSEWHERE}\n", ELSEWHERE)],
)
def test_data_docs_are_linked_where_they_are_served_else_by_their_path(tmp_path, more, link):
    file = tmp_path / "shop.properties"
    file.write_text(f"{PLAIN}wal2lake.lake.path={tmp_path}/lake\nwal2lake.state.path={tmp_path}/state\n{more}")
    (site,), broken = load_sites([file])
    assert broken == []
    assert "data_docs" not in LakeFacts(site).places(ORDERS), "none has been built"
    index = tmp_path / "state" / "data_docs" / "site" / "index.html"
    index.parent.mkdir(parents=True)
    index.write_text("<h1>docs</h1>")
    found = LakeFacts(site).places(ORDERS)["data_docs"]
    assert found == (dg.MetadataValue.url(link) if link else dg.MetadataValue.path(str(index)))

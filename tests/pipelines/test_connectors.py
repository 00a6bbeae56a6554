from cdc_core.schema.table import TableId
from pipelines import catalogue
from pipelines.connectors import connector_files
from tests.pipelines.fake import ORDERS, PEOPLE, WEIRD, table


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

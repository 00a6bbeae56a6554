"""Connector files as others have them: each passes ``check`` as it is, and what is said about it is recorded.

They are written after public ones, for Debezium 1.6 to 3.x; ``schema.sql`` makes the tables that they name. Only where
the server and the lake are is given in addition. ``WAL2LAKE_RECORD=1`` writes what is said anew.
"""

import os
import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

FOLDER = Path(__file__).parents[1] / "data" / "connectors"
FILES = sorted(file for file in FOLDER.iterdir() if file.suffix in (".json", ".properties"))


def test_each_file_passes_and_what_is_said_of_it_is_recorded(pg, program, tmp_path):
    database = pg.database("files")
    pg.run_script(database, FOLDER / "schema.sql")
    server = pg.properties(database)
    where = {name: server[name] for name in server if name.startswith("database.")}
    where |= {"wal2lake.lake.path": str(tmp_path / "lake"), "wal2lake.state.path": str(tmp_path / "state")}
    given = [part for name, text in where.items() for part in ("--set", f"{name}={text}")]
    assert len(FILES) == 11
    for file in FILES:
        checked = program.run("check", file, *given)
        assert checked.returncode == 0, (file.name, checked.stdout, checked.stderr)
        said = "\n".join(line for line in checked.stdout.splitlines() if not line.startswith("ok "))
        said = said.replace(database, "DATABASE").replace(str(tmp_path), "FOLDER") + "\n"
        said = re.sub(r"\d+ (table|sender|slot)s?\b", r"N \1", said)
        recorded = file.with_suffix(".said")
        if os.environ.get("WAL2LAKE_RECORD"):
            recorded.write_text(said)
        assert said == recorded.read_text(), file.name

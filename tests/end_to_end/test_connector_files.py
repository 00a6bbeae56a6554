"""Connector files as others have them: each passes ``check`` and runs as it is, and what is said is recorded.

They are written after public ones, for Debezium 1.6 to 3.x; ``schema.sql`` makes the tables that they name. Only where
the server and the lake are is given in addition. ``WAL2LAKE_RECORD=1`` writes what is said anew.
"""

import json
import os
import re
from pathlib import Path

import pytest

from cdc_core.config.connector import load
from cdc_core.snapshot.options import SnapshotMode

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

FOLDER = Path(__file__).parents[1] / "data" / "connectors"
FILES = sorted(file for file in FOLDER.iterdir() if file.suffix in (".json", ".properties"))
# A row for each table, and after the snapshot another one.
ROWS = """
insert into public.inventory values ({n}, 'p', 1);
insert into inventory.customers values ({n}, 'a', 'b', 'c');
insert into inventory.outboxevent values (gen_random_uuid(), 'order', '1', 'made', '{{"id": 1}}');
insert into public.customers values ({n}, 'a', 'b', 'c');
insert into public.orders values ({n}, 1, 1.5);
insert into public.payments values ({n}, 1, '12345');
insert into shard_1.accounts values ({n}, 'v');
insert into shard_2.accounts values ({n}, 'v');
insert into billing.invoices values ({n}, 'pdf', 1.5);
insert into billing.lines values ({n}, 1, 1.5);
insert into public.products values ({n}, 'p', 1.5);
insert into public.stock values ({n}, 1);
"""


def test_each_file_passes_and_its_messages_are_recorded(pg, program, tmp_path):
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


def test_each_file_runs_as_it_is(pg, program, tmp_path):
    database = pg.database("files")
    pg.run_script(database, FOLDER / "schema.sql")
    server = pg.properties(database)
    where = {name: server[name] for name in server if name.startswith("database.")}
    pg.execute(database, ROWS.format(n=0))
    for number, file in enumerate(FILES, 1):
        own = {"wal2lake.lake.path": str(tmp_path / file.stem), "wal2lake.state.path": str(tmp_path / "state")}
        given = [part for name, text in {**where, **own}.items() for part in ("--set", f"{name}={text}")]
        for n in (None, number):
            if n is not None:
                pg.execute(database, ROWS.format(n=n))
            done = program.run("run", file, *given, "--until-idle", "0.2")
            assert done.returncode == 0, (file.name, done.stdout, done.stderr)
        shown = json.loads(program.run("status", file, *given, "--rows", "--json").stdout)
        reads = load(file).snapshot.snapshot_mode is not SnapshotMode.NO_DATA
        counts = {one["table"]: (one["source_rows"] if reads else 1, one["lake_rows"]) for one in shown["tables"]}
        assert counts and all(rows == in_lake for rows, in_lake in counts.values()), (file.name, counts)
        pg.drop_slots([database])

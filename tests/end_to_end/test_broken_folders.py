"""Delta tables that cannot be read or are not wal2lake's: only the table that they belong to is paused."""

import json
import shutil
import signal

import deltalake
import pyarrow as pa
import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import changelog_path, difference, lake_path, lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

FOREIGN, LOG, FILE, DATA, CHANGES, BOTH, QUARANTINE, FINE = TABLES = [
    TableId("public", name) for name in ("foreign_one", "log", "file", "data", "changes", "both", "quarantine", "fine")
]
BROKEN = TABLES[:-1]
SCHEMA = "".join(
    f"create table {t} (id int primary key, v text); insert into {t} select g, 'v' from generate_series(1, 50) g;"
    for t in TABLES
)
MORE = "".join(
    f"update {t} set v = v || '+' where id % 5 = 0; delete from {t} where id = (select min(id) from {t});"
    f"insert into {t} select max(id) + 1, 'new' from {t};"
    for t in TABLES
)


def garble(folder):
    """Make the newest commit unreadable; returns what undoes it."""
    newest = max((folder / "_delta_log").glob("*.json"))
    content = newest.read_bytes()
    newest.write_bytes(b"garbage")
    return lambda: newest.write_bytes(content)


def files_of(folder):
    return [folder / path for path in deltalake.DeltaTable(str(folder)).file_uris()]


def replace_by_file(folder):
    shutil.move(folder, folder.with_name(f"{folder.name}.moved"))
    folder.write_text("not a folder")


def status_of(program, file):
    done = program.run("status", file, "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert program.run("status", file).returncode == 0
    return json.loads(done.stdout)


def test_a_folder_that_cannot_be_used_pauses_its_table_alone(pg, program, tmp_path):
    database = pg.database("broken")
    pg.execute(database, SCHEMA)
    settings = {"schema.include.list": "public", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "broken.properties", pg.properties(database, **settings))
    config = load(file)
    lake = {t: lake_path(config, t) for t in TABLES}
    log = {t: changelog_path(config, t) for t in TABLES}
    deltalake.write_deltalake(str(lake[FOREIGN]), pa.table({"id": [7], "mine": ["keep"]}))

    # A Delta table of somebody else in the folder, before the first snapshot: the others are read and streamed.
    done = program.stream(file)
    assert f"{FOREIGN} is paused" in done.stderr, done.stdout + done.stderr[-3000:]
    assert difference(file, TABLES[1:]) == []
    assert list(program.paused(file)) == [str(FOREIGN)]
    assert rows(lake[FOREIGN]) == [{"id": 7, "mine": "keep"}], "it was changed"
    # So does a snapshot of all tables, which says so in the end.
    done = program.run("snapshot", file)
    assert done.returncode == 1 and "wal2lake did not write" in done.stderr, done.stderr[-3000:]
    assert rows(lake[FOREIGN]) == [{"id": 7, "mine": "keep"}]

    # While down.
    pg.execute(database, MORE)
    assert program.stream(file).returncode == 1
    mend = garble(lake[LOG])
    mend_both = garble(lake[BOTH])
    garble(log[BOTH])
    replace_by_file(lake[FILE])
    for path in files_of(lake[DATA]):
        path.unlink()
    garble(log[CHANGES])
    (log[QUARANTINE].parents[2] / "__quarantine/public/quarantine/_delta_log").mkdir(parents=True)
    (log[QUARANTINE].parents[2] / "__quarantine/public/quarantine/_delta_log/00000000000000000000.json").write_text("x")
    told = {one["table"]: one["error"] for one in status_of(program, file)["tables"]}
    assert {name for name, error in told.items() if error} == {str(t) for t in BROKEN}
    pg.execute(database, MORE)
    for _ in range(2):
        done = program.stream(file)
        assert done.returncode == 1, done.stdout + done.stderr[-3000:]
        assert "Traceback" not in done.stderr and difference(file, [FINE]) == []
        pg.execute(database, MORE)
    paused = program.paused(file)
    assert set(paused) == {str(t) for t in BROKEN}
    for table in (LOG, FILE, FOREIGN):
        assert str(lake[table]) in paused[str(table)]["reason"], paused[str(table)]
        assert f"wal2lake replay with {table}" in paused[str(table)]["remedy"]
    assert str(log[CHANGES]) in paused[str(CHANGES)]["reason"]

    # Its remedy is refused as long as the folder is as it is, and works after that.
    for table in (LOG, FILE, FOREIGN):
        done = program.run("replay", file, str(table))
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
    mend()
    mend_both()
    lake[FILE].unlink()
    for folder in (
        lake[FOREIGN],
        log[CHANGES],
        log[BOTH],
        log[QUARANTINE].parents[2] / "__quarantine/public/quarantine",
    ):
        shutil.move(folder, folder.with_name(f"{folder.name}.away"))
    for table in BROKEN:
        command = "snapshot" if table is QUARANTINE else "replay"
        done = program.run(command, file, str(table))
        assert done.returncode == 0, (table, done.stdout + done.stderr[-3000:])
    done = program.stream(file)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert difference(file, TABLES) == [] and program.paused(file) == {}

    # While streaming.
    with program.started("run", file, "--max-seconds", "1500") as running:
        pg.execute(database, MORE)
        wait_until(lambda: difference(file, TABLES) == [], 60, "the changes in the lake")
        replace_by_file(lake[FILE])
        replace_by_file(log[CHANGES])
        for path in files_of(lake[DATA]):
            path.unlink()
        pg.execute(database, MORE)

        def are_paused():
            pg.execute(database, MORE)
            return all(f"{table} is paused" in running.said() for table in (FILE, CHANGES, DATA))

        wait_until(are_paused, 60, "the pauses", 1)
        pg.execute(database, MORE)
        wait_until(lambda: difference(file, [LOG, FOREIGN, FINE]) == [], 60, "the others' changes")
        assert running.end(signal.SIGINT) == 1, running.said()[-3000:]
        assert "Traceback" not in running.said()
    for path in (lake[FILE], log[CHANGES]):
        path.unlink()
        shutil.move(path.with_name(f"{path.name}.moved"), path)
    for table in (FILE, CHANGES, DATA):
        done = program.run("replay", file, str(table))
        assert done.returncode == 0, (table, done.stdout + done.stderr[-3000:])
    done = program.stream(file)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert difference(file, TABLES) == []

    # The lake part of status, when the server is away; and the slot, when a lake's records are damaged.
    away = write_properties(tmp_path / "away.properties", pg.properties(database, **{**settings, "database.port": "1"}))
    found = status_of(program, away)
    assert found["slot_exists"] is None and "No server is listening" in found["server_error"]
    assert {one["table"] for one in found["tables"]} == {str(t) for t in TABLES}
    assert all(one["snapshot_lsn"] for one in found["tables"])
    undo = garble(log[FINE].parents[2] / "__schema_versions")
    found = status_of(program, file)
    assert found["slot_exists"] and "__schema_versions" in found["lake_error"] and len(found["tables"]) == len(TABLES)
    undo()
    empty = write_properties(
        tmp_path / "empty.properties",
        pg.properties(database, **{**settings, "wal2lake.lake.path": str(tmp_path / "no")}),
    )
    assert len(status_of(program, empty)["tables"]) == len(TABLES)

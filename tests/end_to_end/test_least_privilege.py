"""A role that may log in, replicate and read does everything; no secret or row value is where it does not belong."""

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_path, lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PASSWORD = "marked-password-7c1"
VALUE = "marked-value-9e4"
ITEMS = TableId("public", "items")
SCHEMA = f"""
create table items (id text primary key, n int, v text, m int);
create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));
insert into items select '{VALUE}-' || g, g, '{VALUE}', g from generate_series(1, 200) g;
"""
RULES = """
limits: {rows: 50}
rules:
  - name: positive
    condition: n >= 0
"""


def connector(pg, database: str, folder: Path) -> Path:
    """A connector of a role that owns nothing. Its publication is made by the owner."""
    role = f"reader_{database}"
    pg.execute(database, SCHEMA)
    pg.execute(
        database,
        f"create role {role} login replication password '{PASSWORD}'; grant select on items, signals to {role};"
        f'create publication "{database}" for table items, signals',
    )
    (folder / "rules").mkdir()
    (folder / "rules" / "public.items.yaml").write_text(RULES)
    settings = {
        "database.user": role,
        "database.password": PASSWORD,
        "table.include.list": "public.items",
        "publication.autocreate.mode": "disabled",
        "signal.data.collection": "public.signals",
        "incremental.snapshot.chunk.size": "50",
        "notification.enabled.channels": "log",
        "wal2lake.quality.rules.path": str(folder / "rules"),
        "wal2lake.quality.docs.path": str(folder / "docs"),
        **lake_settings(folder),
    }
    return write_properties(folder / "least.properties", pg.properties(database, **settings))


def descendants(pid: int) -> Iterator[int]:
    """The process and all that it started, as far as they still run."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return iter(found)


def shown_by_processes(pid: int) -> bytes:
    """Command lines and environments of a run's processes, which other programs of the user can read."""
    seen = b""
    for each in descendants(pid):
        for name in ("cmdline", "environ"):
            try:
                seen += (Path("/proc") / str(each) / name).read_bytes()
            except OSError:
                continue
    return seen


def files_with(mark: str, folder: Path, *left_out: Path) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not any(path.is_relative_to(each) for each in left_out):
            with suppress(FileNotFoundError):  # the run's Java process may be taking its own away
                found += [str(path)] if mark.encode() in path.read_bytes() else []
    return found


def test_login_replication_and_select_are_enough_and_nothing_is_shown(pg, program, tmp_path):
    database = pg.database("least")
    file = connector(pg, database, tmp_path)
    checked = program.run("check", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    owned = pg.properties(database, **{"table.include.list": "public.items"}, **lake_settings(tmp_path))
    owner = write_properties(tmp_path / "owner.properties", owned)
    lake = lake_path(load(owner), ITEMS)

    def is_equal() -> bool:
        return (lake / "_delta_log").exists() and difference(owner, [ITEMS]) == []

    with program.started("run", file, "--max-seconds", "1500", own_java=True) as run:
        wait_until(is_equal, 120, "the first snapshot", pause=0.5)
        pg.execute(database, f"update items set v = '{VALUE} new' where n <= 20")
        pg.execute(database, f"insert into items values ('{VALUE}-bad', -1, 'bad')")
        # a snapshot in chunks, and a change of the schema with a type that makes the table be read again
        ask = json.dumps({"data-collections": ["public.items"], "type": "incremental"})
        pg.execute(database, "insert into signals values ('chunks', 'execute-snapshot', %s)", [ask])
        run.wait_for("Incremental Snapshot COMPLETED")
        pg.execute(database, "alter table items add column w numeric default 1.5, alter m type text using m::text")
        wait_until(lambda: "w" in rows(lake, "select * from t limit 1")[0], 60, "the new column", pause=0.2)
        pg.execute(database, f"delete from items where id = '{VALUE}-bad'")
        run.wait_for("public.items is re-read")
        wait_until(is_equal, 90, "equality after signals and changes of the schema", pause=0.5)
        shown = shown_by_processes(run.process.pid)
        assert run.end(signal.SIGTERM) == 0, run.said()[-3000:]
        said = run.said()
    status = program.run("status", file)
    said += status.stdout + status.stderr + checked.stdout + checked.stderr
    assert "Traceback" not in said, said[-3000:]
    assert b"java" in shown
    for mark in (PASSWORD, VALUE):
        assert mark not in said
        assert mark.encode() not in shown
    assert files_with(PASSWORD, tmp_path) == [str(file)]
    # Rows are in the lake and, until they are merged, in the spool.
    assert files_with(VALUE, tmp_path, tmp_path / "lake") == []

"""Tables whose names are one name for the lake's storage: the one whose folder it is goes on, the other is refused.

Storage that ignores case leads two names to one folder, and so does a symbolic link for the names that it joins.
"""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest

from cdc_core.config.connector import load
from cdc_core.lake.paths import LakePaths
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PAIR = TableId("public", "Orders"), TableId("public", "orders")
SCHEMAS = TableId("Shop", "items"), TableId("shop", "items")
LATER = TableId("public", "Lines"), TableId("public", "lines")
FINE = TableId("public", "fine")


def quoted(table: TableId) -> str:
    return f'"{table.schema}"."{table.table}"'


def created(*tables: TableId) -> str:
    """Each with rows of its own under equal keys."""
    return "".join(
        f"create table {quoted(table)} (id int primary key, v text);"
        f"insert into {quoted(table)} select g, '{table} ' || g from generate_series({place}, {place + 4}) g;"
        for place, table in enumerate(tables, 1)
    )


def changed(*tables: TableId) -> str:
    return "".join(
        f"update {quoted(t)} set v = v || '+' where id % 2 = 0; insert into {quoted(t)} select max(id) + 1, '{t} new' "
        f"from {quoted(t)};"
        for t in tables
    )


def join(base: Path, there: str, also: str) -> None:
    """Let two names of each kind of folder lead to one."""
    for kind in ("", "__changelog", "__quarantine"):
        (base / kind / there).mkdir(parents=True, exist_ok=True)
        (base / kind / also).symlink_to(base / kind / there)


def test_two_tables_never_share_a_folder(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("folded")
    pg.execute(database, f'create schema "Shop"; create schema shop; {created(*PAIR, *SCHEMAS, FINE, LATER[0])}')
    given = {
        **lake_settings(tmp_path),
        "schema.include.list": "public,shop",
        "publication.autocreate.mode": "all_tables",
    }

    def file(**more: str) -> Path:
        return write_properties(tmp_path / "folded.properties", pg.properties(database, **{**given, **more}))

    base = Path(LakePaths(str(tmp_path / "lake"), load(file()).schema.topic_prefix).base)
    join(base, "public/Orders", "public/orders")
    join(base, "Shop", "shop")
    join(base, "public/Lines", "public/lines")

    # Whichever of the two is created first has the folder, for good, and is exact.
    done = program.stream(file())
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stdout + done.stderr[-3000:]
    refused = program.paused(file())
    others = {str(one): two for pair in (PAIR, SCHEMAS) for one, two in (pair, pair[::-1])}
    assert len(refused) == 2, done.stdout + done.stderr[-6000:]
    owners = [others[name] for name in refused]
    assert {owner.table for owner in owners} == {owners[0].table, "items"} and owners[0].table.lower() == "orders"
    for name, told in refused.items():
        assert f"belongs to table {others[name]}, not to table {name}" in told["reason"], told
    assert difference(file(), [*owners, FINE, LATER[0]]) == []

    # The next run as well, whichever of them changes, and every other command.
    pg.execute(database, changed(*PAIR, *SCHEMAS, FINE))
    assert program.stream(file()).returncode == 1
    assert difference(file(), [*owners, FINE]) == [] and program.paused(file()) == refused
    first = next(iter(refused))
    for command in (("snapshot", first), ("replay", first), ("reconcile", first), ("maintain", first)):
        done = program.run(command[0], file(), *command[1:])
        said = done.stdout + done.stderr[-3000:]
        assert f"belongs to table {others[first]}" in said and "Traceback" not in said, said
        assert (done.returncode != 0) is (command[0] != "reconcile"), said
    assert difference(file(), owners) == []

    # While streaming: a table that is created, and another one that is renamed to the name of one.
    with program.started("run", file(), "--max-seconds", "1500") as running:
        running.wait_for("streaming")
        pg.execute(database, created(LATER[1]) + changed(*LATER))

        def is_paused() -> bool:
            pg.execute(database, changed(LATER[1], FINE))
            return f"{LATER[1]} is paused" in running.said()

        wait_until(is_paused, 60, "the pause", 1)
        pg.execute(database, changed(*LATER, FINE, *owners))
        wait_until(lambda: difference(file(), [LATER[0], FINE, *owners]) == [], 60, "the others' changes")
        assert running.end(signal.SIGINT) == 1, running.said()[-3000:]
        assert "Traceback" not in running.said()

    # As the pause says: excluded, though lists of tables ignore case.
    lists = [
        re.search(r"table\.exclude\.list=(\S+)\.(?: |$)", told["remedy"]) for told in program.paused(file()).values()
    ]
    exclusions = ",".join(match[1] for match in lists if match)
    assert exclusions.count("(?-i:") == 3
    pg.execute(database, changed(*PAIR, *SCHEMAS, *LATER))
    alone = file(**{"table.exclude.list": exclusions})
    done = program.stream(alone)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert difference(alone, [*owners, LATER[0], FINE]) == []

    # Or the other table is gone, renamed to the name that differs in nothing but its case: its folders are moved away.
    pg.execute(database, f'drop table {quoted(LATER[1])}; alter table {quoted(LATER[0])} rename to "{LATER[1].table}"')
    pg.execute(database, changed(LATER[1]))
    assert program.stream(file()).returncode == 1
    remedy = program.paused(file())[str(LATER[1])]["remedy"]
    (folders,) = re.findall(r"move its folders away \((.*?)\)", remedy)
    for folder in map(Path, folders.split(", ")):
        if folder.exists():
            shutil.move(folder.resolve(), folder.with_name("away"))
            folder.unlink()
    assert f"wal2lake replay with {LATER[1]}" in remedy
    done = program.run("replay", file(), str(LATER[1]))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    pg.execute(database, changed(LATER[1]))
    program.stream(file())
    assert difference(file(), [LATER[1], FINE, *owners]) == []
    assert set(program.paused(file())) == set(refused)

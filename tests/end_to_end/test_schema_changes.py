"""Every form of docs/schema-changes.md that touches the lake, through the whole line: no lake table differs in silence.

One connector, a table a form, each in a schema of its own. Half of the changes are made while the pipeline streams and
another connection changes the same tables, the other half while it is down; each among changes of rows of the old
columns and of the new ones. Then every lake table is read by delta-rs and compared with what the server holds.
"""

from __future__ import annotations

import itertools
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_core.config.connector import load
from cdc_core.schema.changes import READ_AGAIN_THEN
from cdc_core.schema.table import TableId
from tests.postgres.schema_change_forms import FORMS, SETUP, Form
from tests.postgres.test_schema_changes_forms import documented, statements
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, doubled_events, lake_path, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.support.random_ddl import difference, events_of
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

# What is tried elsewhere: names that move out of the schema, and settings of the whole publication.
LEFT_OUT = {"SET SCHEMA", "ALTER SCHEMA RENAME", "DROP TABLE", "ALTER PUBLICATION … SET (publish), and back"}
PUBLICATION = {
    "ALTER PUBLICATION … SET TABLE with a column list": "alter publication p drop table t; "
    "alter publication p add table t (id, v, n)",
    "ALTER PUBLICATION … SET TABLE with a row filter": "alter publication p drop table t; "
    "alter publication p add table t where (id > 4)",
}
HAND = {
    "in one transaction with changes before and after": "begin; update t set n = 70 where id = 3; delete from t "
    "where id = 4; alter table t rename w to w2; alter table t add c int default 3; alter table t drop d; "
    "update t set w2 = 'after', c = null where id = 5; insert into t (id, c) values (71, 9); commit",
    "several in a row": "alter table t rename w to x; update t set x = 'x' where id = 2; alter table t rename x to y; "
    "update t set y = 'y' where id = 3; alter table t drop y; alter table t add w varchar(9) default 'new'; "
    "update t set w = 'w' where id = 5",
    "a dropped column comes back with values": "alter table t drop label; alter table t add label text; "
    "update t set label = 'again' where id = 5",
    "no key": "alter table t replica identity full; alter table t drop constraint t_pkey; "
    "update t set n = 71 where id = 3; insert into t (id) values (5), (5)",
    "no key, and a column less": "alter table t replica identity full; alter table t drop constraint t_pkey; "
    "update t set n = 71 where id = 3; alter table t drop w; update t set n = 72 where id in (2, 5); "
    "delete from t where id = 6",
    "a key of other columns, by values that moved": "begin; lock table t; update t set n = id; "
    "alter table t drop constraint t_pkey; alter table t add primary key (n); commit; "
    "update t set n = n + 100 where id in (2, 3); delete from t where id = 4",
    "the key renamed": "update t set v = 'old' where id = 2; alter table t rename id to nr; "
    "update t set v = 'new' where nr = 3; delete from t where nr = 4; alter table t rename nr to id",
    "the key renamed for good": "update t set v = 'old' where id = 2; alter table t rename id to nr; "
    "update t set v = 'new' where nr = 3; insert into t (nr) values (72)",
    "large values renamed, and left as they are": "alter table t rename v to large; update t set n = 33 where id = 7; "
    "update t set n = 34",
    "values that no type of the lake holds": "update t set stamp = 'infinity' where id = 2; "
    "alter table t rename stamp to moment; alter table t add c numeric(8,2) default 'NaN'; "
    "alter table t add e date default '-infinity'; update t set n = 35 where id = 3; "
    "update t set moment = '-infinity', c = 2 where id = 5",
    "renamed while it was away": "alter table t rename to away; update away set n = 90 where id = 2; "
    "alter table away rename to t",
    "enum labels": "alter type mood add value 'glad' before 'ok'; update t set feeling = 'glad' where id = 2",
    "nothing at all": "update t set n = 3 where id = 3",
}
# Changes of rows by columns that most forms leave alone.
BEFORE = (
    "insert into t (id) values (60)",
    "update t set v = 'older' where id = 6",
    "update t set id = 62 where id = 60",
)
# All tables at once would be in every round of the run, which then does nothing else.
TURNS = 4
LARGE = "update t set v = (select string_agg(md5(g::text), '') from generate_series(1, 300) g) where id in (7, 8)"


@dataclass(frozen=True)
class Case:
    """A table ``t`` in a schema of its own, and what is done to it."""

    name: str
    schema: str
    form: Form
    kind: str = ""

    @property
    def table(self) -> TableId:
        return TableId(self.schema, "t9" if self.name == "RENAME TO" else "t")


def cases(version: int, *, all_tables: bool) -> list[Case]:
    page, found = documented(), []
    for name, form in FORMS.items():
        told = page[name]
        is_fit = told.since * 10000 <= version and form.all_tables is all_tables and name not in LEFT_OUT
        settings = [setting for setting in form.settings if setting != "publish_via_partition_root"]
        if is_fit and not settings and told.kind in ("followed", "re-read", "refused"):
            said = Form(PUBLICATION.get(name, form.sql), form.before, all_tables, form.settings, form.changes)
            found.append(Case(name, f"f{len(found)}", said, told.kind))
    if all_tables:
        # Of every second case the source changes while the pipeline is down: this one is tried in both ways.
        silent = next(case for case in found if case.name == "SET UNLOGGED, FOR ALL TABLES")
        found.insert(1 - found.index(silent) % 2, replace(silent, schema="f99"))
    if not all_tables:
        found += [Case(name, f"h{n}", Form(sql)) for n, (name, sql) in enumerate(HAND.items())]
    return found


@pytest.mark.parametrize("all_tables", [False, True], ids=["listed tables", "all tables"])
def test_no_change_of_a_table_makes_the_lake_differ_in_silence(
    pg: Cluster, program: Program, tmp_path: Path, all_tables: bool
) -> None:
    database = pg.database("changed")
    file = write_properties(tmp_path / "changed.properties", settings(pg, database, tmp_path))
    with pg.connect(database, prepare_threshold=None) as session:
        tried = cases(session.info.server_version, all_tables=all_tables)
        make(session, database, tried, all_tables)
        done = program.run("snapshot", file)
        assert done.returncode == 0, done.stderr
        session.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [f"{database}_all"])
        live, down = tried[::2], tried[1::2]
        change_under_load(pg, program, file, session, database, live)
        for case in down:
            change(session, database, case)
        run_until_idle(program, file)
        paused = program.paused(file)
        judge(session, file, tried, {table: found["reason"] for table, found in paused.items()})
        assert has_all_events(session, file, database, tried) == {}
        refused = [case for case in tried if case.kind == "refused"]
        assert set(paused) == {str(case.table) for case in refused}
        assert all(READ_AGAIN_THEN in found["remedy"] for found in paused.values()), paused
        bring_in(session, program, file, database, refused, replays=all_tables)
        # Nobody has changed the others since.
        judge(session, file, refused, {})
        assert is_confirmed(session, database, written(file, tried))
    pg.drop_database(database)


def test_an_event_keeps_its_values_in_the_changelog_whatever_the_column_becomes(
    pg: Cluster, program: Program, tmp_path: Path
) -> None:
    database = pg.database("kept")
    file = write_properties(tmp_path / "kept.properties", settings(pg, database, tmp_path))
    pg.execute(
        database, "create schema f0; create table f0.t (id int primary key, n int); insert into f0.t values (1, 1)"
    )
    pg.execute(database, f"create publication {database} for table f0.t")
    assert program.run("snapshot", file).returncode == 0
    pg.execute(database, "update f0.t set n = 2")
    pg.execute(database, "alter table f0.t alter n type text using n || '!'")
    pg.execute(database, "update f0.t set n = 'three'")
    pg.execute(database, "alter table f0.t rename n to m; update f0.t set m = 'four'")
    assert program.stream(file).returncode == 0
    path = changelog_path(load(file), TableId("f0", "t"))
    kept = [row["after"] for row in rows(path, 'select "after" from t order by "__commit_lsn"')]
    texts = [{name: value for name, value in row.items() if name != "id" and value is not None} for row in kept]
    assert [list(row.values()) for row in texts] == [[2], ["three"], ["four"]]
    assert re.fullmatch(r"n@\d+", next(iter(texts[1])))
    assert list(texts[0]) == ["n"] and list(texts[2]) == ["m"]


def settings(pg: Cluster, database: str, folder: Path) -> dict[str, str]:
    return pg.properties(
        database,
        **{
            "table.include.list": r"[fh]\d+\.t9?",
            "publication.autocreate.mode": "disabled",
            **lake_settings(folder),
        },
    )


def make(session: psycopg.Connection[Any], publication: str, tried: Sequence[Case], all_tables: bool) -> None:
    for case in tried:
        session.execute(f"create schema {case.schema}".encode())
        run(session, publication, case, [*statements(SETUP), *statements(case.form.before)])
        if "v" in columns(session, case):
            run(session, publication, case, ["alter table t alter v set storage external", LARGE])
    listed = ", ".join(f"{case.schema}.t" for case in tried)
    target = "all tables" if all_tables else f"table {listed}"
    session.execute(f"create publication {publication} for {target} with (publish_via_partition_root)".encode())


def columns(session: psycopg.Connection[Any], case: Case) -> set[str]:
    found = session.execute(
        "select attname::text from pg_attribute where attrelid = to_regclass(%s)", [f"{case.schema}.{case.table.table}"]
    ).fetchall()
    return {name for (name,) in found}


def run(session: psycopg.Connection[Any], publication: str, case: Case, texts: Sequence[str]) -> None:
    """Statements of the page's words, in the case's schema and under the publication's own name."""
    session.execute(f"set search_path = {case.schema}, public".encode())
    for text in texts:
        session.execute(text.replace("alter publication p ", f"alter publication {publication} ").encode())


def change(session: psycopg.Connection[Any], publication: str, case: Case) -> None:
    """Rows of the old columns, the change, rows of the new ones; by chance nothing follows it."""
    for text in BEFORE if "v" in columns(session, case) else ():
        with suppress(psycopg.errors.ObjectNotInPrerequisiteState):  # some have no identity as yet
            run(session, publication, case, [text])
    run(session, publication, case, statements(case.form.sql))
    is_quiet = case.kind == "followed" and int(case.schema[1:]) % 4 == 3
    if not is_quiet and case.kind:
        run(session, publication, case, case.form.changes)


def change_under_load(
    pg: Cluster, program: Program, file: Path, session: psycopg.Connection[Any], database: str, tried: Sequence[Case]
) -> None:
    """While the run streams and somebody else changes rows of all tables."""
    with program.started("run", file) as running, load_from_elsewhere(pg, database, tried):
        wait_until(lambda: is_streaming(session, database), 120, "the stream")
        for case in tried:
            change(session, database, case)
        ((end,),) = session.execute("select pg_current_wal_insert_lsn()::text").fetchall()
        wait_until(lambda: is_confirmed(session, database, end), 90, "the changes in the changelogs")
        # 1 where a table is paused.
        assert running.end(signal.SIGTERM, 120) in (0, 1), running.said()[-3000:]
        assert "(request)" in running.said() and "Traceback" not in running.said(), running.said()[-3000:]


@contextmanager
def load_from_elsewhere(pg: Cluster, database: str, tried: Sequence[Case]) -> Iterator[None]:
    ended = threading.Event()

    def work() -> None:
        with pg.connect(database, options="-c statement_timeout=5000", prepare_threshold=None) as other:
            number = 1000
            for turn in itertools.cycle(range(TURNS)):
                if ended.is_set():
                    break
                for case in tried[turn::TURNS]:
                    number += 1
                    older = number - 3 * len(tried)
                    # Some tables are others by now.
                    with suppress(psycopg.Error):
                        other.execute(f"insert into {case.schema}.t (id) values ({number})".encode())
                        other.execute(f"update {case.schema}.t set id = -id where id = {older}".encode())
                ended.wait(0.25)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(patient(30))


def is_streaming(session: psycopg.Connection[Any], slot: str) -> bool:
    found = session.execute("select active from pg_replication_slots where slot_name = %s", [slot]).fetchall()
    return found == [(True,)]


def is_confirmed(session: psycopg.Connection[Any], slot: str, lsn: str) -> bool:
    found = session.execute(
        "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s", [lsn, slot]
    ).fetchall()
    return found == [(True,)]


def judge(session: psycopg.Connection[Any], file: Path, tried: Sequence[Case], paused: dict[str, str]) -> None:
    """Every table equal to its source, but those that are paused; of what the page refuses, nothing else is."""
    config, found = load(file), {}
    for case in tried:
        if str(case.table) in paused:
            assert case.kind == "refused", (case.name, paused[str(case.table)])
            continue
        only = ("id", "v", "n") if "column list" in case.name else ()
        where = "id > 4" if "row filter" in case.name else "true"
        said = difference(session, case.table.table, lake_path(config, case.table), where, only, case.schema)
        if said:
            found[f"{case.schema} {case.name}"] = said
    assert not found, "\n".join(f"{name}: {said}" for name, said in found.items())


def has_all_events(
    session: psycopg.Connection[Any], file: Path, publication: str, tried: Sequence[Case]
) -> dict[str, tuple[int, int]]:
    """The tables whose changelog has not every event that the slot brought, once."""
    config, found = load(file), {}
    wanted: Counter[str] = events_of(session, f"{publication}_all", publication)
    for case in tried:
        path = changelog_path(config, case.table)
        held = 0
        if path.exists():
            held = rows(path, "select count(*) as n from t where \"__op\" in ('c', 'u', 'd')")[0]["n"]
            held += 10**6 * doubled_events(file, case.table)
        if held != wanted[str(case.table)]:
            found[case.name] = (held, wanted[str(case.table)])
    return found


def bring_in(
    session: psycopg.Connection[Any],
    program: Program,
    file: Path,
    publication: str,
    refused: Sequence[Case],
    *,
    replays: bool,
) -> None:
    """Do what the refusals ask for, and replay, or leave it to the next run: each run of many tables takes seconds."""
    remedies = {
        'ADD COLUMN "C", next to c': 'alter table t rename "W" to wide',
        "ADD COLUMN __rescued": "alter table t rename __rescued to rescued",
        "ALTER PUBLICATION … DROP TABLE": "alter publication p add table t",
        "SET UNLOGGED, FOR ALL TABLES": "alter table t set logged",
    }
    for case in refused:
        run(session, publication, case, [remedies[case.name]])
        if replays:
            done = program.run("replay", file, str(case.table))
            assert done.returncode == 0, done.stderr
    assert run_until_idle(program, file) == 0, "a table is still paused"


def run_until_idle(program: Program, file: Path) -> int:
    """Half of the tables are read again, one after the other, which takes longer than one run may on a busy machine.

    Returns the exit code.
    """
    for _ in range(6):
        done = program.stream(file)
        said = done.stdout + done.stderr
        assert done.returncode == 0 or "is not merged" in said, said[-3000:]
        if "(time)" not in said:
            return done.returncode
    raise AssertionError("the runs did not come to rest")


def written(file: Path, tried: Sequence[Case]) -> str:
    """The newest LSN that some changelog holds."""
    config = load(file)
    paths = [changelog_path(config, case.table) for case in tried if changelog_path(config, case.table).exists()]
    newest = max(rows(path, 'select max("__commit_lsn") as at from t')[0]["at"] for path in paths)
    return f"{newest >> 32:X}/{newest & 0xFFFFFFFF:X}"

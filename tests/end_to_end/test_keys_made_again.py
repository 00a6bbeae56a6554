"""A key that did not exist for some time: changes of rows that had equal values of it reach the rows that they are of.

Bulk loads drop a table's key, load, remove what was there twice, and create the key again. Under REPLICA IDENTITY FULL
the server publishes all of that, and its Relation messages are the same all the time.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import lake_path, lake_settings, write_properties
from tests.support.program import Program
from tests.support.random_ddl import difference
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PRIMARY, PLAIN = "id int primary key, v text", "id int not null, v text"
INDEX, NO_INDEX = "create unique index {t}_u on {t} (id)", "drop index {t}_u"
NO_KEY, KEY = "alter table {t} drop constraint {t}_pkey", "alter table {t} add primary key (id)"
FULL, DEFAULT, NOTHING = (f"alter table {{t}} replica identity {name}" for name in ("full", "default", "nothing"))
USING = "alter table {t} replica identity using index {t}_u"
AGAIN, NO_MORE = "insert into {t} values (1, 'again')", "delete from {t} where v = 'again'"
LOAD = f"insert into {{t}} select g, 'again' from generate_series(1, 3) g; {NO_MORE}"
MOVED = f"{AGAIN}; update {{t}} set id = id + 1000 where v = 'again'; {NO_MORE}"
LEAVES = "create table {t}_1 partition of {t} for values from (-10) to (10000)"
LATER = "insert into {t} select g + 30 + (select count(*) from {t}), 'later' from generate_series(1, 2) g"
LEAF_FULL = FULL.replace("{t}", "{t}_1")
NEW, NO_NEW = "insert into {t} values ('20', 'new')", "delete from {t} where v = 'new'"


@dataclass(frozen=True)
class Load:
    """What is done to a table ``{t}`` with the rows 1 to 9, each statement in its own transaction.

    ``is_reread``: it must be read again, or must not; None: it depends on when the source is looked at.
    """

    name: str
    sql: str
    is_reread: bool | None = True
    columns: str = PRIMARY
    before: str = FULL
    mode: str = "hard"


IX: dict[str, Any] = {"columns": PLAIN, "before": f"{INDEX}; {FULL}"}
LOADS = (
    Load("pk", f"{NO_KEY}; {LOAD}; {KEY}"),
    Load("pk_soft", f"{NO_KEY}; {LOAD}; {KEY}", mode="soft"),
    Load("pk_history", f"{NO_KEY}; {LOAD}; {KEY}", mode="history"),
    Load("pk_at_once", f"begin; {NO_KEY}; {LOAD}; {KEY}; commit"),
    Load("moved", f"{NO_KEY}; {MOVED}; {KEY}"),
    Load("ix", f"{NO_INDEX}; {LOAD}; {INDEX}", **IX),
    Load("ix_name", f"{NO_INDEX}; {LOAD}; create unique index {{t}}_w on {{t}} (id)", **IX),
    Load("ix_to_pk", f"{NO_INDEX}; {LOAD}; {KEY}", **IX),
    Load("ix_partial", f"{NO_INDEX}; {LOAD}; {INDEX} where id > 2; {AGAIN}", **IX),
    Load("ix_expression", f"{NO_INDEX}; {LOAD}; create unique index {{t}}_u on {{t}} (abs(id))", **IX),
    Load("made_deferrable", f"{NO_KEY}; {LOAD}; {KEY} deferrable"),
    Load("dropped", f"{NO_KEY}; {LOAD}; {AGAIN}; delete from {{t}} where v = 'row 6'"),
    Load("nulls", f"alter table {{t}} alter id drop not null; {AGAIN.replace('(1,', '(null,')}; {NEW}; "
         "insert into {t} select null, 'x' from generate_series(1, 3); delete from {t} where v = 'again'", **IX),
    Load("other", f"{NO_KEY}; {AGAIN}; alter table {{t}} add primary key (v); {NO_MORE}; {NO_KEY}; {KEY}"),
    Load("identities", f"{DEFAULT}; {NO_KEY}; {AGAIN}; {FULL}; {NO_MORE}; {KEY}", None),
    Load("by_default", f"{NO_KEY}; {AGAIN}; {FULL}; {NO_MORE}; {KEY}; {DEFAULT}", None, before=DEFAULT),
    Load("by_nothing", f"{NO_KEY}; {AGAIN}; {FULL}; {NO_MORE}; {KEY}; {NOTHING}", None, before=NOTHING),
    Load("by_index", f"{NO_INDEX}; {AGAIN}; {FULL}; {NO_MORE}; {INDEX}; {USING}", None, PLAIN, f"{INDEX}; {USING}"),
    Load("root", f"{NO_KEY}; {LOAD}; {KEY}", True, f"{PRIMARY}) partition by range (id",
         f"{LEAVES}; {LEAF_FULL}; {FULL}"),
    Load("full_leaf", f"{NO_KEY}; {LOAD}; {KEY}", True, f"{PRIMARY}) partition by range (id",
         f"{LEAVES}; {LEAF_FULL}"),
    # Harmless.
    Load("reindexed", f"reindex table {{t}}; reindex table concurrently {{t}}; {NEW}; "
         f"alter index {{t}}_pkey rename to {{t}}_p; {NO_NEW}", False),
    Load("others", f"{NEW}; create unique index {{t}}_a on {{t}} (id, v); create unique index {{t}}_z on {{t}} (v); "
         f"{NO_NEW}; drop index {{t}}_z, {{t}}_a", False),
    Load("rebuilt", f"cluster {{t}} using {{t}}_u; {NEW}; vacuum full {{t}}; reindex index {{t}}_u; {NO_NEW}",
         False, **IX),
    Load("promoted", f"{NEW}; alter table {{t}} add constraint {{t}}_c primary key using index {{t}}_u; {NO_NEW}",
         False, **IX),
    Load("widened", f"alter table {{t}} alter id type varchar(9); {NEW}; {NO_NEW}", False,
         "id varchar(5) primary key, v text"),
    Load("toggled", f"{DEFAULT}; update {{t}} set v = 'new' where id = 4; {NOTHING}; {NEW}; {FULL}; {NO_NEW}", False),
    Load("anew", f"{NO_KEY}; {NEW}; {KEY}; {NO_NEW}", False, before=DEFAULT),
)  # fmt: skip


class Tables:
    """The tables of all loads in one database, and one connector that captures them."""

    def __init__(self, pg: Cluster, folder: Path, loads: tuple[Load, ...] = LOADS) -> None:
        self.pg, self.loads, self.database = pg, loads, pg.database("keys_again")
        self.session = pg.connect(self.database, prepare_threshold=None)
        modes = {mode: ",".join(rf"public\.{x.name}" for x in loads if x.mode == mode) for mode in ("soft", "history")}
        settings = {f"wal2lake.lake.delete.mode.{mode}": names for mode, names in modes.items() if names}
        settings |= {"table.include.list": r"public\.[a-z_]+", "publish.via.partition.root": "true"}
        settings |= lake_settings(folder)
        self.file = write_properties(folder / "again.properties", pg.properties(self.database, **settings))
        for load_ in loads:
            self.run(load_.name, f"create table {{t}} ({load_.columns}); {load_.before}")
            self.run(load_.name, "insert into {t} select g, 'row ' || g from generate_series(1, 9) g")

    def run(self, table: str, sql: str) -> None:
        for text in sql.format(t=table).split("; "):
            self.session.execute(text.encode())

    def load(self) -> None:
        for each in self.loads:
            self.run(each.name, f"{each.sql}; {LATER}")

    def load_by_steps(self) -> Iterator[None]:
        """Yield after each statement of all loads. Without a key the modes soft and history cannot go on at all."""
        waiting = []
        for each in self.loads:
            if each.mode == "hard" and not each.sql.startswith("begin"):
                waiting.append((each.name, [*each.sql.split("; "), LATER]))
            else:
                sql = each.sql.removeprefix("begin; ").removesuffix("; commit")
                self.run(each.name, f"begin; {sql}; {LATER}; commit")
        while waiting:
            for name, left in waiting:
                self.run(name, left.pop(0))
            waiting = [(name, left) for name, left in waiting if left]
            yield

    def is_confirmed(self, lsn: str) -> bool:
        found = self.session.execute(
            "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s",
            [lsn, self.database],
        ).fetchall()
        return found == [(True,)]

    def wal_end(self) -> str:
        ((found,),) = self.session.execute("select pg_current_wal_insert_lsn()::text").fetchall()
        return str(found)

    def different(self) -> dict[str, str]:
        """The tables whose rows in force are not the source's, with what is different."""
        config, found = load(self.file), {}
        live = {"hard": "true", "soft": "not __deleted", "history": "__current"}
        for each in self.loads:
            path = lake_path(config, TableId("public", each.name))
            said = difference(self.session, each.name, path, live=live[each.mode])
            if said:
                found[each.name] = said
        return found

    def close(self) -> None:
        self.session.close()
        self.pg.drop_database(self.database)


@contextmanager
def tables(pg: Cluster, folder: Path, loads: tuple[Load, ...] = LOADS) -> Iterator[Tables]:
    made = Tables(pg, folder, loads)
    try:
        yield made
    finally:
        made.close()


def test_a_key_made_again_while_the_run_is_down(pg: Cluster, program: Program, tmp_path: Path) -> None:
    with tables(pg, tmp_path) as made:
        assert program.stream(made.file).returncode == 0
        made.load()
        done = program.stream(made.file)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-3000:]
        assert made.different() == {}
        for each in made.loads:
            if each.is_reread is not None:
                assert (f"public.{each.name} is re-read: " in said) is each.is_reread, each.name
        # The next run finds nothing.
        done = program.stream(made.file)
        assert done.returncode == 0 and "is re-read" not in done.stdout + done.stderr


def test_a_key_made_again_while_the_run_streams(pg: Cluster, program: Program, tmp_path: Path) -> None:
    """Each statement is in the changelogs before the next, so the run sees tables with and without their key."""
    alike = (
        "pk_soft",
        "moved",
        "ix_name",
        "ix_to_pk",
        "ix_expression",
        "made_deferrable",
        "root",
        "rebuilt",
        "widened",
    )
    chosen = tuple(each for each in LOADS if each.name not in alike)
    with tables(pg, tmp_path, chosen) as made, program.started("run", made.file) as running:
        wait_until(lambda: made.is_confirmed("0/0") and made.different() == {}, 120, "the snapshot")
        for _ in made.load_by_steps():
            end = made.wal_end()
            wait_until(lambda end=end: made.is_confirmed(end), 60, "the changes in the changelogs")
        wait_until(lambda: made.different() == {}, 120, "the source's rows in the lake")
        assert running.end(signal.SIGTERM, 60) == 0, running.said()[-3000:]
        for each in made.loads:
            if each.is_reread is False:
                assert f"public.{each.name} is re-read: " not in running.said(), each.name
        done = program.stream(made.file)
        assert done.returncode == 0, done.stderr[-3000:]
        assert made.different() == {}


def test_a_key_made_again_while_its_table_is_read_again(pg: Cluster, program: Program, tmp_path: Path) -> None:
    """In runs that are killed on the way; in the next, what was read is of before."""
    chosen = tuple(each for each in LOADS if each.name in ("pk", "pk_soft", "pk_history", "ix", "root"))
    with tables(pg, tmp_path, chosen) as made:
        assert program.stream(made.file).returncode == 0
        for place in (
            failpoints.BEFORE_SNAPSHOT_COMMIT,
            failpoints.AFTER_SNAPSHOT_COMMIT,
            failpoints.BEFORE_CONFIRM,
            failpoints.BEFORE_ROUND_RECORD,
        ):
            made.load()
            program.killed_at(place, made.file)
        made.load()
        done = program.stream(made.file)
        assert done.returncode == 0, done.stderr[-3000:]
        assert made.different() == {}

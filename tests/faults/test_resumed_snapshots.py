"""A snapshot of a table in many ranges, killed twice at random, goes on: what was read is not read again.

In between the source changes at random: rows that move between ranges, keys that are deleted, inserted again and
changed, values out of line that no update sends, savepoints, transactions that are open while a snapshot is taken.
After the stream has caught up the lake equals the source. What was read is told by the server's own log of
statements.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support import sampling
from tests.support.lake import difference, lake_settings, rows, write_properties

# Where runs are killed here; test_kill has the other places.
STEPS = (failpoints.AFTER_SNAPSHOT_RANGE, failpoints.BEFORE_SURPLUS)
BIG, SMALL = TableId("public", "big"), TableId("public", "small")
ROWS = 3000
RANGE_ROWS = 300

SCHEMA = f"""
create table big (id int primary key, grp text not null, v int, pad text, body text) with (fillfactor = 85);
alter table big alter column body set storage external;
insert into big
select g, 'g' || g % 7, g, repeat('x', 100 + g % 50), case when g % 40 = 0 then repeat(md5(g::text), 300) end
from generate_series(1, {ROWS}) g;
create table small (id int primary key, v int);
insert into small select g, g from generate_series(1, 20) g;
"""

_SELECT = re.compile(r'COPY \(SELECT .* FROM ONLY "public"\."big"(?P<where>[^\n]*)\s*\) TO STDOUT')
_LOW = re.compile(r"ctid >= '\((\d+),0\)'")
_HIGH = re.compile(r"ctid < '\((\d+),0\)'")


@dataclass
class Site:
    """A source, and the connector that takes it to a lake."""

    pg: Any
    database: str
    folder: Path
    settings: dict[str, Any]

    @property
    def properties(self) -> Path:
        return write_properties(self.folder / "resume.properties", self.settings)

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        return self.pg.execute(self.database, text)

    def recorded(self) -> list[tuple[int, int | None]]:
        """Pages of the ranges that are written down."""
        config = load(self.properties)
        path = Path(config.lake.lake_path) / config.schema.topic_prefix / "__ranges"
        if not path.exists():
            return []
        return [(row["first_block"], row["end_block"]) for row in rows(path) if row["table_name"] == "big"]

    def recorded_files(self) -> set[str]:
        """The files that are written down with them."""
        config = load(self.properties)
        found = rows(Path(config.lake.lake_path) / config.schema.topic_prefix / "__ranges")
        return {file["path"] for row in found for file in json.loads(row["files"])}

    def mark_log(self) -> int:
        return len(self.pg.log())

    def reads(self, since: int) -> list[tuple[int, int | None, str]]:
        """What was read of the table's pages since a place in the server's log: first, end, kind (all, old, new)."""
        found = []
        for match in _SELECT.finditer(self.pg.log()[since:]):
            where = match["where"]
            low, high = _LOW.search(where), _HIGH.search(where)
            kind = "new" if "age(xmin) <=" in where else "old" if "age(xmin) >" in where else "all"
            found.append((int(low[1]) if low else 0, int(high[1]) if high else None, kind))
        return found


@pytest.fixture
def site(pg, tmp_path):
    database = pg.database("resume")
    pg.execute(database, SCHEMA)
    pg.execute(database, "vacuum analyze")
    # Made before: the creation of a slot would wait for the transactions that are to be open.
    pg.execute(database, f'create publication "{database}" for all tables')
    pg.execute(database, f"select pg_create_logical_replication_slot('{database}', 'pgoutput')")
    pg.execute("postgres", f"alter database \"{database}\" set log_statement = 'all'")
    settings = pg.properties(
        database,
        **{
            "schema.include.list": "public",
            **lake_settings(tmp_path),
            "wal2lake.snapshot.rows.per.partition": str(RANGE_ROWS),
            # One range at a time, so that the place where a run is killed tells how many are read.
            "wal2lake.snapshot.threads": "1",
        },
    )
    yield Site(pg, database, tmp_path, settings)
    pg.drop_database(database)


class Changes:
    """Random changes of the table, some of them in transactions that stay open for a while."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._random = random.Random(seed)
        self._open: psycopg.Connection[Any] | None = None

    def make(self, count: int) -> None:
        with self._site.pg.connect(self._site.database) as connection:
            for _ in range(count):
                with connection.transaction():
                    for _ in range(self._random.choice([1, 1, 3])):
                        self._one(connection)

    def begin(self) -> None:
        """Open a transaction, and change rows in it that nothing else changes."""
        self._open = self._site.pg.connect(self._site.database)
        self._open.execute("begin")
        key = self._key(negative=True)
        self._open.execute("insert into big values (%s, 'open', 0, 'open', null)", [key])
        self._open.execute("delete from big where id = (select max(id) from big where id % 97 = 5 and id < 4000)")

    def end(self) -> None:
        if self._open is not None:
            self._open.execute("commit")
            self._open.close()
            self._open = None

    def _one(self, connection: psycopg.Connection[Any]) -> None:
        # Rows with id % 97 = 5 are left to the open transaction.
        ids = "(select id from big where id %% 97 <> 5 and id >= %s order by id limit %s)"
        at, some = self._key(), self._random.randint(1, 4)
        kind = self._random.choice(["value", "wide", "delete", "insert", "again", "rekey", "back", "body", "undone"])
        if kind == "value":
            connection.execute(f"update big set v = v + 1 where id in {ids}", [at, some])
        elif kind == "wide":
            connection.execute(f"update big set pad = repeat('w', 900) where id in {ids}", [at, some])
        elif kind == "delete":
            connection.execute(f"delete from big where id in {ids}", [at, some])
        elif kind == "insert":
            connection.execute(
                "insert into big values (%s, 'new', 0, 'n', repeat('b', 9000)) on conflict do nothing",
                [self._key() * 97],
            )
        elif kind == "again":
            connection.execute(
                f"with gone as (delete from big where id in {ids} returning *) select * into temp gone from gone",
                [at, some],
            )
            connection.execute("insert into big select id, 'again', -v, pad, body from gone")
            connection.execute("drop table gone")
        elif kind == "rekey":
            connection.execute(f"update big set id = id * 97 + 1000000 where id in {ids} and id < 9000", [at, some])
        elif kind == "back":
            connection.execute(
                "update big set id = (id - 1000000) / 97 where id = (select min(id) from big b where id > 1000000 and "
                "(id - 1000000) % 97 = 0 and not exists (select from big c where c.id = (b.id - 1000000) / 97))"
            )
        elif kind == "body":
            connection.execute(
                f"update big set grp = 'touched', v = v + 1 where body is not null and id in {ids}", [at, 80]
            )
        else:
            with connection.transaction():
                connection.execute(f"update big set v = v + 100 where id in {ids}", [at, some])
            with pytest.raises(ZeroDivisionError), connection.transaction():
                connection.execute(f"delete from big where id in {ids}", [at, 20])
                raise ZeroDivisionError

    def _key(self, *, negative: bool = False) -> int:
        return -self._random.randint(1, 10**6) if negative else self._random.randint(1, ROWS)


def _killed(program: Any, site: Site, number: int, step: str = failpoints.AFTER_SNAPSHOT_RANGE) -> None:
    program.killed_at(f"{step}:{number}", site.properties)


def _waited(program: Any, site: Site) -> None:
    """An attempt that waited for the transactions older than the publication, and of which nothing else is left."""
    _killed(program, site, 1)
    config = load(site.properties)
    shutil.rmtree(Path(config.lake.lake_path) / config.schema.topic_prefix / "__ranges", ignore_errors=True)


def _finished(program: Any, site: Site) -> None:
    done = program.stream(site.properties)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def _overlap(one: tuple[int, int | None], other: tuple[int, int | None]) -> bool:
    infinity = 2**40
    return one[0] < (other[1] or infinity) and other[0] < (one[1] or infinity)


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.slow
def test_killed_twice_it_continues_and_the_lake_equals_the_source(site, program):
    seed = sampling.seed(2611)
    print(f"seed {seed}")
    chosen, changes = random.Random(seed), Changes(site, seed)
    _waited(program, site)
    changes.begin()
    place = site.mark_log()
    _killed(program, site, chosen.randint(3, 5))
    first = site.recorded()
    assert first and {kind for *_, kind in site.reads(place)} == {"all"}, f"seed {seed}"
    changes.make(60)
    changes.end()
    changes.begin()

    place = site.mark_log()
    # The first of the second attempt's ranges are those with what was written since.
    fresh = -(-ROWS // (4 * RANGE_ROWS))
    # The range at which it is killed may be the one that is not written down any more.
    _killed(program, site, chosen.randint(fresh + 2, fresh + 4))
    second = site.recorded()
    assert set(first) < set(second), f"seed {seed}"
    _not_read_again(site.reads(place), first, seed)
    changes.make(60)
    changes.end()

    place = site.mark_log()
    _finished(program, site)
    _not_read_again(site.reads(place), second, seed)
    assert site.recorded() == []
    assert difference(site.properties, [BIG, SMALL]) == [], f"seed {seed}"

    changes.make(30)
    _finished(program, site)
    assert difference(site.properties, [BIG, SMALL]) == [], f"seed {seed}"


def _not_read_again(
    reads: list[tuple[int, int | None, str]], finished: list[tuple[int, int | None]], seed: int
) -> None:
    assert reads and {kind for *_, kind in reads} <= {"old", "new"}, f"seed {seed}: {reads}"
    again = [one for *one, kind in reads if kind == "old" and any(_overlap(tuple(one), done) for done in finished)]
    assert again == [], f"seed {seed}: {again} of {finished}"


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.slow
def test_deleted_rows_leave_the_lake_without_other_changes(site, program):
    _killed(program, site, 5)
    site.execute("delete from big where id between 10 and 20")
    site.execute("update big set id = id + 5000 where id between 30 and 35")
    _killed(program, site, 1, failpoints.BEFORE_SURPLUS)
    _finished(program, site)
    assert difference(site.properties, [BIG, SMALL]) == []


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "alter table big add column extra int default 7",
        "vacuum full big",
        "truncate big; insert into big select g, 'after', g, 'p', null from generate_series(1, 900) g",
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()",
    ],
    ids=["altered", "rewritten", "truncated", "new slot"],
)
def test_an_unusable_range_is_read_again(site, program, change):
    _killed(program, site, 4)
    files = site.recorded_files()
    assert site.recorded() and files <= {path.name for path in _data_files(site)}
    site.execute("delete from big where id % 10 = 3")
    for statement in change.split("; "):
        site.execute(statement)
    place = site.mark_log()
    _finished(program, site)
    assert {kind for *_, kind in site.reads(place)} == {"all"}
    assert site.recorded() == []
    assert difference(site.properties, [BIG, SMALL]) == []
    # What was written down and is of no use is removed.
    assert not files & {path.name for path in _data_files(site)}


def _data_files(site: Site) -> list[Path]:
    config = load(site.properties)
    return list((Path(config.lake.lake_path) / config.schema.topic_prefix / "public" / "big").glob("*.parquet"))

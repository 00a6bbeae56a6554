"""Transactions that several tasks merge, because they are too large for one's memory: what one merge gives, and once.

Two connectors read the same changes: one with parts of some rows, killed here and there, one with the default, by which
each transaction here is one part. Their lakes are equal row by row in every delete mode, whatever waits in quarantine.
"""

import signal

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from tests.support.lake import (
    difference,
    doubled_events,
    lake_path,
    lake_settings,
    query,
    write_properties,
)

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

MODES = ("hard", "soft", "history")
KEYED, KEYLESS = [TableId("public", f"t_{mode}") for mode in MODES], TableId("public", "keyless")
TABLES = [*KEYED, KEYLESS]
TABLE = """
create table {t} (id int primary key, title text, body text, n numeric);
alter table {t} alter column body set storage external;
insert into {t} select g, 'row ' || g, repeat(md5(g::text), 100), g from generate_series(1, 60) g;
"""
SCHEMA = (
    "".join(TABLE.format(t=table.table) for table in KEYED)
    + """
create table keyless (v int, what text);
alter table keyless replica identity full;
insert into keyless select g % 5, repeat('thing', 60) from generate_series(1, 60) g;
"""
)
# Values that updates leave out, keys that move, in chains and back, rows that come and go.
CHANGES = """
insert into {t} select 1000 + g, 'new', repeat(md5(g::text), 100), 1.50 from generate_series(1, 40) g;
update {t} set title = 'changed' where id % 2 = 0;
update {t} set id = id + 5000 where id between 1001 and 1015;
update {t} set id = id + 1, title = 'chain' where id = 5015;
update {t} set id = id - 5000, title = 'back' where id between 6001 and 6005;
delete from {t} where id % 7 = 3;
update {t} set body = repeat('short', 700) where id % 5 = 1;
insert into {t} select 3 + 7 * g, 'again', null, null from generate_series(0, 5) g;
"""
OF_KEYLESS = """
insert into keyless select g % 7, repeat('more', 70) from generate_series(1, 80) g;
update keyless set v = v + 1 where v < 4;
delete from keyless where ctid in (select ctid from keyless where v = 4 limit 9);
"""
TRUNCATED = (
    "truncate {t}; insert into {t} select g, 'after', repeat(md5(g::text), 50), g from generate_series(1, 50) g;"
)
# A soft table has some of these keys, of rows that the truncate deleted.
INSERTS = "insert into {t} select 1000 + g, 'only', repeat(md5(g::text), 100), g from generate_series(1, 60) g;"
REFUSED_VALUE = 77
REFUSED = f"update {{t}} set n = {REFUSED_VALUE}, title = 'refused' where id % 4 = 1;"
OTHERS = """
update {t} set title = '{word}' where id % 8 = 1;
update {t} set id = id + 20000 where id % 16 = 5;
update {t} set title = '{word}', body = '' where id % 12 = 1;
"""
# In "inserted", one task has written its files and another has not: its worker gets a second share.
STEPS = [
    ("mixed", CHANGES, OF_KEYLESS, (failpoints.AFTER_SHARE,)),
    (
        "truncated",
        CHANGES.replace("1000 + g", "9000 + g") + TRUNCATED,
        "truncate keyless;" + OF_KEYLESS,
        (failpoints.AFTER_TRUNCATE,),
    ),
    (
        "inserted",
        INSERTS,
        "insert into keyless select g, 'only' from generate_series(1, 90) g;",
        (failpoints.DURING_MERGE, f"{failpoints.AFTER_SHARE}:2"),
    ),
    # Later changes wait behind those that a rule refuses: by values that they leave out, and at both keys.
    ("refused", REFUSED + OTHERS.format(word="first", t="{t}"), OF_KEYLESS, (failpoints.AFTER_QUARANTINE,)),
    ("waiting", OTHERS.format(word="second", t="{t}"), OF_KEYLESS, (failpoints.AFTER_SHARE,)),
]
RULES = {
    f"wal2lake.quality.rule.{mode}": f"public.t_{mode}: after.n is distinct from {REFUSED_VALUE}" for mode in MODES
}
PARTS = {"wal2lake.merge.part.max.bytes": 30_000, "wal2lake.batch.max.rows": 150}


WAYS = {
    "rewritten": ({"wal2lake.lake.features": "widest"}, failpoints.DURING_MERGE),
    "marked": ({"wal2lake.merge.rewrite.max.bytes": "1"}, failpoints.AFTER_VECTORS),
}
PLACES = {place.partition(":")[0] for *_, places in STEPS for place in places}


@pytest.mark.parametrize("way", WAYS)
def test_parts_give_what_one_merge_gives(pg, program, tmp_path, way):
    (writing, of_mixed), database = WAYS[way], pg.database("parts")
    pg.execute(database, SCHEMA)

    def connector(name, **more):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        modes = {f"wal2lake.lake.delete.mode.{mode}": f"public.t_{mode}" for mode in MODES[1:]}
        slots = {"slot.name": f"{database}_{name}", "schema.include.list": "public"}
        settings = pg.properties(database, **slots, **modes, **lake_settings(folder), **RULES, **more)
        return write_properties(folder / "c.properties", settings)

    files = [connector("parts", **PARTS, **writing), connector("whole")]
    for file in files:
        done = program.stream(file)
        assert done.returncode == 0, done.stderr[-3000:]
    for step, keyed, keyless, killed in STEPS:
        statements = "".join(keyed.format(t=table.table) for table in KEYED) + keyless
        pg.execute(database, f"begin;{statements}commit;")
        for place in (*killed, of_mixed) if step == "mixed" else killed:
            program.killed_at(place, files[0])
        for file in files:
            done = program.stream(file)
            assert done.returncode == 0, (step, done.stderr[-3000:])
        are_all = step not in ("refused", "waiting")
        assert difference(files[0], [KEYED[0], KEYLESS] if are_all else [KEYLESS]) == [], step
        for table in TABLES:
            # Which of several equal rows stays, a multiset does not say.
            left, right = (content(file, table, with_positions=table != KEYLESS) for file in files)
            assert left == right, (step, table)
            assert doubled_events(files[0], table) == 0
    # A transaction is one version of the lake table: its parts are never seen.
    for table in TABLES:
        (_, *mine), (_, *theirs) = ([Lsn.parse(lsn) for lsn in commits_of(file, table)] for file in files)
        assert len(mine) == len(theirs) == len(STEPS)
        # After a kill, what is merged from the changelog stands at the end of the commit if that has been confirmed.
        assert all(one <= other < after for one, other, after in zip(theirs, mine, [*theirs[1:], 2**63], strict=True))
    names = [f"public.{table.table}" for table in KEYED]
    for place in (failpoints.AFTER_SHARE, failpoints.AFTER_QUARANTINE):
        done = program.run("replay", files[0], names[0], "--accept-all", WAL2LAKE_FAILPOINT=place)
        assert done.returncode == -signal.SIGKILL, (place, done.stderr[-3000:])
    for file in files:
        for name in names:
            done = program.run("replay", file, name, "--accept-all")
            assert done.returncode == 0 and "0 still waiting" in done.stderr, (done.stdout, done.stderr[-3000:])
    for table in KEYED:
        left, right = (content(file, table, with_positions=True) for file in files)
        assert left == right, table
    assert difference(files[0], [KEYED[0]]) == []


def content(file, table, with_positions):
    """All rows of the lake table, sorted."""
    found = query(lake_path(load(file), table), "select * from t").to_pylist()
    left = []
    for row in found:
        # The connectors read the table one after the other.
        own = ("__commit", "__valid_from") if row["__tx_index"] == -1 else ()
        without = own if with_positions else ("__",)
        left.append({name: value for name, value in row.items() if not name.startswith(without)})
    return sorted(repr(sorted(row.items())) for row in left)


def commits_of(file, table):
    """The LSNs at which the lake table stood, in order; maintenance and new features repeat one."""
    from deltalake import DeltaTable

    told = []
    for entry in reversed(DeltaTable(str(lake_path(load(file), table))).history()):
        told.append(entry.get("lsn"))
    return [lsn for lsn in dict.fromkeys(told) if lsn is not None]

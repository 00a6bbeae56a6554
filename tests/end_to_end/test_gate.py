"""No way into the lake leads past the rules: first snapshots, re-reads, chunks, repairs, replays."""

import json
import random

import pytest
from deltalake import DeltaTable

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, lake_settings, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ORDERS, OTHERS = TableId("public", "orders"), TableId("public", "others")
SCHEMA = """
create table orders (id int primary key, total int, code text not null, body text);
alter table orders alter column body set storage external;
insert into orders select g, 100 + g, 'c', repeat('x', 3000) from generate_series(1, 40) g;
insert into orders values (48, 8, 'c', 'z'), (50, -5, 'c', repeat('y', 3000)), (51, 5, 'c', 'z');
create table others (id int primary key);
insert into others values (1);
"""
RULES = """
rules:
  - name: positive
    condition: total >= 0
    description: total is not negative
"""
# The rows in force, by delete mode.
LIVE = {"hard": "true", "soft": "not __deleted", "history": "__current"}
# Evaluating it fails for a text that is no number.
RAISES = RULES + "  - name: number\n    condition: cast(code as int) >= 0\n"


class Gate:
    """A database, its connector, and what is in the lake and in quarantine."""

    def __init__(self, pg, program, folder, name, rules=RULES, **more):
        self.pg, self.program, self.database = pg, program, pg.database(name)
        pg.execute(self.database, SCHEMA)
        self.rules, self.signals = folder / "rules" / "public.orders.yaml", folder / "signals"
        self.rules.parent.mkdir()
        self.rules.write_text(rules)
        settings = {
            "schema.include.list": "public",
            "signal.enabled.channels": "file",
            "signal.file": str(self.signals),
            "signal.poll.interval.ms": "200",
            "incremental.snapshot.chunk.size": "7",
            "wal2lake.snapshot.rows.per.partition": "10",
            "wal2lake.quality.rules.path": str(self.rules.parent),
            **lake_settings(folder),
            **more,
        }
        self.file = write_properties(folder / "g.properties", pg.properties(self.database, **settings))
        self.config = load(self.file)

    def sql(self, *statements):
        for statement in statements:
            self.pg.execute(self.database, statement)

    def run(self, *statements, code=0):
        self.sql(*statements)
        return self._ended(self.program.stream(self.file), code)

    def command(self, name, *arguments, code=0):
        return self._ended(self.program.run(name, self.file, *arguments), code)

    def quality(self, name, *tables, code=0):
        return self._ended(self.program.run("quality", name, str(self.file), *tables), code)

    def chunks(self, code=0):
        """An incremental snapshot of the table, by signal."""
        data = {"data-collections": [str(ORDERS)], "type": "incremental"}
        self.signals.write_text(json.dumps({"id": "1", "type": "execute-snapshot", "data": data}) + "\n")
        return self.run(code=code)

    @staticmethod
    def _ended(done, code):
        said = " ".join((done.stdout + done.stderr).split())
        assert code in (None, done.returncode), said[-3000:]
        return said

    def lake(self, sql="select * from t where id >= 48 order by id", table=ORDERS):
        return rows(lake_path(self.config, table), sql)

    def ids(self):
        return [row["id"] for row in self.lake()]

    def aside(self):
        path = lake_path(self.config, ORDERS).parents[1] / "__quarantine" / "public" / "orders"
        return (
            rows(path, "select * from t order by __quarantined_at, __commit_lsn, __tx_index") if path.exists() else []
        )

    def waiting(self):
        return sorted(
            (row["__op"], json.loads(row["key"])["id"], *row["reasons"])
            for row in self.aside()
            if row["status"] == "waiting"
        )


@pytest.fixture
def gate(pg, program, tmp_path):
    return lambda name, **more: Gate(pg, program, tmp_path, name, **more)


def test_a_refused_row_is_in_quarantine_and_not_in_the_lake_by_each_way_of_reading(gate):
    one = gate("gate_ways")
    said = one.run()
    assert one.ids() == [48, 51]
    assert one.waiting() == [("r", 50, "user:positive")]
    assert "public.orders: 1 rows that were read are in quarantine (user:positive 1)" in said
    assert "1 changes are waiting in quarantine" in one.command("status")
    # From the stream, with one that depends on a row that was read, then by the other ways.
    one.run(
        "insert into orders values (60, -7, 'c', 'z'), (61, 500, 'c', 'z')",
        "update orders set code = 'held' where id = 50",
        "update orders set total = -6 where id = 51",
    )
    streamed = [
        ("c", 60, "user:positive"),
        ("r", 50, "user:positive"),
        ("u", 50, "user:positive"),
        ("u", 51, "user:positive"),
    ]
    assert one.waiting() == streamed
    assert one.ids() == [48, 51, 61]
    said = one.command("snapshot", "public.orders")
    assert "3 rows that a rule refuses are in quarantine" in said
    assert one.waiting() == [("r", each, "user:positive") for each in (50, 51, 60)]
    assert one.ids() == [48, 61]
    # A later image settles what was read; an incomplete one waits behind it; a delete ends it.
    one.run(
        "update orders set total = 6, body = 'whole' where id = 51",
        "update orders set code = 'again' where id = 50",
        "delete from orders where id = 60",
    )
    assert one.waiting() == [("r", 50, "user:positive"), ("u", 50, "user:positive")]
    assert one.ids() == [48, 51, 61]
    one.command("replay", "public.orders", "--accept", "positive")
    assert one.waiting() == []
    assert [(row["id"], row["total"], row["code"], len(row["body"])) for row in one.lake()] == [
        (48, 8, "c", 1),
        (50, -5, "again", 3000),
        (51, 6, "c", 5),
        (61, 500, "c", 1),
    ]
    # A preview of rules: those of the files, and of the project whose suites the catalogue generates.
    assert "gx/expectations/public/orders.json: generated expectations: 2 added; 0 others" in one.quality("init")
    said = one.quality("test", "public.orders", code=1)
    assert "44 rows" in said and "FAILED positive: 1 of 44 rows are unexpected" in said
    assert "passed key_not_null:id: 44 rows passed not_null:code: 44 rows" in said, said
    one.rules.write_text(RULES.replace(">= 0", ">= -5"))
    assert "FAILED" not in one.quality("test")


def test_chunks_and_repairs_are_judged_again(gate):
    one = gate("gate_chunks")
    one.run()
    one.run(
        "insert into orders values (60, -7, 'c', 'z'), (61, 500, 'c', 'z')",
        "update orders set total = -6 where id = 51",
        "update orders set id = 70, total = -8 where id = 48",
    )
    assert one.waiting() == [
        ("c", 60, "user:positive"),
        ("r", 50, "user:positive"),
        ("u", 51, "user:positive"),
        ("u", 70, "user:positive"),
    ]
    one.chunks()
    assert one.ids() == [61]  # what the refused ones left is not in the source any more
    assert one.waiting() == [("r", each, "user:positive") for each in (50, 51, 60, 70)]
    assert {row["status"] for row in one.aside() if row["__op"] != "r"} == {"superseded"}
    found = one.command("reconcile", "public.orders", code=0)
    assert "4 in quarantine" in found, found
    # A rule that cannot be evaluated lets in nothing, and changes nothing.
    one.rules.write_text(RAISES)
    said = one.chunks(code=None)
    assert "could not be checked against its rules: Evaluating quality rule number of public.orders failed" in said
    assert one.ids() == [61]
    one.rules.write_text(RULES.replace(">= 0", ">= -6"))
    one.chunks()
    assert [(row["id"], row["total"]) for row in one.lake()] == [(50, -5), (51, -6), (61, 500)]
    assert one.waiting() == [("r", each, "user:positive") for each in (60, 70)]
    # A repair reads the row that was lost; the rule that is in force now refuses it.
    one.rules.write_text(RULES)
    DeltaTable(str(lake_path(one.config, ORDERS))).delete("id in (7, 50)")
    found = one.command("reconcile", "public.orders", "--repair")
    assert "1 rows repaired 1 in quarantine: 50" in found
    assert [row["id"] for row in one.lake("select id from t where id in (7, 50)")] == [7]
    assert one.waiting() == [("r", each, "user:positive") for each in (50, 60, 70)]
    one.command("replay", "public.orders", "--drop")
    assert one.ids() == [51, 61]
    one.run("delete from orders where id = 60", "update orders set total = 1 where id = 70")
    assert one.ids() == [51, 61, 70]


def test_a_table_whose_rows_cannot_be_judged_is_not_read_and_the_others_are(gate):
    one = gate("gate_raises", rules=RAISES)
    said = one.run(code=1)
    assert "Rows read from public.orders could not be checked against its rules" in said
    assert "Evaluating quality rule number of public.orders failed" in said
    assert one.lake(table=OTHERS, sql="select id from t") == [{"id": 1}]
    assert not lake_path(one.config, ORDERS).exists() or one.lake() == []
    one.rules.write_text("limits: {rows: 1}" + RULES.replace(">= 0", "> 130"))
    said = one.command("snapshot", "public.orders", code=1)
    assert "33 changes of public.orders would be in quarantine, which exceeds its limit of 1 rows" in said, said
    one.rules.write_text(RULES)
    assert "1 rows that a rule refuses are in quarantine" in one.command("snapshot", "public.orders")
    one.run("insert into orders values (62, 1, 'c', 'z')")
    assert one.ids() == [48, 51, 62]


@pytest.mark.parametrize(("mode", "live"), LIVE.items())
def test_lake_and_quarantine_together_equal_the_source_in_any_order(gate, mode, live):
    """Random changes, rules, re-reads, chunks and replays, and one kill: no refused row is in the lake at any stop."""
    chance = random.Random(51)
    one = gate("gate_random", **({} if mode == "hard" else {f"wal2lake.lake.delete.mode.{mode}": str(ORDERS)}))
    one.run()
    for number in range(9):
        least = chance.choice([0, 0, -5])
        one.rules.write_text(RULES.replace(">= 0", f">= {least}"))
        one.sql(*(_change(chance, 100 * number + each) for each in range(12)))
        if number == 4:
            one.program.killed_at(failpoints.AFTER_QUARANTINE, one.file)
        one.run()
        ways = {
            "chunks": one.chunks,
            "snapshot": lambda: one.command("snapshot", "public.orders"),
            "replay": lambda: one.command("replay", "public.orders"),
        }
        way = chance.choice([*ways])
        ways[way]()
        source = dict(one.pg.execute(one.database, "select id, total from orders"))
        lake = {row["id"]: row["total"] for row in one.lake(f"select id, total from t where {live}")}
        waits = {json.loads(row["key"])["id"] for row in one.aside() if row["status"] == "waiting"}
        odd = {key for key in {*source, *lake} if source.get(key) != lake.get(key)}
        moved = {key for key in odd - waits if key in lake and key not in source}
        # From the stream, a refused change of its key leaves the row where it was, as it was.
        assert odd - waits - (moved if way == "replay" else set()) == set(), (number, way)
        assert len(moved) <= len(waits), (number, way)
        if way != "replay":
            assert all(total >= least for total in lake.values()), (number, way)


def _change(chance, new):
    """An insert, a complete or incomplete update, a change of the key, or a delete; half of the totals are refused."""
    total, key = chance.choice([-9, -3, 1, 7]), chance.choice([48, 50, 51, *range(1, 9)])
    return chance.choice(
        [
            f"insert into orders values ({1000 + new}, {total}, 'c', 'z')",
            f"update orders set total = {total} where id = {key}",
            f"update orders set total = {total}, body = 'whole' where id = {key}",
            f"update orders set id = {5000 + new}, total = {total} where id = {key}",
            f"delete from orders where id = {key}",
            f"insert into orders values ({key}, {total}, 'again', 'z') on conflict (id) do update set total = {total}",
        ]
    )


BAG = TableId("public", "bag")
BAGS = """
create table bag (n int, code text);
alter table bag replica identity full;
insert into bag values (1, 'a'), (1, 'a'), (-1, 'b'), (-1, 'b'), (-2, 'c'), (-3, 'd');
"""


def test_rows_of_a_table_without_a_key_wait_by_their_content(gate):
    """Refused reads of equal rows, removed, corrected and accepted one by one, by each way in."""
    one = gate("gate_bag")
    one.sql(BAGS)
    (one.rules.parent / "public.bag.yaml").write_text(RULES.replace("total", "n"))

    def lake():
        return [(row["n"], row["code"]) for row in one.lake("select n, code from t order by n, code", BAG)]

    def waiting():
        path = lake_path(one.config, BAG).parents[1] / "__quarantine" / "public" / "bag"
        found = rows(path, "select * from t where status = 'waiting'")
        images = (json.loads(row["row"])["after"] for row in found)
        return sorted((image["n"], image["code"]) for image in images)

    one.run()
    assert (lake(), waiting()) == ([(1, "a"), (1, "a")], [(-3, "d"), (-2, "c"), (-1, "b"), (-1, "b")])
    one.run(
        "delete from bag where ctid = (select min(ctid) from bag where n = -1)",
        "update bag set n = 2 where n = -2",
        "update bag set n = -4 where ctid = (select min(ctid) from bag where n = 1)",
    )
    # A refused update removes its old row: the lake is the source without refused rows.
    assert (lake(), waiting()) == ([(1, "a"), (2, "c")], [(-4, "a"), (-3, "d"), (-1, "b")])
    one.command("snapshot", "public.bag")
    assert (lake(), waiting()) == ([(1, "a"), (2, "c")], [(-4, "a"), (-3, "d"), (-1, "b")])
    DeltaTable(str(lake_path(one.config, BAG))).delete("n = 2")
    assert "3 in quarantine" in one.command("reconcile", "public.bag", "--repair")
    assert (lake(), waiting()) == ([(1, "a"), (2, "c")], [(-4, "a"), (-3, "d"), (-1, "b")])
    one.run("update bag set code = 'e' where n = -3")
    assert waiting() == [(-4, "a"), (-3, "e"), (-1, "b")]
    one.command("replay", "public.bag", "--accept", "positive")
    assert (lake(), waiting()) == ([(-4, "a"), (-3, "e"), (-1, "b"), (1, "a"), (2, "c")], [])
    assert "no row differs" in one.command("reconcile", "public.bag")

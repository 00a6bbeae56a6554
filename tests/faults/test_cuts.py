"""Every recorded round is one consistent cut: under load, through kills, and a table read again.

A writer commits numbered transactions that change several tables at once, and keeps what each table holds after each.
Afterwards every round is read by time travel with delta-rs and compared with what the source held at the round's LSN.
"""

import json
import random
import threading
from bisect import bisect_right
from functools import cache, partial

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import wal2lake
from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.errors import LakeError
from cdc_core.lake.stores.rounds import RoundLog, TableState
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_path, lake_settings, write_properties
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ACCOUNTS, ENTRIES, COUNTER, QUIET = (TableId("public", name) for name in ("accounts", "entries", "counter", "quiet"))
COLUMNS = {
    ACCOUNTS: ("id", "total"),
    ENTRIES: ("id", "account_id", "amount"),
    COUNTER: ("id", "n"),
    QUIET: ("id", "n"),
}
SCHEMA = """
create table accounts (id int primary key, total bigint);
create table entries (id int primary key, account_id int references accounts deferrable initially deferred, amount int);
create table counter (id int primary key, n int);
create table quiet (id int primary key, n int);
insert into accounts select g, 0 from generate_series(1, 5) g;
insert into counter values (1, 0);
insert into quiet select g, 0 from generate_series(1, 3) g;
"""


class Writer(threading.Thread):
    """Commits transactions until told to stop; ``after[n]`` is what the tables hold once the n-th has committed.

    The first ``at_once`` of them without a pause: more and more rows in the tables only cost time.
    """

    def __init__(self, pg, database, seed, at_once=0, pause=0.05):
        super().__init__(daemon=True)
        self.pg, self.database, self.chance = pg, database, random.Random(seed)
        self.at_once, self.pause = at_once, pause
        self.stopped = threading.Event()
        self.tables = {
            ACCOUNTS: dict.fromkeys(range(1, 6), 0),
            ENTRIES: {},
            COUNTER: {1: 0},
            QUIET: {1: 0, 2: 0, 3: 0},
        }
        self.after = [self._rows()]
        self.lsns = []
        self.wants_rewrite = threading.Event()
        self.error = None

    def _rows(self):
        whole = {name: dict(rows) for name, rows in self.tables.items()}
        entries = sorted((key, *value) for key, value in whole.pop(ENTRIES).items())
        return {ENTRIES: entries, **{name: sorted(rows.items()) for name, rows in whole.items()}}

    def run(self):
        try:
            with self.pg.connect(self.database) as connection:
                connection.autocommit = True
                number = 0
                while self._goes_on(number):
                    number += 1
                    with connection.transaction():
                        self._one(connection, number)
                    self.after.append(self._rows())
                    row = connection.execute("select pg_current_wal_insert_lsn()").fetchone()
                    self.lsns.append(int(Lsn.parse(row[0])))
        except BaseException as error:
            self.error = error
            raise

    def _goes_on(self, number):
        """Whether to commit another one after ``number``; waits before it."""
        return not self.stopped.wait(0 if number < self.at_once else self.pause)

    def _one(self, connection, number):
        accounts, entries = self.tables[ACCOUNTS], self.tables[ENTRIES]
        self.tables[COUNTER][1] = number
        connection.execute("update counter set n = %s", [number])
        if number % 3 == 0:
            accounts[number + 100] = 0
            connection.execute("insert into accounts values (%s, 0)", [number + 100])
        for step in range(self.chance.randint(1, 4)):
            account, amount, key = self.chance.choice(sorted(accounts)), self.chance.randint(1, 99), number * 10 + step
            accounts[account] += amount
            entries[key] = (account, amount)
            connection.execute("update accounts set total = total + %s where id = %s", [amount, account])
            connection.execute("insert into entries values (%s, %s, %s)", [key, account, amount])
        if number % 5 == 0:
            gone = self.chance.choice(sorted(entries))
            account, amount = entries.pop(gone)
            accounts[account] -= amount
            connection.execute("delete from entries where id = %s", [gone])
            connection.execute("update accounts set total = total - %s where id = %s", [amount, account])
        if number % 40 == 0:
            self.tables[QUIET][2] = number
            connection.execute("update quiet set n = %s where id = 2", [number])
        if self.wants_rewrite.is_set():
            # Rewrites every row without an event, so the table is read again; the accounts follow in events.
            self.wants_rewrite.clear()
            connection.execute("set constraints all immediate")
            connection.execute("alter table entries alter column amount type bigint using amount * 2")
            connection.execute("update accounts set total = total * 2")
            self.tables[ENTRIES] = {key: (account, 2 * amount) for key, (account, amount) in entries.items()}
            self.tables[ACCOUNTS] = {key: 2 * total for key, total in accounts.items()}


class Reader(threading.Thread):
    """Reads accounts and entries by ``wal2lake.read`` until told to stop: each read adds up, in each library."""

    def __init__(self, file):
        super().__init__(daemon=True)
        self.file, self.stopped = file, threading.Event()
        self.reads, self.wrong, self.error = 0, [], None

    def run(self):
        try:
            while not self.stopped.wait(0.5):
                self._one()
        except BaseException as error:
            self.error = error
            raise

    def _one(self):
        try:
            tables = wal2lake.read(self.file, "public.accounts", "public.entries")
        except LakeError as error:
            # No round yet, or the entries are being read again.
            assert "No round has been recorded" in error.message or "its state in that round" in error.message, error
            return
        accounts, entries = tables["public.accounts"], tables["public.entries"]
        with tables.duckdb() as duckdb:
            (of_accounts,) = duckdb.execute("select sum(total) from public.accounts").fetchone()
            (of_entries,) = duckdb.execute("select coalesce(sum(amount), 0) from public.entries").fetchone()
        sums = {
            "duckdb": (of_accounts, of_entries),
            "arrow": tuple(sum(table.arrow([name])[name].to_pylist()) for table, name in amounts_of(accounts, entries)),
            "polars": tuple(table.polars()[name].sum() for table, name in amounts_of(accounts, entries)),
            "pandas": tuple(int(table.pandas()[name].sum()) for table, name in amounts_of(accounts, entries)),
        }
        self.reads += 1
        if len(set(sums.values())) != 1 or of_accounts != of_entries:
            self.wrong.append((str(tables.lsn), sums))


def amounts_of(accounts, entries):
    return (accounts, "total"), (entries, "amount")


def read(config, table, version):
    opened = DeltaTable(str(lake_path(config, table)), version=version)
    names = ", ".join(f'"{name}"' for name in COLUMNS[table])
    found = QueryBuilder().register("t", opened).execute(f"select {names} from t").read_all()
    return sorted(tuple(row.values()) for row in pa.table(found).to_pylist())


def check_rounds(config, writer, spares=0):
    """Read every round; how many there were, and in how many of them all tables were at the round's LSN.

    ``spares`` tables never change: each round has all of them, but where it is before the snapshot and has none.
    """
    log = RoundLog(f"{config.lake.lake_path}/{config.schema.topic_prefix}/__rounds", 60)
    assert log.refresh()
    heads, whole = log.heads(), 0
    read_once = cache(partial(read, config))  # many rounds leave a table at its version
    assert [head.number for head in heads] == list(range(1, len(heads) + 1))
    assert [head.lsn for head in heads] == sorted(head.lsn for head in heads)
    for head in heads:
        found = log.round(head.number)
        assert found is not None
        at = {one.table: one.version for one in found.tables if one.state is TableState.CURRENT}
        assert all(one.version is None for one in found.tables if one.state is not TableState.CURRENT)
        held = {table: read_once(table, version) for table, version in at.items() if table in COLUMNS}
        spare = {table: version for table, version in at.items() if table not in COLUMNS}
        assert not at or (len(spare) == spares and len(set(spare.values())) <= 1), spare
        # The round's LSN lies behind that many transactions, or is that of the next one's own commit record.
        done = bisect_right(writer.lsns, int(head.lsn))
        fits = [
            number
            for number in (done, done + 1)
            if number < len(writer.after) and all(rows == writer.after[number][table] for table, rows in held.items())
        ]
        assert fits, (
            f"round {head.number} at {head.lsn} shows neither transaction {done} nor {done + 1}: {at}",
            {str(table): shown_after(writer, table, rows) for table, rows in held.items()},
        )
        if ACCOUNTS in held and ENTRIES in held:
            totals = dict.fromkeys((key for key, _ in held[ACCOUNTS]), 0)
            for _, account, amount in held[ENTRIES]:
                totals[account] += amount
            assert totals == dict(held[ACCOUNTS])
        whole += len(held) == len(COLUMNS)
    return len(heads), whole


def shown_after(writer, table, rows) -> list[int]:
    """The first and the last transaction after which a table held these rows; empty if it never did."""
    found = [number for number, state in enumerate(writer.after) if state[table] == rows]
    return found[:1] + found[-1:]


KILLS = {
    "rewritten": [
        failpoints.BEFORE_ROUND_RECORD,
        f"{failpoints.BETWEEN_MERGES}:6",
        f"{failpoints.AFTER_APPLY}:7",
    ],
    # Entries grow beyond what may be rewritten, the other tables do not.
    "by size": [failpoints.AFTER_VECTORS, f"{failpoints.BEFORE_ROUND_RECORD}:2"],
    # Entries and the quiet table are merged less often than the others.
    "apart": [f"{failpoints.BEFORE_ROUND_RECORD}:4", f"{failpoints.AFTER_APPEND}:9"],
}
# That many at least between two kills.
ROUNDS = {"rewritten": 6, "by size": 2, "apart": 6}
# Seconds between two looks at all rounds, which at the usual pace would compute for a fifth of the time.
LOOKS = 0.4
LOAD = {"rewritten": {}, "by size": {"at_once": 150, "pause": 0.2}, "apart": {}}
# One round in so many at most is without a table.
WHOLE = {"rewritten": 3, "by size": 3, "apart": 100}
# Tables that never change, beside those that do: what a round does not look at is in it.
SPARES = {"rewritten": 100}
MORE = {"apart": {"wal2lake.freshness.seconds.2": r"public\.entries, public\.quiet"}}


@pytest.mark.parametrize("way", KILLS)
def test_every_round_is_one_state_of_the_source(pg, program, tmp_path, way):
    database = pg.database("cuts")
    pg.execute(database, SCHEMA)
    spares = [f"spare_{number}" for number in range(SPARES.get(way, 0))]
    pg.execute(database, "".join(f"create table {name} (id int primary key);" for name in spares) or "select")
    more = {
        "wal2lake.freshness.seconds": "0.2",
        "wal2lake.merge.rewrite.max.bytes": "3500" if way == "by size" else "10000000",
        **MORE.get(way, {}),
    }
    file = connector(pg, database, tmp_path, more)
    config = load(file)
    writer = Writer(pg, database, seed=7, **LOAD[way])
    assert program.stream(file).returncode == 0
    writer.start()
    reader = Reader(file)
    reader.start()
    for number, step in enumerate(KILLS[way]):
        done = program.run("run", file, "--max-seconds", "1500", WAL2LAKE_FAILPOINT=step)
        assert done.returncode < 0, f"{step} was not reached:\n{done.stdout}{done.stderr[-3000:]}"
        with program.started("run", file) as running:
            rounds = rounds_of(config)
            wait_until(lambda before=rounds: rounds_of(config) > before + ROUNDS[way], 180, "rounds", LOOKS)
            if number == 1:
                before = rounds_of(config)
                writer.wants_rewrite.set()
                reread = partial(was_reread_since, config, before)
                wait_until(reread, 180, "the table read again", LOOKS)
            # Anywhere within a round.
            running.end(9)
    for thread in (writer, reader):
        thread.stopped.set()
        thread.join(patient(30))
    assert reader.error is None and not reader.is_alive()
    assert reader.reads and not reader.wrong
    assert writer.error is None and not writer.is_alive()
    done = program.stream(file)
    assert done.returncode == 0, done.stderr
    assert difference(file, list(COLUMNS)) == []
    rounds, whole = check_rounds(config, writer, len(spares))
    assert rounds > ROUNDS[way] * len(KILLS[way])
    assert whole > rounds / WHOLE[way], f"only {whole} of {rounds} rounds have all tables"
    if way == "apart":
        assert whole < rounds, "no round was without the tables that are merged less often"
    newest = json.loads(program.run("versions", file, "--json").stdout)
    names = [*map(str, COLUMNS), *(f"public.{name}" for name in spares)]
    assert {row["table"]: row["state"] for row in newest["tables"]} == dict.fromkeys(names, "current")
    for row in newest["tables"]:
        table = TableId(*row["table"].split("."))
        if table not in COLUMNS:
            continue
        assert read(config, table, row["version"]) == writer.after[-1][table]


def connector(pg, database, folder, more):
    """Of all four tables, with the rounds of the whole test."""
    given = {"schema.include.list": "public", **lake_settings(folder), "wal2lake.lake.history.minutes": "60", **more}
    return write_properties(folder / "cuts.properties", pg.properties(database, **given))


def rounds_of(config) -> int:
    log = RoundLog(f"{config.lake.lake_path}/{config.schema.topic_prefix}/__rounds", 60)
    newest = log.newest() if log.refresh() else None
    return 0 if newest is None else newest.head.number


def was_reread_since(config, number) -> bool:
    """Whether a round after ``number`` went without a table that is read again, and a later one has all tables."""
    log = RoundLog(f"{config.lake.lake_path}/{config.schema.topic_prefix}/__rounds", 60)
    assert log.refresh()
    rounds = [log.round(head.number) for head in log.heads() if head.number > number]
    states = [{one.state for one in found.tables} for found in rounds if found is not None]
    first = next((at for at, each in enumerate(states) if TableState.REREADING in each), len(states))
    return any(each == {TableState.CURRENT} for each in states[first:])
